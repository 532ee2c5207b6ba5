// The loop that every search runs: sentences join, a step feeds a token to each row, and a rule
// selects the rows that continue.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "nn/decoding/search_rows.h"

namespace tapestry {

struct Beam {
  std::vector<int32_t> generated;
  double log_probability;
  std::vector<double> token_log_probabilities = {};   ///< if the task asks for them
  std::optional<ConstraintTracker> constraints = {};  ///< if its sentence has any
};

/// A sentence that is searched, with a row for each beam.
struct LiveSentence {
  int64_t index;  ///< in the task
  int64_t max_length;
  std::vector<Beam> beams;
  std::vector<Hypothesis> finished = {};  ///< best first

  bool has_constraints() const { return beams[0].constraints.has_value(); }
};

/// Decides how a sentence continues: candidates[b] are those of its beam b, and `length` counts the
/// tokens of a hypothesis with one of them. Returns the candidates that become its beams, or none
/// if it is done.
using Advance = std::function<std::vector<Candidate>(
    LiveSentence& sentence, std::span<const std::vector<Candidate>> candidates, int64_t length)>;

/// The rule of beam search.
std::vector<Candidate> advance_beams(LiveSentence& sentence,
                                     std::span<const std::vector<Candidate>> candidates,
                                     int64_t length, const SearchTask& task,
                                     const SearchOptions& options);
/// Candidates that it needs of each row, with so many beams.
size_t candidates_of_beams(const SearchTask& task, int64_t beams);

/// Runs until the queue has no more sentences and all are done. Each row has `count` candidates, or
/// more in steps with constraints.
void run_search(NextToken& model, const SearchTask& task, const SearchOptions& options,
                size_t count, const SearchQueue& queue, const Advance& advance);

/// run_search() on all sentences of the task, whose hypotheses are returned in their order.
std::vector<std::vector<Hypothesis>> collect(const SearchTask& task,
                                             const std::function<void(const SearchQueue&)>& search);

/// The log-probabilities of a beam's tokens when it goes on with this candidate; empty unless the
/// task asks for them.
std::vector<double> token_log_probabilities(const Beam& beam, const Candidate& next,
                                            const SearchTask& task);

/// The beam with this candidate, whether it is eos or not, as a hypothesis of `length` tokens.
Hypothesis hypothesis_of(const Beam& beam, const Candidate& last, int64_t length,
                         const SearchTask& task, const SearchOptions& options);

}  // namespace tapestry
