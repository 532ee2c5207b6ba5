#include "data/scores/bleu.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "data/files/utf8.h"
#include "data/scores/ngrams.h"

namespace tapestry {
namespace {

using scores::fixed;
using scores::Symbols;

constexpr size_t kOrders = BleuScore::kOrders;

// The numbers of a sentence.
constexpr size_t kHypothesisTokens = 0;
constexpr size_t kReferenceTokens = 1;
constexpr size_t kCorrect = 2;
constexpr size_t kTotal = kCorrect + kOrders;

const Smoothing* find_smoothing(const std::string& name) {
  const auto* const found = std::find_if(std::begin(kSmoothings), std::end(kSmoothings),
                                         [&](const Smoothing& one) { return name == one.name; });
  return found == std::end(kSmoothings) ? nullptr : found;
}

double logarithm(double value) {
  constexpr double kLogOfZero = -9999999999.0;  // sacreBLEU's value: it makes the score exactly 0
  return value == 0 ? kLogOfZero : std::log(value);
}

double brevity_penalty(int64_t hypothesis, int64_t reference) {
  if (hypothesis >= reference) return 1;
  if (hypothesis == 0) return 0;
  return std::exp(1 - static_cast<double>(reference) / static_cast<double>(hypothesis));
}

struct Formula {
  Smoothing::Kind smoothing;
  double value;  // of the smoothing
  double added;  // to the counts of orders above 1
  bool effective_order;
};

// Precisions are computed in the precision of the sums, logarithms in double, as NumPy does it.
template <class Real>
BleuScore score_of(const Real* sums, const Formula& formula) {
  BleuScore bleu;
  bleu.hypothesis_tokens = static_cast<int64_t>(sums[kHypothesisTokens]);
  bleu.reference_tokens = static_cast<int64_t>(sums[kReferenceTokens]);
  bool any = false;
  for (size_t n = 0; n < kOrders; ++n) {
    bleu.correct[n] = static_cast<int64_t>(sums[kCorrect + n]);
    bleu.total[n] = static_cast<int64_t>(sums[kTotal + n]);
    any |= sums[kCorrect + n] != 0;
  }
  bleu.brevity_penalty = brevity_penalty(bleu.hypothesis_tokens, bleu.reference_tokens);
  if (!any) return bleu;
  size_t orders = kOrders;
  double halvings = 1;
  for (size_t n = 0; n < kOrders; ++n) {
    const auto added = static_cast<Real>(n > 0 ? formula.added : 0);
    const Real correct = sums[kCorrect + n] + added;
    const Real total = sums[kTotal + n] + added;
    if (total == 0) break;
    if (formula.effective_order) orders = n + 1;
    Real precision = 0;
    if (correct != 0) {
      precision = Real{100} * correct / total;
    } else if (formula.smoothing == Smoothing::Kind::kExp) {
      halvings *= 2;
      precision = Real{100} / (static_cast<Real>(halvings) * total);
    } else if (formula.smoothing == Smoothing::Kind::kFloor) {
      precision = static_cast<Real>(100 * formula.value) / total;
    }
    bleu.precisions[n] = static_cast<double>(precision);
  }
  double logarithms = 0;
  for (size_t n = 0; n < orders; ++n) logarithms += logarithm(bleu.precisions[n]);
  bleu.score = bleu.brevity_penalty * std::exp(logarithms / static_cast<double>(orders));
  return bleu;
}

Formula formula_of(const Smoothing& smoothing, double value, bool effective_order) {
  return {smoothing.kind, value, smoothing.kind == Smoothing::Kind::kAddK ? value : 0,
          effective_order};
}

// Removes the white space at its end: a line that ends in "-\n" keeps its hyphen.
std::string_view without_end(std::string_view text) {
  const std::string_view middle = strip(text);
  if (middle.empty()) return {};
  return text.substr(0, static_cast<size_t>(middle.data() - text.data()) + middle.size());
}

// The length of a reference that is closest; among equally close ones the shorter.
size_t closest(const std::vector<size_t>& lengths, size_t length) {
  const auto distance = [&](size_t other) {
    return std::pair(other > length ? other - length : length - other, other);
  };
  return *std::min_element(lengths.begin(), lengths.end(),
                           [&](size_t a, size_t b) { return distance(a) < distance(b); });
}

}  // namespace

void BleuOptions::validate(const OptionReport& report) const {
  const Smoothing* const smoothing = find_smoothing(smooth);
  report.expect(smoothing != nullptr, "smooth", "must be exp, floor, add-k or none, got '", smooth,
                "'.");
  if (!smooth_value.has_value()) return;
  if (smoothing != nullptr) {
    report.expect(smoothing->value.has_value(), "smooth_value",
                  "has an effect with floor and add-k only, got ", *smooth_value, " and ", smooth,
                  '.');
  }
  report.expect(*smooth_value >= 0 && std::isfinite(*smooth_value), "smooth_value",
                "must be at least 0, got ", *smooth_value, '.');
}

Bleu::Bleu(BleuOptions options) : options_(std::move(options)) {
  options_.validate();
  smoothing_ = find_smoothing(options_.smooth);
  smooth_value_ = options_.smooth_value.value_or(smoothing_->value.value_or(0));
  split_ = word_rule(options_.tokenize, options_.spm_model).make(options_.spm_model);
}

std::string Bleu::signature() const {
  return concat("case:", options_.lowercase ? "lc" : "mixed",
                "|eff:", options_.effective_order ? "yes" : "no", "|tok:", options_.tokenize,
                "|smooth:", smoothing_->name,
                smoothing_->value ? concat('[', fixed(smooth_value_, 2), ']') : "");
}

void Bleu::measure(std::span<const std::string_view> hypotheses,
                   std::span<const std::string> references, double* out) const {
  std::vector<Symbols> texts;  // the words are parts of them
  texts.reserve(hypotheses.size() + references.size());
  scores::WordIds word_ids;
  size_t symbols = 0;
  const auto words_of = [&](std::string_view line) {
    const std::string lowered = options_.lowercase ? lower_case(line) : "";
    texts.push_back(split_(without_end(options_.lowercase ? lowered : line)));
    Symbols words = word_ids.number(scores::split_words(texts.back()));
    symbols += words.size();
    return words;
  };
  std::vector<Symbols> hypothesis_words, reference_words;
  for (const std::string& line : references) reference_words.push_back(words_of(line));
  for (const std::string_view line : hypotheses) hypothesis_words.push_back(words_of(line));

  scores::NgramIds ids(symbols, BleuScore::kOrders);
  std::vector<int32_t> available, here;
  std::vector<size_t> lengths;
  for (const Symbols& words : reference_words) {
    lengths.push_back(words.size());
    const std::vector<uint32_t> ngrams = ids.list(words);
    available.resize(ids.size());
    here.assign(ids.size(), 0);
    for (const uint32_t ngram : ngrams) {
      available[ngram] = std::max(available[ngram], ++here[ngram]);
    }
  }
  for (const Symbols& words : hypothesis_words) {
    const std::vector<uint32_t> ngrams = ids.list(words);
    std::fill_n(out, width(), 0);
    out[kHypothesisTokens] = static_cast<double>(words.size());
    out[kReferenceTokens] = static_cast<double>(closest(lengths, words.size()));
    std::vector<int32_t> left = available;  // unmatched n-grams of the references
    const uint32_t* ngram = ngrams.data();
    for (size_t n = 0; n < kOrders; ++n) {
      const size_t total = scores::ngrams_in(words.size(), static_cast<int>(n) + 1);
      for (size_t i = 0; i < total; ++i, ++ngram) {
        if (*ngram < left.size() && left[*ngram] > 0) {
          --left[*ngram];
          ++out[kCorrect + n];
        }
      }
      out[kTotal + n] = static_cast<double>(total);
    }
    out += width();
  }
}

BleuScore Bleu::whole(const double* sums) const {
  return score_of(sums, formula_of(*smoothing_, smooth_value_, options_.effective_order));
}

Metric::Sample Bleu::score(const float* sums) const {
  const Formula formula = formula_of(*smoothing_, smooth_value_, options_.effective_order);
  return {score_of(sums, formula).score, /*single=*/false};
}

// sacreBLEU adds k to whole numbers there, which cuts its fraction off.
double Bleu::shuffled_score(const double* sums) const {
  Formula formula = formula_of(*smoothing_, smooth_value_, options_.effective_order);
  formula.added = std::floor(formula.added);
  return score_of(sums, formula).score;
}

std::vector<Metric::Figure> Bleu::figures(const double* sums) const {
  const BleuScore bleu = whole(sums);
  return {{"precisions", std::vector<double>(bleu.precisions.begin(), bleu.precisions.end())},
          {"brevity_penalty", bleu.brevity_penalty},
          {"hypothesis_tokens", bleu.hypothesis_tokens},
          {"reference_tokens", bleu.reference_tokens}};
}

BleuScore corpus_bleu(const std::vector<std::string>& hypotheses,
                      const std::vector<std::string>& references, const BleuOptions& options) {
  const Bleu metric(options);
  const Translations translations = one_system("bleu", hypotheses, references);
  BleuScore bleu = metric.whole(SentenceStatistics(metric, translations).sums(0).data());
  bleu.sentences = static_cast<int64_t>(hypotheses.size());
  bleu.signature = full_signature(metric, translations.reference_count());
  return bleu;
}

std::string BleuScore::detail() const {
  std::string text;
  for (size_t n = 0; n < kOrders; ++n) {
    if (n > 0) text.push_back('/');
    text += fixed(precisions[n], 1);
  }
  const double ratio = reference_tokens == 0 ? 0.0
                                             : static_cast<double>(hypothesis_tokens) /
                                                   static_cast<double>(reference_tokens);
  return text + concat(" (BP = ", fixed(brevity_penalty, 3), " ratio = ", fixed(ratio, 3),
                       " hyp_len = ", hypothesis_tokens, " ref_len = ", reference_tokens, ')');
}

std::string BleuScore::str() const {
  return concat("BLEU|", signature, " = ", fixed(score, 2), ' ', detail());
}

}  // namespace tapestry
