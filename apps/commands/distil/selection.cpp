#include "apps/commands/distil/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "apps/commands/output_file.h"
#include "core/base/error.h"
#include "core/base/progress.h"

namespace tapestry {
namespace {

// The score that translations need, and how many with exactly that score are kept, the first ones.
struct Threshold {
  double score = -std::numeric_limits<double>::infinity();
  int64_t of_equal = std::numeric_limits<int64_t>::max();
};

Threshold threshold_of(const TranslatedPieces& pieces, const SelectionOptions& options) {
  if (options.min_score) return {.score = *options.min_score};
  if (!options.keep) return {};
  std::vector<double> scores;
  pieces.each([&](const TranslatedSource& one) {
    for (const ScoredText& text : one.translations) scores.push_back(text.score);
  });
  const double wanted = std::ceil(*options.keep * static_cast<double>(scores.size()) - 1e-9);
  const auto count = static_cast<int64_t>(wanted);
  if (count <= 0 || count >= std::ssize(scores)) return {};
  const auto last = scores.begin() + (count - 1);
  std::ranges::nth_element(scores, last, std::greater());
  const double score = *last;
  return {score, count - std::count_if(scores.begin(), last, [&](double s) { return s > score; })};
}

// A text as a cell of a TSV.
std::string cell(std::string text, int64_t& spaced) {
  bool changed = false;
  for (char& c : text) {
    if (c != '\t' && c != '\n' && c != '\r') continue;
    c = ' ';
    changed = true;
  }
  spaced += changed ? 1 : 0;
  return text;
}

class SelectionWriter {
 public:
  SelectionWriter(const std::string& folder, bool weighted, const Threshold& threshold)
      : corpus_(concat(folder, '/', kDistilledCorpus)),
        left_out_(concat(folder, '/', kLeftOutFile)),
        weighted_(weighted),
        threshold_(threshold) {}

  void take(const TranslatedSource& one) {
    ++counts_.sources;
    if (one.translations.empty()) leave_out(one.left_out, one.source, one.refused);
    for (const ScoredText& text : one.translations) {
      if (!passes(text.score)) {
        leave_out(LeftOut::kScore, one.source, text);
        continue;
      }
      ++counts_.kept;
      corpus_.stream() << cell(one.source, counts_.spaced) << '\t'
                       << cell(text.text, counts_.spaced);
      if (weighted_) corpus_.stream() << '\t' << fmt::format("{}", one.weight);
      corpus_.stream() << '\n';
    }
  }
  SelectionCounts finish() {
    if (counts_.kept == 0) {
      fail(ErrorKind::kData, "[distil] no translation of ", counts_.sources, " sources is left; ",
           kLeftOutFile, ".part says why.");
    }
    left_out_.finish();
    corpus_.finish();
    return counts_;
  }

 private:
  bool passes(double score) {
    if (score != threshold_.score) return score > threshold_.score;
    return threshold_.of_equal-- > 0;
  }
  void leave_out(LeftOut reason, const std::string& source, const ScoredText& text) {
    ++counts_.left_out[static_cast<size_t>(reason)];
    int64_t spaced = 0;
    left_out_.stream() << name_of(reason) << '\t' << fmt::format("{:.6f}", text.score) << '\t'
                       << cell(source, spaced) << '\t' << cell(text.text, spaced) << '\n';
  }

  OutputFile corpus_, left_out_;
  const bool weighted_;
  Threshold threshold_;
  SelectionCounts counts_;
};

}  // namespace

SelectionCounts write_selection(const TranslatedPieces& pieces, const SelectionOptions& options,
                                bool weighted, const std::string& folder) {
  const Progress progress("choosing translations");
  SelectionWriter writer(folder, weighted, threshold_of(pieces, options));
  pieces.each([&](const TranslatedSource& one) { writer.take(one); });
  return writer.finish();
}

}  // namespace tapestry
