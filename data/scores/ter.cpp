#include "data/scores/ter.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "data/scores/edits.h"
#include "data/scores/ngrams.h"
#include "data/scores/words.h"

namespace tapestry {
namespace {

// The numbers of a sentence: the edits, and the mean length of the references.
template <class Real>
Metric::Sample rate(const Real* sums) {
  if (sums[1] > 0) return {static_cast<double>(100 * (sums[0] / sums[1])), true};
  return {sums[0] > 0 ? 100.0 : 0.0, /*single=*/false};
}

}  // namespace

std::string Ter::signature() const {
  const auto yes = [](bool value) { return value ? "yes" : "no"; };
  return concat("case:", options_.case_sensitive ? "mixed" : "lc",
                "|tok:tercom|norm:", yes(options_.normalized), "|punct:", yes(!options_.no_punct),
                "|asian:", yes(options_.asian_support));
}

void Ter::measure(std::span<const std::string_view> hypotheses,
                  std::span<const std::string> references, double* out) const {
  std::vector<scores::Symbols> texts;  // the words are parts of them
  texts.reserve(hypotheses.size() + references.size());
  scores::WordIds word_ids;
  const auto split = [this](std::string_view line) { return tercom_words(line, options_); };
  const auto words_of = [&](std::string_view line) {
    texts.push_back(split(line));
    return word_ids.number(scores::split_words(texts.back()));
  };
  std::vector<scores::Symbols> reference_words;
  double length = 0;
  for (const std::string& line : references) {
    // sacreBLEU splits references a second time, which parts "it's" before other white space than a
    // space.
    reference_words.push_back(
        words_of(options_.normalized ? words_of_line(split, line) : std::string(line)));
    length += static_cast<double>(reference_words.back().size());
  }
  length /= static_cast<double>(references.size());
  for (const std::string_view line : hypotheses) {
    const scores::Symbols words = words_of(line);
    int64_t fewest = std::numeric_limits<int64_t>::max();
    for (const scores::Symbols& reference : reference_words) {
      fewest = std::min(fewest, scores::shift_edits(words, reference));
    }
    *out++ = static_cast<double>(fewest);
    *out++ = length;
  }
}

double Ter::score(const double* sums) const { return rate(sums).score; }
Metric::Sample Ter::score(const float* sums) const { return rate(sums); }

std::vector<Metric::Figure> Ter::figures(const double* sums) const {
  return {{"edits", static_cast<int64_t>(sums[0])}, {"reference_length", sums[1]}};
}

}  // namespace tapestry
