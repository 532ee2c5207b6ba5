#include "core/error.h"
#include "data/metrics.h"
#include "data/metrics_common.h"
#include "data/utf8.h"

namespace tapestry {
namespace {

using metrics::NgramMatches;
using metrics::Symbols;

Symbols without_space(const Symbols& text) {
  Symbols out;
  for (const char32_t c : text) {
    if (!is_space(c)) out.push_back(c);
  }
  return out;
}

bool is_ascii_punctuation(char32_t c) {
  return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) ||
         (c >= 0x7B && c <= 0x7E);
}

// chrF++'s words: one punctuation mark is split off, at the end or else at the front.
std::vector<Symbols> words_of(const Symbols& text) {
  std::vector<Symbols> words;
  for (const Symbols& word : metrics::split_words(text)) {
    if (word.size() > 1 && is_ascii_punctuation(word.back())) {
      words.push_back(word.substr(0, word.size() - 1));
      words.push_back(word.substr(word.size() - 1));
    } else if (word.size() > 1 && is_ascii_punctuation(word.front())) {
      words.push_back(word.substr(0, 1));
      words.push_back(word.substr(1));
    } else {
      words.push_back(word);
    }
  }
  return words;
}

void add_matches(const Symbols& hypothesis, const Symbols& reference, int orders,
                 NgramMatches* sums) {
  for (int n = 0; n < orders; ++n) {
    const NgramMatches matches = metrics::match_ngrams(hypothesis, reference, n + 1);
    // If the reference is too short for an order, the hypothesis' n-grams do not count either.
    if (matches.reference == 0) continue;
    sums[n].hypothesis += matches.hypothesis;
    sums[n].reference += matches.reference;
    sums[n].matched += matches.matched;
  }
}

double f_score(const std::vector<NgramMatches>& sums, int beta) {
  double precision = 0, recall = 0;
  int orders = 0;
  for (const NgramMatches& sum : sums) {
    if (sum.hypothesis == 0 || sum.reference == 0) continue;
    precision += static_cast<double>(sum.matched) / static_cast<double>(sum.hypothesis);
    recall += static_cast<double>(sum.matched) / static_cast<double>(sum.reference);
    ++orders;
  }
  if (orders == 0 || precision + recall == 0) return 0;
  precision /= orders;
  recall /= orders;
  const double factor = static_cast<double>(beta) * beta;
  return 100 * ((1 + factor) * precision * recall / (factor * precision + recall));
}

}  // namespace

void ChrfOptions::validate(const OptionReport& report) const {
  report.expect(char_order >= 1, "char_order", "must be at least 1, got ", char_order, '.');
  report.expect(word_order >= 0, "word_order", "must be at least 0, got ", word_order, '.');
  report.expect(beta >= 1, "beta", "must be at least 1, got ", beta, '.');
}

ChrfScore corpus_chrf(const std::vector<std::string>& hypotheses,
                      const std::vector<std::string>& references, const ChrfOptions& options) {
  options.validate();
  metrics::check_lines("chrf", hypotheses.size(), references.size());
  std::vector<NgramMatches> sums(static_cast<size_t>(options.char_order + options.word_order));
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const Symbols hypothesis = metrics::symbols_of(hypotheses[i], options.lowercase);
    const Symbols reference = metrics::symbols_of(references[i], options.lowercase);
    add_matches(without_space(hypothesis), without_space(reference), options.char_order,
                sums.data());
    metrics::WordIds ids;
    const Symbols hypothesis_words = ids.number(words_of(hypothesis));
    add_matches(hypothesis_words, ids.number(words_of(reference)), options.word_order,
                sums.data() + options.char_order);
  }
  ChrfScore chrf;
  chrf.score = f_score(sums, options.beta);
  chrf.sentences = static_cast<int64_t>(hypotheses.size());
  chrf.name =
      concat("chrF", options.beta, std::string(static_cast<size_t>(options.word_order), '+'));
  chrf.signature = concat("nrefs:1|case:", options.lowercase ? "lc" : "mixed",
                          "|eff:yes|nc:", options.char_order, "|nw:", options.word_order,
                          "|space:no|version:", metrics::version());
  return chrf;
}

std::string ChrfScore::str() const {
  return concat(name, '|', signature, " = ", metrics::fixed(score, 2));
}

}  // namespace tapestry
