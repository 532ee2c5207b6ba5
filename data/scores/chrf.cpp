#include "data/scores/chrf.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/files/utf8.h"
#include "data/scores/ngrams.h"
#include "data/scores/punctuation.h"

namespace tapestry {
namespace {

using scores::Symbols;

// The numbers of an order.
constexpr size_t kNumbers = 3;
constexpr size_t kHypothesis = 0;
constexpr size_t kReference = 1;
constexpr size_t kMatched = 2;

Symbols without_space(const Symbols& text) {
  Symbols out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    if (!is_space(c)) out.push_back(c);
  }
  return out;
}

// chrF++'s words: one punctuation mark is split off, at the end or else at the front.
scores::Words words_of(const Symbols& text) {
  scores::Words words;
  for (const std::u32string_view word : scores::split_words(text)) {
    const bool end = word.size() > 1 && scores::is_ascii_punctuation(word.back());
    const bool front = word.size() > 1 && !end && scores::is_ascii_punctuation(word.front());
    const size_t cut = end ? word.size() - 1 : front ? 1 : word.size();
    words.push_back(word.substr(0, cut));
    if (cut < word.size()) words.push_back(word.substr(cut));
  }
  return words;
}

// One side of a comparison: its symbols, and the numbers of their n-grams for each order.
struct Side {
  Symbols symbols;
  std::vector<uint32_t> ngrams;
};

// Writes the numbers of orders 1 to `orders`. `counts` has an entry for every n-gram.
void match(const Side& hypothesis, const Side& reference, int orders, std::vector<int32_t>& counts,
           double* out) {
  counts.assign(counts.size(), 0);
  for (const uint32_t ngram : reference.ngrams) ++counts[ngram];
  const uint32_t* ngram = hypothesis.ngrams.data();
  for (int order = 1; order <= orders; ++order, out += kNumbers) {
    const size_t available = scores::ngrams_in(reference.symbols.size(), order);
    const size_t given = scores::ngrams_in(hypothesis.symbols.size(), order);
    int64_t matched = 0;
    for (size_t i = 0; i < given; ++i, ++ngram) {
      if (counts[*ngram] > 0) {
        --counts[*ngram];
        ++matched;
      }
    }
    // If the reference is too short for an order, the hypothesis' n-grams of that order do not
    // count.
    out[kHypothesis] = available > 0 ? static_cast<double>(given) : 0;
    out[kReference] = static_cast<double>(available);
    out[kMatched] = static_cast<double>(matched);
  }
}

template <class Real>
Metric::Sample f_score(const Real* sums, const ChrfOptions& options) {
  constexpr auto kEpsilon = static_cast<Real>(1e-16);
  const auto factor = static_cast<Real>(static_cast<double>(options.beta) * options.beta);
  const Real both = 1 + factor;
  Real precision = 0, recall = 0, smoothed = 0;
  int orders = 0;
  bool any = false;
  for (int order = 0; order < options.char_order + options.word_order; ++order, sums += kNumbers) {
    const bool has_hypothesis = sums[kHypothesis] > 0;
    const bool has_reference = sums[kReference] > 0;
    const Real p = has_hypothesis ? sums[kMatched] / sums[kHypothesis] : kEpsilon;
    const Real r = has_reference ? sums[kMatched] / sums[kReference] : kEpsilon;
    const Real divisor = factor * p + r;
    smoothed += divisor > 0 ? both * p * r / divisor : kEpsilon;
    any = any || has_hypothesis || has_reference;
    if (!has_hypothesis || !has_reference) continue;
    precision += p;
    recall += r;
    ++orders;
  }
  if (options.eps_smoothing) {
    const auto all = static_cast<Real>(options.char_order + options.word_order);
    return {static_cast<double>(100 * smoothed / all), any};
  }
  if (orders > 0) {
    precision /= static_cast<Real>(orders);
    recall /= static_cast<Real>(orders);
  }
  if (precision + recall == 0) return {0, /*single=*/false};
  Real score = both * precision * recall;
  score /= factor * precision + recall;
  return {static_cast<double>(100 * score), true};
}

}  // namespace

void ChrfOptions::validate(const OptionReport& report) const {
  report.expect(char_order >= 1 && char_order <= kMostOrder, "char_order", "must be in [1, ",
                kMostOrder, "], got ", char_order, '.');
  report.expect(word_order >= 0 && word_order <= kMostOrder, "word_order", "must be in [0, ",
                kMostOrder, "], got ", word_order, '.');
  report.expect(beta >= 1 && beta <= kMostBeta, "beta", "must be in [1, ", kMostBeta, "], got ",
                beta, '.');
}

Chrf::Chrf(ChrfOptions options) : options_(options) { options_.validate(); }

std::string Chrf::name() const {
  return concat("chrF", options_.beta, std::string(static_cast<size_t>(options_.word_order), '+'));
}

std::string Chrf::signature() const {
  return concat("case:", options_.lowercase ? "lc" : "mixed",
                "|eff:", options_.eps_smoothing ? "no" : "yes", "|nc:", options_.char_order,
                "|nw:", options_.word_order, "|space:", options_.whitespace ? "yes" : "no");
}

size_t Chrf::width() const {
  return kNumbers * static_cast<size_t>(options_.char_order + options_.word_order);
}

void Chrf::measure(std::span<const std::string_view> hypotheses,
                   std::span<const std::string> references, double* out) const {
  const size_t lines = hypotheses.size() + references.size();
  std::vector<Symbols> texts;  // the words are parts of them
  texts.reserve(lines);
  std::vector<Side> characters(lines), words(lines);
  scores::WordIds word_ids;
  size_t most_characters = 0, most_words = 0;
  for (size_t i = 0; i < lines; ++i) {
    texts.push_back(scores::symbols_of(
        i < references.size() ? references[i] : hypotheses[i - references.size()],
        options_.lowercase));
    characters[i].symbols = options_.whitespace ? texts[i] : without_space(texts[i]);
    most_characters += characters[i].symbols.size();
    if (options_.word_order == 0) continue;
    words[i].symbols = word_ids.number(words_of(texts[i]));
    most_words += words[i].symbols.size();
  }
  scores::NgramIds character_ids(most_characters, options_.char_order);
  scores::NgramIds ids_of_words(most_words, options_.word_order);
  for (Side& side : characters) side.ngrams = character_ids.list(side.symbols);
  for (Side& side : words) side.ngrams = ids_of_words.list(side.symbols);

  std::vector<int32_t> character_counts(character_ids.size()), word_counts(ids_of_words.size());
  std::vector<double> numbers(width());
  for (size_t h = references.size(); h < lines; ++h, out += width()) {
    double best = -1;
    for (size_t r = 0; r < references.size(); ++r) {
      match(characters[h], characters[r], options_.char_order, character_counts, numbers.data());
      match(words[h], words[r], options_.word_order, word_counts,
            numbers.data() + kNumbers * static_cast<size_t>(options_.char_order));
      if (const double f = score(numbers.data()); f > best) {
        best = f;
        std::copy(numbers.begin(), numbers.end(), out);
      }
    }
  }
}

double Chrf::score(const double* sums) const { return f_score(sums, options_).score; }
Metric::Sample Chrf::score(const float* sums) const { return f_score(sums, options_); }

ChrfScore corpus_chrf(const std::vector<std::string>& hypotheses,
                      const std::vector<std::string>& references, const ChrfOptions& options) {
  const Chrf metric(options);
  const Translations translations = one_system("chrf", hypotheses, references);
  return {metric.score(SentenceStatistics(metric, translations).sums(0).data()), metric.name(),
          full_signature(metric, translations.reference_count())};
}

std::string ChrfScore::str() const {
  return concat(name, '|', signature, " = ", scores::fixed(score, 2));
}

}  // namespace tapestry
