#include "data/scores/rouge.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/scores/metric.h"
#include "data/scores/ngrams.h"

namespace tapestry {
namespace {

using scores::Symbols;

bool is_word_character(char32_t c) { return (c >= U'a' && c <= U'z') || (c >= U'0' && c <= U'9'); }

// Runs of a to z and 0 to 9; everything else becomes a space.
scores::Words words_of(Symbols& text) {
  for (char32_t& c : text) {
    if (!is_word_character(c)) c = U' ';
  }
  return scores::split_words(text);
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

void add(RougeScore::Part& sum, int64_t matched, size_t hypothesis, size_t reference) {
  if (matched == 0) return;
  const double precision = static_cast<double>(matched) / static_cast<double>(hypothesis);
  const double recall = static_cast<double>(matched) / static_cast<double>(reference);
  sum.precision += precision;
  sum.recall += recall;
  sum.f += 2 * precision * recall / (precision + recall);
}

// Adds the overlaps of words and of pairs of words.
void add_overlaps(RougeScore& rouge, const Symbols& hypothesis, const Symbols& reference) {
  constexpr int kOrders = 2;
  scores::NgramIds ids(hypothesis.size() + reference.size(), kOrders);
  const std::vector<uint32_t> given = ids.list(hypothesis), wanted = ids.list(reference);
  std::vector<int32_t> counts(ids.size());
  for (const uint32_t ngram : wanted) ++counts[ngram];
  const uint32_t* ngram = given.data();
  for (const auto& [part, order] : {std::pair{&rouge.rouge_1, 1}, {&rouge.rouge_2, 2}}) {
    int64_t matched = 0;
    const size_t all = scores::ngrams_in(hypothesis.size(), order);
    for (size_t i = 0; i < all; ++i) matched += counts[*ngram++]-- > 0 ? 1 : 0;
    add(*part, matched, all, scores::ngrams_in(reference.size(), order));
  }
}

}  // namespace

RougeScore corpus_rouge(const std::vector<std::string>& hypotheses,
                        const std::vector<std::string>& references) {
  one_system("rouge", hypotheses, references);
  RougeScore rouge;
  rouge.sentences = static_cast<int64_t>(hypotheses.size());
  rouge.signature = concat("nrefs:1|case:lc|stem:no|version:", scores::version());
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    Symbols texts[] = {scores::symbols_of(hypotheses[i], /*lowercase=*/true),
                       scores::symbols_of(references[i], /*lowercase=*/true)};
    scores::WordIds ids;
    const Symbols hypothesis = ids.number(words_of(texts[0]));
    const Symbols reference = ids.number(words_of(texts[1]));
    add_overlaps(rouge, hypothesis, reference);
    add(rouge.rouge_l, common_subsequence(hypothesis, reference), hypothesis.size(),
        reference.size());
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
    text += concat(name, scores::fixed(part->f, 2), " (P = ", scores::fixed(part->precision, 2),
                   " R = ", scores::fixed(part->recall, 2), ')');
  }
  return text;
}

}  // namespace tapestry
