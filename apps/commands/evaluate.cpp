// tapestry evaluate: BLEU, chrF and ROUGE of a file of translations, or what a model achieves on
// data (evaluate_model.cpp).
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/commands/commands.h"
#include "apps/commands/filter.h"
#include "core/error.h"
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

}  // namespace

int run_evaluate(const EvaluateArguments& arguments) {
  if (!arguments.model.empty()) return evaluate_model(arguments);
  if (!arguments.hypothesis.empty()) return evaluate_translations(arguments);
  fail(ErrorKind::kConfig,
       "[evaluate] give --hypothesis and --reference, or --model and --data (--text, --images, "
       "--squad and --jsonl are short for it).");
}

}  // namespace tapestry
