// tapestry evaluate --hypothesis --reference: BLEU, chrF and ROUGE of a file of translations.
#include "apps/commands/evaluate_translations.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/commands/filter.h"
#include "core/text.h"
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

}  // namespace

CLI::Option* add_translation_options(CLI::App& command, TranslationArguments& arguments) {
  const std::vector<std::string> metrics(std::begin(kEvaluationMetrics),
                                         std::end(kEvaluationMetrics));
  const std::vector<std::string> tokenizers(std::begin(BleuOptions::kTokenizers),
                                            std::end(BleuOptions::kTokenizers));
  auto* hypothesis =
      command.add_option("--hypothesis", arguments.hypothesis, "file; -: standard input");
  auto* reference = command.add_option("--reference", arguments.reference, "file");
  command
      .add_option("--metrics", arguments.metrics,
                  "of a hypothesis: " + join(kEvaluationMetrics, ",") + " (default: bleu,chrf)")
      ->delimiter(',')
      ->check(CLI::IsMember(metrics));
  command.add_option("--tokenize", arguments.tokenize, join(tokenizers, " | "))
      ->check(CLI::IsMember(tokenizers))
      ->capture_default_str();
  command.add_flag("--lowercase", arguments.lowercase, "compare lower-cased text");
  hypothesis->needs(reference);
  reference->needs(hypothesis);
  return hypothesis;
}

int evaluate_translations(const TranslationArguments& arguments, bool json) {
  const std::vector<std::string> hypotheses = read_lines(arguments.hypothesis);
  const std::vector<std::string> references = read_lines(arguments.reference);
  nlohmann::ordered_json out;
  const auto print = [&](const char* name, const auto& score) {
    if (json) {
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
  if (json) std::cout << out.dump() << '\n';
  return 0;
}

}  // namespace tapestry
