// tapestry evaluate: BLEU, chrF and ROUGE of a file of translations, a language model's perplexity,
// the accuracy of a classifier of images, or exact match and F1 of answers.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/commands/filter.h"
#include "apps/config/sections.h"
#include "apps/tasks/classification.h"
#include "apps/tasks/language_modelling.h"
#include "apps/tasks/prompt_answering.h"
#include "apps/tasks/question_answering.h"
#include "core/parallel.h"
#include "data/metrics.h"

namespace tapestry {
namespace {

nlohmann::ordered_json json_of(const BleuScore& bleu) {
  return {{"score", bleu.score},
          {"precisions", bleu.precisions},
          {"brevity_penalty", bleu.brevity_penalty},
          {"hypothesis_tokens", bleu.hypothesis_tokens},
          {"reference_tokens", bleu.reference_tokens},
          {"signature", bleu.signature}};
}

nlohmann::ordered_json json_of(const ChrfScore& chrf) {
  return {{"score", chrf.score}, {"name", chrf.name}, {"signature", chrf.signature}};
}

nlohmann::ordered_json json_of(const RougeScore& rouge) {
  nlohmann::ordered_json out;
  for (const auto& [name, part] : {std::pair{"rouge_1", &rouge.rouge_1},
                                   {"rouge_2", &rouge.rouge_2},
                                   {"rouge_l", &rouge.rouge_l}}) {
    out[name] = {{"precision", part->precision}, {"recall", part->recall}, {"f", part->f}};
  }
  out["signature"] = rouge.signature;
  return out;
}

int evaluate_translations(const EvaluateArguments& arguments) {
  const std::vector<std::string> hypotheses = read_lines(arguments.hypothesis);
  const std::vector<std::string> references = read_lines(arguments.reference);
  nlohmann::ordered_json out;
  const auto print = [&](const char* name, const auto& score) {
    if (arguments.json) {
      out[name] = json_of(score);
    } else {
      std::cout << score.str() << '\n';
    }
  };
  const auto asked = [&](const char* name) {
    return std::find(arguments.metrics.begin(), arguments.metrics.end(), name) !=
           arguments.metrics.end();
  };
  if (asked("bleu")) {
    print("bleu", corpus_bleu(hypotheses, references,
                              {.tokenize = arguments.tokenize, .lowercase = arguments.lowercase}));
  }
  if (asked("chrf")) {
    ChrfOptions options;
    options.lowercase = arguments.lowercase;
    print("chrf", corpus_chrf(hypotheses, references, options));
  }
  if (asked("rouge")) print("rouge", corpus_rouge(hypotheses, references));
  out["sentences"] = hypotheses.size();
  if (arguments.json) std::cout << out.dump() << '\n';
  return 0;
}

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
  if (arguments.hypothesis.empty()) {
    fail(
        ErrorKind::kConfig,
        "[evaluate] give --hypothesis and --reference, or --model and --text, --images, --squad or "
        "--jsonl.");
  }
  return evaluate_translations(arguments);
}

}  // namespace tapestry
