#include <algorithm>

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

// Sorts the candidates of a sentence's beams into finished hypotheses and the beams of the next
// step, best first. `length` counts the tokens, including the candidate's. Returns none if the
// search is decided.
std::vector<Candidate> advance(LiveSentence& sentence, std::span<const std::vector<Candidate>> rows,
                               int64_t length, const SearchTask& task,
                               const SearchOptions& options) {
  std::vector<Candidate> candidates, next;
  for (const auto& row : rows) candidates.insert(candidates.end(), row.begin(), row.end());
  std::sort(candidates.begin(), candidates.end());
  const bool at_limit = length >= sentence.max_length;
  for (size_t rank = 0; rank < candidates.size(); ++rank) {
    const Candidate& c = candidates[rank];
    const bool in_beam = static_cast<int64_t>(rank) < options.num_beams;
    const bool ends = task.is_end(c.token);
    if (at_limit || (ends && in_beam)) {
      add_finished(
          sentence,
          hypothesis_of(sentence.beams[static_cast<size_t>(c.beam)], c, length, task, options),
          options);
    } else if (!ends && static_cast<int64_t>(next.size()) < options.num_beams) {
      next.push_back(c);
    }
  }
  const double best_live = next.empty() ? kImpossible : next[0].log_probability;
  if (!is_decided(sentence, best_live, length, options)) return next;
  if (std::ssize(sentence.finished) > options.n_best) {
    sentence.finished.resize(static_cast<size_t>(options.n_best));
  }
  return {};
}

}  // namespace

void beam_search(NextToken& model, const SearchTask& task, const SearchOptions& options,
                 const SearchQueue& queue) {
  options.validate();
  check(!options.do_sample, "beam_search", "expected a search without do_sample.");
  // Each of k beams may end with each of the end tokens, and k candidates must remain to continue.
  const int64_t count = (2 + std::ssize(task.more_ends)) * options.num_beams;
  run_search(model, task, options, static_cast<size_t>(count), queue,
             [&](LiveSentence& sentence, std::span<const std::vector<Candidate>> rows,
                 int64_t length) { return advance(sentence, rows, length, task, options); });
}

std::vector<std::vector<Hypothesis>> beam_search(NextToken& model, const SearchTask& task,
                                                 const SearchOptions& options) {
  return collect(task, [&](const SearchQueue& queue) { beam_search(model, task, options, queue); });
}

}  // namespace tapestry
