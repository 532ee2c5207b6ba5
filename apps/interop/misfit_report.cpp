#include "apps/interop/misfit_report.h"

#include <algorithm>
#include <filesystem>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/safetensors.h"
#include "apps/interop/architectures/tensor_names.h"
#include "apps/interop/foreign_config.h"
#include "apps/interop/foreign_folder.h"
#include "apps/interop/tokenizer_files.h"
#include "core/base/nearest_name.h"
#include "core/base/pattern.h"
#include "core/base/text.h"

namespace tapestry::interop {
namespace {

namespace fs = std::filesystem;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// The names of a row as patterns: `*` for numbers of layers, weight and bias.
std::vector<std::string> patterns_of(const TensorRow& row, const char* prefix) {
  std::string all = replaced(replaced(row.theirs, "^", prefix), "#", "*");
  all = replaced(replaced(all, "$", "*"), "@", "*");
  const size_t open = all.find('{');
  if (open == std::string::npos) return {all};
  const size_t close = all.find('}', open);
  std::vector<std::string> patterns;
  for (size_t begin = open + 1; begin < close;) {
    const size_t end = std::min(all.find(',', begin), close);
    patterns.push_back(all.substr(0, open) + all.substr(begin, end - begin) +
                       all.substr(close + 1));
    begin = end + 1;
  }
  return patterns;
}

// How many of the tensors have a name of the architecture's tables.
int64_t known_names(const Architecture& architecture, const std::vector<std::string>& stored) {
  std::vector<std::string> patterns;
  for (const auto rows : {architecture.tensors, architecture.own_tensors}) {
    for (const TensorRow& row : rows) {
      for (std::string& one : patterns_of(row, architecture.prefix)) {
        patterns.push_back(std::move(one));
      }
    }
  }
  const TensorNames names(architecture, stored);
  return std::ranges::count_if(names.all(), [&](const auto& entry) {
    return std::ranges::any_of(
        patterns, [&](const std::string& pattern) { return matches(entry.first, pattern); });
  });
}

struct Nearest {
  const Architecture* architecture = nullptr;
  int64_t known = 0;  ///< tensors with a name of it
};

// The one of these whose name is most like the model_type; null if none is like it.
const Architecture* by_name(const Json& config, const std::vector<const Architecture*>& some) {
  const Json type = config.value("model_type", Json());
  if (!type.is_string()) return nullptr;
  std::vector<std::string> names;
  for (const Architecture* one : some) names.emplace_back(one->name);
  const std::string name = nearest_name(type.get<std::string>(), names);
  return name.empty() ? nullptr : find_architecture(name);
}

Nearest nearest_of(const Json& config, const std::vector<std::string>& stored) {
  int64_t most = 0;
  std::vector<const Architecture*> best;  // several have the same tables
  for (const Architecture* one : architectures()) {
    const int64_t known = known_names(*one, stored);
    if (known > most) best.clear();
    most = std::max(most, known);
    if (known == most) best.push_back(one);
  }
  if (most == 0 || 2 * most < std::ssize(stored)) return {by_name(config, architectures()), 0};
  const Architecture* const named = by_name(config, best);
  return {named != nullptr ? named : best.front(), most};
}

// The class of the head that config.json names, by what it is called behind its family's name.
std::string class_name(const Architecture& architecture, const Json& config) {
  const Json names = config.value("architectures", Json());
  const bool named = names.is_array() && !names.empty() && names[0].is_string();
  const std::string theirs = named ? names[0].get<std::string>() : "";
  const auto head = [](const std::string& name) {
    const size_t at = name.find("For");
    return at == std::string::npos ? std::string("Model") : name.substr(at);
  };
  for (const ModelClass& row : architecture.classes) {
    if (!theirs.empty() && head(theirs) == head(row.name)) return row.name;
  }
  return theirs.empty() || head(theirs) != "Model" ? architecture.classes.front().name
                                                   : architecture.headless;
}

std::string sentence_of(const Nearest& nearest, const Json& config, size_t tensors) {
  if (nearest.architecture == nullptr) return "";
  const std::string counted = nearest.known > 0 ? concat(": ", nearest.known, " of the ", tensors,
                                                         " tensors have a name there")
                                                : "";
  return concat("the nearest class is ", class_name(*nearest.architecture, config), " (",
                nearest.architecture->name, ')', counted);
}

std::vector<std::string> stored_names(const std::string& folder) {
  std::vector<std::string> stored;
  try {
    const TensorReader reader = open_model_folder(folder);
    for (const StoredTensor& tensor : reader.tensors()) stored.push_back(tensor.name);
  } catch (const Error&) {
    // Their absence is a reason of its own.
  }
  return stored;
}

// What an error says, without who says it and without its last full stop.
std::string problem_of(const Error& error) {
  std::string problem = error.what();
  if (problem.starts_with("[import] ")) problem.erase(0, std::string_view("[import] ").size());
  if (problem.ends_with('.')) problem.pop_back();
  return problem;
}

std::string tokenizer_problem(const std::string& folder) {
  const Json config = config_with_defaults(folder);
  const Architecture* const architecture = architecture_of(config);
  if (architecture != nullptr && architecture->type == ModelType::kVit) return "";
  Reasons ignored, notes;
  Counts counts;
  counts.source_vocab = number_of(config, "vocab_size", 0, ignored);
  counts.target_vocab = number_of(config, "decoder_vocab_size", counts.source_vocab, ignored);
  if (counts.source_vocab == 0) return "";
  try {
    find_tokenizers(folder, counts, config, notes);
  } catch (const Error& error) {
    return problem_of(error);
  }
  return "";
}

}  // namespace

bool has_safetensors(const std::string& folder) {
  return fs::exists(folder + "/model.safetensors") ||
         fs::exists(folder + "/model.safetensors.index.json");
}

std::string weights_in_other_format(const std::string& folder) {
  const bool ours = has_safetensors(folder);
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5",
                           "flax_model.msgpack", "consolidated.00.pth"}) {
    if (!ours && fs::exists(folder + "/" + name)) return name;
  }
  return "";
}

std::string nearest_class(const Json& config, const std::vector<std::string>& stored) {
  return sentence_of(nearest_of(config, stored), config, stored.size());
}

void refuse_unknown_class(const std::string& folder, const Json& config) {
  std::vector<std::string> known;
  for (const Architecture* row : architectures()) known.emplace_back(row->name);
  Reasons reasons = {concat(kConfigFile, " has model_type ",
                            config.value("model_type", Json()).dump(), ", expected one of ",
                            join(known, ", "))};
  if (const std::string file = weights_in_other_format(folder); !file.empty()) {
    reasons.push_back(concat("its weights are in ", file, ", expected safetensors"));
  }
  const std::vector<std::string> stored = stored_names(folder);
  const Nearest nearest = nearest_of(config, stored);
  if (nearest.architecture != nullptr) {
    reasons.push_back(sentence_of(nearest, config, stored.size()));
    Reasons more;
    our_model(*nearest.architecture, config, more);
    for (const std::string& reason : more) {
      reasons.push_back(concat("for a ", nearest.architecture->name, ' ', reason));
    }
  }
  refuse(folder, reasons);
}

void refuse_without_tensors(const std::string& folder, const Architecture& architecture,
                            const Json& config, const std::string& problem) {
  Reasons reasons = {problem};
  our_model(architecture, config, reasons);
  refuse(folder, reasons);
}

void refuse_with_tokenizer(const Error& error, const std::string& folder) {
  const std::string more = tokenizer_problem(folder);
  if (more.empty()) throw error;
  std::string message = error.what();
  if (message.ends_with('.')) message.pop_back();
  fail(ErrorKind::kData, message, ";\n  ", more, '.');
}

}  // namespace tapestry::interop
