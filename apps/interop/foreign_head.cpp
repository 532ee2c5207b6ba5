#include "apps/interop/foreign_head.h"

#include <algorithm>

#include "apps/interop/foreign_config.h"
#include "apps/interop/misfit_report.h"
#include "apps/interop/sentence_vectors.h"
#include "core/base/text.h"

namespace tapestry::interop {
namespace {

// Names of a task's head in the file of an encoder.
constexpr std::pair<const char*, const char*> kHeads[] = {
    {"classification", "classifier.weight"},
    {"classification", "classifier.out_proj.weight"},
    {"mlm", "cls.predictions.transform.dense.weight"},
    {"mlm", "lm_head.dense.weight"},
    {"mlm", "vocab_transform.weight"},
    {"mlm", "generator_predictions.dense.weight"},
    {"mlm", "decoder.bias"},
    {"question_answering", "qa_outputs.weight"},
    {"token_classification", "classifier.weight"},
    {"question_answering", "classifier.weight"},
};

bool has_head(const Folder& folder, const std::string& task) {
  return std::ranges::any_of(kHeads, [&](const auto& head) {
    return task == head.first && folder.names.has(head.second);
  });
}

// The task of the head that the tensors have; "" without one.
std::string task_by_tensors(const Folder& folder) {
  if (folder.architecture->type != ModelType::kEncoder) {
    return folder.architecture->classes.front().task;
  }
  for (const auto& [task, tensor] : kHeads) {
    if (folder.names.has(tensor)) return task;
  }
  return "";
}

std::vector<std::string> stored_names(const Folder& folder) {
  std::vector<std::string> names;
  for (const StoredTensor& tensor : folder.reader.tensors()) names.push_back(tensor.name);
  return names;
}

// The task of the class that the folder names: other classes use the same names of tensors. Without
// a class the tensors decide. "" without a head.
std::string task_of_class(const Folder& folder, Reasons& reasons) {
  const Architecture& architecture = *folder.architecture;
  const Json names = folder.config.value("architectures", Json());
  if (!names.is_array() || names.empty() || !names[0].is_string() ||
      names[0] == architecture.headless) {
    return task_by_tensors(folder);
  }
  std::vector<std::string> known = {architecture.headless};
  for (const ModelClass& row : architecture.classes) {
    if (names[0] == row.name) {
      const bool absent = architecture.type == ModelType::kEncoder && !has_head(folder, row.task);
      return absent ? "" : row.task;
    }
    if (row.name != known.back()) known.emplace_back(row.name);
  }
  reasons.push_back(concat("architectures names ", names[0].get<std::string>(), ", Tapestry has ",
                           join(known, ", "), "; ",
                           nearest_class(folder.config, stored_names(folder))));
  return "";
}

// What a classifier's head of texts is for: transformers' problem_type, or one label alone.
std::string task_of_problem(const std::string& task, const Folder& folder) {
  if (task != "classification" || folder.architecture->type != ModelType::kEncoder) return task;
  const Json type = folder.config.value("problem_type", Json());
  Reasons ignored;
  const bool one = type.is_null() && labels_of(folder.config, ignored).size() == 1;
  if (type == "regression" || one) return "text_regression";
  return type == "multi_label_classification" ? "multi_label" : task;
}

}  // namespace

std::string task_of_head(const Folder& folder, Reasons& reasons) {
  const bool encoder = folder.architecture->type == ModelType::kEncoder;
  if (encoder && has_modules(folder.path)) return "embedding";
  return task_of_problem(task_of_class(folder, reasons), folder);
}

// Heads that give numbers, or answer each class on its own, have the tensors of a classifier.
void check_classes(const Json& theirs, const Json& labels, Reasons& reasons) {
  const Json type = theirs.value("problem_type", Json());
  if (!type.is_null() && type != "single_label_classification") {
    reasons.push_back(concat("problem_type is ", type.dump(),
                             ", Tapestry has \"single_label_classification\": one class of each "
                             "text or image, by a softmax"));
  } else if (labels.size() == 1) {
    reasons.emplace_back(
        "it has one label, so that its head gives a number (a regression); Tapestry's classifiers "
        "have two classes or more");
  }
}

Json labels_of(const Json& theirs, Reasons& reasons) {
  Json labels = Json::array();
  const auto found = theirs.find("id2label");
  if (found != theirs.end() && !found->is_null() && !found->is_object()) {
    reasons.push_back(concat("id2label must be an object of names by the classes' numbers, got ",
                             found->is_array() ? "a list" : found->dump()));
    return labels;
  }
  if (found == theirs.end() || found->is_null()) {
    const int64_t count = std::clamp<int64_t>(number_of(theirs, "num_labels", 2, reasons), 1, 4096);
    for (int64_t i = 0; i < count; ++i) labels.push_back(concat("LABEL_", i));
    return labels;
  }
  for (size_t i = 0; i < found->size(); ++i) {
    const auto label = found->find(std::to_string(i));
    if (label == found->end() || !label->is_string()) {
      reasons.push_back(concat("id2label must name the classes 0 to ", found->size() - 1));
      return labels;
    }
    labels.push_back(*label);
  }
  return labels;
}

}  // namespace tapestry::interop
