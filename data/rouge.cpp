#include <algorithm>

#include "core/error.h"
#include "data/metrics.h"
#include "data/metrics_common.h"
#include "data/utf8.h"

namespace tapestry {
namespace {

using metrics::Symbols;

bool is_word_character(char32_t c) { return (c >= U'a' && c <= U'z') || (c >= U'0' && c <= U'9'); }

// Runs of a to z and 0 to 9 in the text in lower case; everything else parts them.
std::vector<Symbols> words_of(std::string_view text) {
  std::vector<Symbols> words(1);
  for (const char32_t c : metrics::symbols_of(text, /*lowercase=*/true)) {
    if (is_word_character(c)) {
      words.back().push_back(c);
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

// Length of the longest common subsequence, by rows of the table of all prefixes.
int64_t common_subsequence(const Symbols& a, const Symbols& b) {
  std::vector<int64_t> row(b.size() + 1, 0);
  for (const char32_t symbol : a) {
    int64_t diagonal = 0;  // of the row above
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t above = row[j];
      row[j] = b[j - 1] == symbol ? diagonal + 1 : std::max(above, row[j - 1]);
      diagonal = above;
    }
  }
  return row.back();
}

void add(RougeScore::Part& sum, int64_t matched, int64_t hypothesis, int64_t reference) {
  if (matched == 0) return;
  const double precision = static_cast<double>(matched) / static_cast<double>(hypothesis);
  const double recall = static_cast<double>(matched) / static_cast<double>(reference);
  sum.precision += precision;
  sum.recall += recall;
  sum.f += 2 * precision * recall / (precision + recall);
}

}  // namespace

RougeScore corpus_rouge(const std::vector<std::string>& hypotheses,
                        const std::vector<std::string>& references) {
  metrics::check_lines("rouge", hypotheses.size(), references.size());
  RougeScore rouge;
  rouge.sentences = static_cast<int64_t>(hypotheses.size());
  rouge.signature = concat("nrefs:1|case:lc|stem:no|version:", metrics::version());
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    metrics::WordIds ids;
    const Symbols hypothesis = ids.number(words_of(hypotheses[i]));
    const Symbols reference = ids.number(words_of(references[i]));
    for (const auto& [part, order] : {std::pair{&rouge.rouge_1, 1}, {&rouge.rouge_2, 2}}) {
      const auto matches = metrics::match_ngrams(hypothesis, reference, order);
      add(*part, matches.matched, matches.hypothesis, matches.reference);
    }
    add(rouge.rouge_l, common_subsequence(hypothesis, reference),
        static_cast<int64_t>(hypothesis.size()), static_cast<int64_t>(reference.size()));
  }
  for (RougeScore::Part* part : {&rouge.rouge_1, &rouge.rouge_2, &rouge.rouge_l}) {
    for (double* value : {&part->precision, &part->recall, &part->f}) {
      *value *= 100 / static_cast<double>(rouge.sentences);
    }
  }
  return rouge;
}

std::string RougeScore::str() const {
  std::string text = concat("ROUGE|", signature, " =");
  for (const auto& [name, part] :
       {std::pair{" 1: ", &rouge_1}, {" 2: ", &rouge_2}, {" L: ", &rouge_l}}) {
    text += concat(name, metrics::fixed(part->f, 2), " (P = ", metrics::fixed(part->precision, 2),
                   " R = ", metrics::fixed(part->recall, 2), ')');
  }
  return text;
}

}  // namespace tapestry
