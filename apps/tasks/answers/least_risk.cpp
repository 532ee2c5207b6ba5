#include "apps/tasks/answers/least_risk.h"

#include <algorithm>
#include <map>

#include "apps/tasks/answers/answered_text.h"
#include "data/scores/bleu.h"
#include "data/scores/chrf.h"
#include "data/scores/draws/expected_scores.h"

namespace tapestry {
namespace {

std::vector<double> utilities(const DrawnTexts& drawn, MbrUtility utility) {
  switch (utility) {
    case MbrUtility::kChrf:
      return expected_chrf(drawn);
    case MbrUtility::kBleu:
      return expected_bleu(drawn);
    case MbrUtility::kChrfPairs:
      return mean_scores(Chrf(), drawn);
    case MbrUtility::kBleuPairs:
      return mean_scores(Bleu({.smooth = "add-k"}), drawn);
  }
  return {};
}

}  // namespace

SearchOptions drawing_options(const SearchOptions& options) {
  if (options.mbr_samples == 0) return options;
  SearchOptions drawing = options;
  drawing.do_sample = true;
  drawing.num_beams = 1;
  drawing.n_best = options.mbr_samples;
  return drawing;
}

std::vector<Hypothesis> best_translations(std::vector<Hypothesis> found, int64_t n,
                                          const SearchOptions& options,
                                          const Tokenizer& tokenizer) {
  if (options.mbr_samples > 0) {
    return least_risk(std::move(found), n, options.mbr_utility, tokenizer);
  }
  return best_texts(std::move(found), n,
                    [&](const Hypothesis& one) { return translated_text(tokenizer, one); });
}

std::vector<Hypothesis> least_risk(std::vector<Hypothesis> draws, int64_t n, MbrUtility utility,
                                   const Tokenizer& tokenizer) {
  DrawnTexts drawn;
  std::vector<Hypothesis> distinct;
  std::map<std::string, size_t> places;
  for (Hypothesis& draw : draws) {  // the most probable first
    const std::string text = translated_text(tokenizer, draw);
    const auto [place, fresh] = places.emplace(text, distinct.size());
    if (fresh) {
      drawn.texts.push_back(text);
      drawn.times.push_back(0);
      distinct.push_back(std::move(draw));
    }
    ++drawn.times[place->second];
  }
  const std::vector<double> found = utilities(drawn, utility);
  for (size_t i = 0; i < distinct.size(); ++i) distinct[i].score = found[i];
  std::ranges::stable_sort(distinct, std::greater(), &Hypothesis::score);
  if (std::ssize(distinct) > n) distinct.resize(static_cast<size_t>(n));
  return distinct;
}

}  // namespace tapestry
