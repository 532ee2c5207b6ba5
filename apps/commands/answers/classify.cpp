// tapestry classify: the classes of each line, a text or the path of an image, or the label of each
// word of a line.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/commands/answers/filter.h"
#include "apps/commands/answers/label_lines.h"
#include "apps/commands/answers/line_rows.h"
#include "apps/commands/command.h"
#include "apps/commands/number_bounds.h"
#include "apps/commands/pages/attention_page.h"
#include "apps/config/sections.h"
#include "apps/tasks/classes/classification.h"
#include "core/base/printable.h"
#include "core/cpu/parallel.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

struct ClassifyArguments : FilterArguments {
  int64_t top_k = 1;  ///< classes in a line, the most probable first
  /// Of multi_label: classes from this probability on; nullopt: as ClassChoice has it.
  std::optional<double> threshold = {};
  std::string detail = {};  ///< "" or "jsonl"
};

// A line of output: names and probabilities with tabs between them, or a JSON object.
std::string classes_text(const std::vector<std::string>& labels,
                         const ClassProbabilities& probabilities,
                         const ClassifyArguments& arguments, bool several) {
  ClassChoice choice{.top_k = arguments.top_k};
  choice.threshold = arguments.threshold.value_or(choice.threshold);
  const std::vector<LabelProbability> best = chosen_classes(labels, probabilities, choice, several);
  if (arguments.detail == "jsonl") {
    nlohmann::ordered_json classes = nlohmann::ordered_json::array();
    for (const auto& [label, probability] : best) {
      classes.push_back({{"label", label}, {"probability", probability}});
    }
    return json_line(nlohmann::ordered_json{{"classes", std::move(classes)}});
  }
  std::string text;
  for (const auto& [label, probability] : best) {
    text += fmt::format("{}{}\t{:.4f}", text.empty() ? "" : "\t", one_line(label), probability);
  }
  return text;
}

// The classes of each line; none for an empty one, and for one that cannot be classified.
struct Answers {
  std::vector<std::optional<ClassProbabilities>> of_lines = {};
  int64_t failures = 0;
};

// Texts go through the model in batches.
Answers classify_all(const TextClassifier& model, const LineRows& rows, AttentionBook& book) {
  Answers all{.of_lines = std::vector<std::optional<ClassProbabilities>>(rows.lines.size())};
  if (rows.texts.empty()) return all;
  for (size_t i = 0; i < rows.texts.size() && book.wants(); ++i) {
    book.add(attention_page(model, rows.texts[i]), rows.lines[rows.places[i]]);
  }
  const bool several = model.config.task->can(kFindsClasses);
  auto found = several ? class_probabilities(model, rows.texts) : classify(model, rows.texts);
  for (size_t i = 0; i < found.size(); ++i) all.of_lines[rows.places[i]] = std::move(found[i]);
  return all;
}

// Reads images one after the other. An unreadable one does not stop the others.
Answers classify_all(const ImageModel& model, const std::vector<std::string>& lines, int64_t number,
                     AttentionBook& book) {
  Answers all;
  for (const std::string& path : lines) {
    ++number;
    std::optional<ClassProbabilities>& answer = all.of_lines.emplace_back();
    if (is_blank(path)) continue;
    try {
      answer = classify(model, path);
      if (book.wants()) book.add(attention_page(model, path));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kData) throw;
      ++all.failures;
      std::cerr << printable(concat("warning: line ", number, ": ", error.what())) + '\n';
    }
  }
  return all;
}

int answer(const ClassifyArguments& arguments, LineFilter& filter, const auto& model) {
  AttentionBook book(arguments.attention);
  int64_t failures = 0;
  const auto write = [&](const Answers& found) {
    failures += found.failures;
    for (const std::optional<ClassProbabilities>& answer : found.of_lines) {
      if (answer) {
        filter.out() << classes_text(model.config.data.labels, *answer, arguments,
                                     model.config.task->can(kFindsClasses));
      }
      filter.out() << '\n';
    }
  };
  if constexpr (requires { model.model.trunk; }) {
    answer_rows(filter, arguments.batch_size, model.config, *model.tokenizers.source,
                arguments.pairs || reads_text_pairs(model.config),
                [&](const LineRows& rows) { write(classify_all(model, rows, book)); });
  } else {
    filter.run(1, [&](const std::vector<std::string>& lines, int64_t number) {
      write(classify_all(model, lines, number, book));
    });
  }
  book.write();
  filter.finish();
  if (failures > 0) {
    fail(ErrorKind::kData, "[classify] ", failures, failures == 1 ? " line" : " lines",
         " could not be classified and got an empty answer.");
  }
  return 0;
}

int run_classify(const ClassifyArguments& arguments) {
  LineFilter filter("classify", arguments);
  set_num_threads(arguments.compute.threads);
  ModelFiles files = read_model_files(arguments.model());
  const auto refuse_pairs = [&](const char* what) {
    if (!arguments.pairs) return;
    fail(ErrorKind::kConfig, "[classify] --pairs is for texts, ", arguments.model(), " classifies ",
         what, '.');
  };
  if (arguments.threshold && !files.config.task->can(kFindsClasses)) {
    fail(ErrorKind::kConfig, "[classify] --threshold is for a model of multi_label, ",
         arguments.model(), " is of task ", files.config.task->name, '.');
  }
  if (files.config.task->can(kLabelsWords)) {
    if (arguments.top_k != 1) {
      fail(ErrorKind::kConfig, "[classify] --top-k is for classes of whole texts, ",
           arguments.model(), " labels words.");
    }
    refuse_pairs("words");
    return label_lines(std::move(files), arguments, arguments.detail == "jsonl", filter);
  }
  const bool images = examples_of(files.config).of_images();
  if (images) refuse_pairs("images");
  const Ability ability = files.config.task->can(kFindsClasses) ? kFindsClasses : kClassifies;
  if (ability == kFindsClasses && arguments.top_k != 1) {
    fail(ErrorKind::kConfig, "[classify] --top-k is for texts of one class; of ", arguments.model(),
         " --threshold chooses.");
  }
  const auto load = [&]<class Model>() {
    return Model::load(std::move(files), arguments.compute.device, "classify", ability,
                       arguments.models.format);
  };
  if (images) return answer(arguments, filter, *load.operator()<ImageModel>());
  return answer(arguments, filter, *load.operator()<TextClassifier>());
}

void add_classify(CLI::App& app, ClassifyArguments& arguments) {
  add_model(app, arguments);
  add_format(app, arguments.models.format);
  add_input(app, arguments);
  add_output(app, arguments, "texts classified at a time");
  app.add_option("--top-k", arguments.top_k,
                 "classes and probabilities in a line, the most probable first")
      ->check(number<int64_t>(at_least(1)))
      ->capture_default_str();
  app.add_option("--threshold", arguments.threshold,
                 "of a model of multi_label: the classes with this probability or more (default: "
                 "0.5)")
      ->check(number<double>(between(0, 1)));
  add_pairs(app, arguments);
  add_detail(app, arguments.detail,
             "jsonl: classes with probabilities; of words labels, probabilities and entities");
  add_attention(app, arguments);
}

}  // namespace

extern const Command kClassify(
    "classify", "The class of each line of standard input, or of a file, with its probability",
    add_classify, run_classify);

}  // namespace tapestry
