#include <algorithm>
#include <functional>
#include <map>

#include "core/base/error.h"
#include "nn/decoding/decoding.h"
#include "nn/decoding/search_loop.h"

namespace tapestry {
namespace {

// Number of finished hypotheses that a search needs before it may stop. A search that waits until
// nothing can win needs only as many as it returns.
int64_t finished_wanted(const SearchOptions& options) {
  return options.early_stopping == EarlyStopping::kNever ? options.n_best : options.num_beams;
}

void add_finished(LiveSentence& sentence, Hypothesis hypothesis, const SearchOptions& options) {
  auto better = [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; };
  auto& list = sentence.finished;
  list.insert(std::upper_bound(list.begin(), list.end(), hypothesis, better),
              std::move(hypothesis));
  if (std::ssize(list) > finished_wanted(options)) list.pop_back();
}

// True if the search ends here: its best live beam has log-probability `best_live` and `length`
// tokens. A log-probability can only fall, and its length penalty is most favourable at the
// shortest or the longest of the remaining lengths.
bool is_decided(const LiveSentence& sentence, double best_live, int64_t length,
                const SearchOptions& options) {
  if (best_live == kImpossible) return true;
  if (std::ssize(sentence.finished) < finished_wanted(options)) return false;
  double bound = 0;
  switch (options.early_stopping) {
    case EarlyStopping::kTrue:
      return true;
    case EarlyStopping::kFalse:
      bound = normalized_score(best_live, length, options);
      break;
    case EarlyStopping::kNever:
      bound = std::max(normalized_score(best_live, length + 1, options),
                       normalized_score(best_live, sentence.max_length, options));
      break;
  }
  return sentence.finished.back().score >= bound;
}

// Hypotheses with tokens of phrases have paid for them, so that they would lose to those without:
// they compete only with those that have as many. Each such bank gives its best candidate first,
// then its second best, the bank with most tokens before the others.
class Banks {
 public:
  Banks(const LiveSentence& sentence, const SearchTask& task) : sentence_(sentence), task_(task) {}

  // A hypothesis that would end has said all: while a phrase is missing it may only go on with one,
  // and only if no other hypothesis has more of them, since a phrase at the end is rarely right.
  std::vector<std::vector<Candidate>> open(std::span<const std::vector<Candidate>> rows) const {
    std::vector<std::vector<Candidate>> kept(rows.begin(), rows.end());
    int64_t most = 0;
    for (size_t b = 0; b < rows.size(); ++b) most = std::max(most, tracker(b).tokens());
    for (size_t b = 0; b < rows.size(); ++b) {
      if (tracker(b).all_met()) continue;
      const bool said_all = task_.is_end(rows[b].at(0).token);
      const bool goes_on = sentence_.finished.empty() && tracker(b).tokens() == most;
      std::vector<int32_t> wanted;
      if (said_all && goes_on) wanted = tracker(b).next();
      std::erase_if(kept[b], [&](const Candidate& c) {
        return said_all ? !std::ranges::binary_search(wanted, c.token) : task_.is_end(c.token);
      });
    }
    return kept;
  }

  // Once a hypothesis has ended, those that lack a phrase and have less probability already could
  // win only by their length, which loops make long: they are left out.
  void drop_hopeless(std::vector<Candidate>& candidates) const {
    if (sentence_.finished.empty()) return;
    const double best =
        std::ranges::max(sentence_.finished, {}, &Hypothesis::log_probability).log_probability;
    std::erase_if(candidates, [&](const Candidate& c) {
      return c.log_probability <= best && !with(c).all_met();
    });
  }

  std::vector<Candidate> in_turn(const std::vector<Candidate>& best_first) const {
    std::map<int64_t, std::vector<Candidate>, std::greater<>> banks;
    size_t longest = 0;
    for (const Candidate& c : best_first) {
      std::vector<Candidate>& bank = banks[with(c).tokens()];
      bank.push_back(c);
      longest = std::max(longest, bank.size());
    }
    std::vector<Candidate> ordered;
    for (size_t rank = 0; rank < longest; ++rank) {
      for (const auto& [tokens, bank] : banks) {
        if (rank < bank.size()) ordered.push_back(bank[rank]);
      }
    }
    return ordered;
  }

  std::vector<size_t> unmet(const Candidate& c) const { return with(c).unmet(); }

 private:
  const ConstraintTracker& tracker(size_t beam) const { return *sentence_.beams[beam].constraints; }
  ConstraintTracker with(const Candidate& c) const {
    ConstraintTracker longer = tracker(static_cast<size_t>(c.beam));
    if (!task_.is_end(c.token)) longer.add(c.token);
    return longer;
  }

  const LiveSentence& sentence_;
  const SearchTask& task_;
};

// A place for each bank, besides those of a search without phrases.
int64_t places_for(const Phrases& phrases, const SearchOptions& options) {
  constexpr int64_t kMostPlaces = 48;
  const int64_t wanted = options.num_beams + constraint_tokens(phrases);
  return std::max(options.num_beams, std::min(kMostPlaces, wanted));
}

std::vector<Candidate> best_first(std::span<const std::vector<Candidate>> rows) {
  std::vector<Candidate> candidates;
  for (const auto& row : rows) candidates.insert(candidates.end(), row.begin(), row.end());
  std::sort(candidates.begin(), candidates.end());
  return candidates;
}

// Sorts candidates, in the order in which they take places, into finished hypotheses and the beams
// of the next step. `length` counts the tokens, including the candidate's. Returns none if the
// search is decided.
std::vector<Candidate> take_places(LiveSentence& sentence, const std::vector<Candidate>& candidates,
                                   int64_t places, int64_t length, const SearchTask& task,
                                   const SearchOptions& options) {
  std::vector<Candidate> next;
  const bool at_limit = length >= sentence.max_length;
  double best_live = kImpossible;
  for (size_t rank = 0; rank < candidates.size(); ++rank) {
    const Candidate& c = candidates[rank];
    const bool ends = task.is_end(c.token);
    if (at_limit || (ends && static_cast<int64_t>(rank) < places)) {
      add_finished(
          sentence,
          hypothesis_of(sentence.beams[static_cast<size_t>(c.beam)], c, length, task, options),
          options);
    } else if (!ends && std::ssize(next) < places) {
      best_live = std::max(best_live, c.log_probability);
      next.push_back(c);
    }
  }
  if (!is_decided(sentence, best_live, length, options)) return next;
  if (std::ssize(sentence.finished) > options.n_best) {
    sentence.finished.resize(static_cast<size_t>(options.n_best));
  }
  return {};
}

std::vector<Candidate> advance_with_phrases(LiveSentence& sentence,
                                            std::span<const std::vector<Candidate>> rows,
                                            int64_t length, const SearchTask& task,
                                            const SearchOptions& options) {
  const Banks banks(sentence, task);
  std::vector<Candidate> candidates = best_first(banks.open(rows));
  banks.drop_hopeless(candidates);
  const int64_t places = places_for(sentence.beams[0].constraints->phrases(), options);
  std::vector<Candidate> next =
      take_places(sentence, banks.in_turn(candidates), places, length, task, options);
  if (!next.empty() || !sentence.finished.empty()) return next;
  // The limit, or a lack of allowed tokens: the hypothesis with most of the phrases.
  const Candidate last = banks.in_turn(best_first(rows)).at(0);
  sentence.finished.push_back(
      hypothesis_of(sentence.beams[static_cast<size_t>(last.beam)], last, length, task, options));
  sentence.finished.back().unmet = banks.unmet(last);
  return {};
}

}  // namespace

size_t candidates_of_beams(const SearchTask& task, int64_t beams) {
  // Each of k beams may end with each of the end tokens, and k candidates must remain to continue.
  return static_cast<size_t>((2 + std::ssize(task.more_ends)) * beams);
}

std::vector<Candidate> advance_beams(LiveSentence& sentence,
                                     std::span<const std::vector<Candidate>> rows, int64_t length,
                                     const SearchTask& task, const SearchOptions& options) {
  if (sentence.has_constraints()) {
    return advance_with_phrases(sentence, rows, length, task, options);
  }
  return take_places(sentence, best_first(rows), options.num_beams, length, task, options);
}

void beam_search(NextToken& model, const SearchTask& task, const SearchOptions& options,
                 const SearchQueue& queue) {
  options.validate();
  check(!options.do_sample, "beam_search", "expected a search without do_sample.");
  run_search(model, task, options, candidates_of_beams(task, options.num_beams), queue,
             [&](LiveSentence& sentence, std::span<const std::vector<Candidate>> rows,
                 int64_t length) { return advance_beams(sentence, rows, length, task, options); });
}

std::vector<std::vector<Hypothesis>> beam_search(NextToken& model, const SearchTask& task,
                                                 const SearchOptions& options) {
  return collect(task, [&](const SearchQueue& queue) { beam_search(model, task, options, queue); });
}

}  // namespace tapestry
