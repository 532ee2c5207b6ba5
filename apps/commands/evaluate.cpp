// tapestry evaluate --model: a language model's perplexity, the accuracy of a classifier of images,
// or exact match and F1 of answers. Files of translations are evaluate_translations.cpp's.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/commands/commands.h"
#include "apps/config/sections.h"
#include "apps/tasks/classification.h"
#include "apps/tasks/language_modelling.h"
#include "apps/tasks/prompt_answering.h"
#include "apps/tasks/question_answering.h"
#include "core/parallel.h"

namespace tapestry {
namespace {

int evaluate_language_model(const EvaluateArguments& arguments) {
  set_num_threads(arguments.compute.threads);
  const auto model =
      TextModel::load(arguments.model, arguments.compute.device, "evaluate --text", kModelsText);
  CorpusSpec spec;
  spec.text = arguments.text;
  spec.documents =
      arguments.documents.empty() ? model->config.data.train.at(0).documents : arguments.documents;
  const TokenStream text = load_token_stream({spec}, *model->tokenizers.source);
  const TextQuality quality = text_quality(*model, text);
  const double nll = quality.nll / static_cast<double>(quality.tokens);
  if (arguments.json) {
    nlohmann::ordered_json out{{"nll", nll},
                               {"perplexity", quality.perplexity()},
                               {"accuracy", quality.accuracy},
                               {"tokens", quality.tokens},
                               {"characters", text.characters()}};
    if (quality.bits_per_character > 0) out["bits_per_character"] = quality.bits_per_character;
    std::cout << out.dump() << '\n';
    return 0;
  }
  fmt::print("nll {:.4f}  perplexity {:.3f}  accuracy {:.2f} %  tokens {}  characters {}", nll,
             quality.perplexity(), quality.accuracy, quality.tokens, text.characters());
  if (quality.bits_per_character > 0) {
    fmt::print("  bits per character {:.4f}", quality.bits_per_character);
  }
  fmt::print("\n");
  return 0;
}

int evaluate_image_model(const EvaluateArguments& arguments) {
  set_num_threads(arguments.compute.threads);
  ModelFiles files = read_model_files(arguments.model);
  if (!reads_images(files.config)) {
    fail(ErrorKind::kData, "[evaluate --images] expected a model of images, ", files.folder,
         " holds one of texts.");
  }
  const auto model = ImageModel::load(std::move(files), arguments.compute.device,
                                      "evaluate --images", kClassifies);
  CorpusSpec spec;
  spec.images = arguments.images;
  spec.labels = arguments.labels;
  const DataOptions& data = model->config.data;
  const ImageCorpus images = load_images({spec}, data.image.size, data.labels);
  const std::map<std::string, double> metrics = measure(*model, images).metrics();
  if (arguments.json) {
    const nlohmann::ordered_json out{{"nll", metrics.at("nll")},
                                     {"accuracy", metrics.at("accuracy")},
                                     {"images", images.images()}};
    std::cout << out.dump() << '\n';
  } else {
    fmt::print("nll {:.4f}  accuracy {:.2f} %  images {}\n", metrics.at("nll"),
               metrics.at("accuracy"), images.images());
  }
  return 0;
}

// Those of `names`, in this order.
void print_metrics(const std::map<std::string, double>& metrics,
                   const std::vector<std::string>& names, int64_t questions, bool json) {
  if (json) {
    nlohmann::ordered_json out;
    for (const std::string& name : names) out[name] = metrics.at(name);
    out["questions"] = questions;
    std::cout << out.dump() << '\n';
    return;
  }
  for (const std::string& name : names) fmt::print("{} {:.4f}  ", name, metrics.at(name));
  fmt::print("questions {}\n", questions);
}

// Of spans, or of the prompts of a causal model.
int evaluate_answers(const EvaluateArguments& arguments) {
  set_num_threads(arguments.compute.threads);
  ModelFiles files = read_model_files(arguments.model);
  CorpusSpec spec;
  spec.squad = arguments.squad;
  spec.jsonl = arguments.jsonl;
  if (files.config.task->can(kFindsAnswers)) {
    const auto model = SpanModel::load(std::move(files), arguments.compute.device,
                                       "evaluate --squad", kFindsAnswers);
    const QuestionCorpus questions =
        load_questions({spec}, *model->tokenizers.source, question_options(model->config));
    print_metrics(measure(*model, questions), {"exact_match", "f1", "nll"}, questions.size(),
                  arguments.json);
    return 0;
  }
  const char* const who = arguments.squad.empty() ? "evaluate --jsonl" : "evaluate --squad";
  const Ability ability = arguments.squad.empty() ? kContinuesText : kFindsAnswers;
  const auto model = TextModel::load(std::move(files), arguments.compute.device, who, ability);
  prompt_template(model->config, who);
  spec.prompt = model->config.data.train.front().prompt;
  spec.answer = model->config.data.train.front().answer;
  const PromptCorpus answers = load_for_validation(*model, {spec});
  print_metrics(measure(*model, answers), {"exact_match", "nll", "ppl"}, answers.size(),
                arguments.json);
  return 0;
}

}  // namespace

int run_evaluate(const EvaluateArguments& arguments) {
  if (!arguments.squad.empty() || !arguments.jsonl.empty()) return evaluate_answers(arguments);
  if (!arguments.images.empty()) return evaluate_image_model(arguments);
  if (!arguments.text.empty()) return evaluate_language_model(arguments);
  if (arguments.translations.hypotheses.empty()) {
    fail(
        ErrorKind::kConfig,
        "[evaluate] give --hypothesis and --reference, or --model and --text, --images, --squad or "
        "--jsonl.");
  }
  set_num_threads(arguments.compute.threads);
  return evaluate_translations(arguments.translations, arguments.json);
}

}  // namespace tapestry
