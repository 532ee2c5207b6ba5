// tapestry evaluate: BLEU and chrF of a file of translations.
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "data/metrics.h"
#include "data/text.h"

namespace tapestry {
namespace {

std::vector<std::string> read_lines(const std::string& path) {
  LineReader reader(path == "-" ? "/dev/stdin" : path);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  return lines;
}

std::string json_of(const BleuScore& bleu, const ChrfScore& chrf) {
  nlohmann::ordered_json out;
  out["bleu"] = {{"score", bleu.score},
                 {"precisions", bleu.precisions},
                 {"brevity_penalty", bleu.brevity_penalty},
                 {"hypothesis_tokens", bleu.hypothesis_tokens},
                 {"reference_tokens", bleu.reference_tokens},
                 {"signature", bleu.signature}};
  out["chrf"] = {{"score", chrf.score}, {"name", chrf.name}, {"signature", chrf.signature}};
  out["sentences"] = bleu.sentences;
  return out.dump();
}

}  // namespace

int run_evaluate(const EvaluateArguments& arguments) {
  BleuOptions bleu_options;
  bleu_options.tokenize = arguments.tokenize;
  bleu_options.lowercase = arguments.lowercase;
  ChrfOptions chrf_options;
  chrf_options.lowercase = arguments.lowercase;

  const std::vector<std::string> hypotheses = read_lines(arguments.hypothesis);
  const std::vector<std::string> references = read_lines(arguments.reference);
  const BleuScore bleu = corpus_bleu(hypotheses, references, bleu_options);
  const ChrfScore chrf = corpus_chrf(hypotheses, references, chrf_options);
  if (arguments.json) {
    std::cout << json_of(bleu, chrf) << '\n';
  } else {
    std::cout << bleu.str() << '\n' << chrf.str() << '\n';
  }
  return 0;
}

}  // namespace tapestry
