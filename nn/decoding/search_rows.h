// Shared by greedy search, sampling and beam search: prompts, and the candidates of each row.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "nn/decoding/decoding.h"
#include "nn/decoding/logits_rules.h"

namespace tapestry {

/// The logit of a token that cannot follow.
inline constexpr double kImpossible = -std::numeric_limits<double>::infinity();

/// A continuation of one row by one token.
struct Candidate {
  double log_probability;  ///< of all generated tokens
  int32_t beam;
  int32_t token;
  bool forced = false;  ///< another token would have followed, were it not for the limit
  /// Best first; ties go to the lower beam, then the lower id.
  bool operator<(const Candidate& other) const {
    if (log_probability != other.log_probability) return log_probability > other.log_probability;
    if (beam != other.beam) return beam < other.beam;
    return token < other.token;
  }
};

/// One row of a step.
struct SearchRow {
  Context context;
  double log_probability = 0;  ///< of context.generated
  int32_t beam = 0;
  int64_t sequence_id = 0;
  std::optional<uint64_t> seed = {};     ///< of SearchTask::seeds
  int32_t only = -1;                     ///< the one token that may follow; -1: any
  std::span<const int32_t> chosen = {};  ///< of SearchTask::chosen; none: any may follow
  std::vector<int32_t> wanted = {};      ///< tokens that go on with a phrase of the constraints
};

/// The candidates of each row of logits (R, V), best first: the `count` most probable allowed
/// tokens, or the drawn one (do_sample). There is at least one: eos if nothing else is allowed. The
/// wanted tokens of a row stand behind them, if they are not among them.
/// `candidates` is reused from step to step.
void find_candidates(const Tensor& logits, const std::vector<SearchRow>& rows,
                     const SearchTask& task, const SearchOptions& options, size_t count,
                     std::vector<std::vector<Candidate>>& candidates);

/// Finds the same for the rows that the model has after these tokens, but without their logits, if
/// the model can do so and only the best is needed. Otherwise returns false and appends nothing.
/// eos has log-probability -inf if it follows because all tokens are banned.
bool find_best(NextToken& model, const std::vector<int32_t>& tokens,
               const std::vector<SearchRow>& rows, const SearchTask& task,
               const SearchOptions& options, size_t count,
               std::vector<std::vector<Candidate>>& candidates);

/// A checked task with its defaults filled in. Answers are numbered as in SearchTask::draws.
class Prompts {
 public:
  /// Throws Error(kRuntime) unless the task has one limit >= 1 per sentence and, if it has any, one
  /// non-empty prompt, one prefix below the limit, one source, one sequence id and one list with
  /// eos per sentence. The task must outlive this.
  explicit Prompts(const SearchTask& task);
  std::span<const int32_t> operator[](int64_t answer) const;
  /// Empty if the task has no sources.
  std::span<const int32_t> source(int64_t answer) const;
  /// Empty if the task has no such lists.
  std::span<const int32_t> chosen(int64_t answer) const;
  int64_t sequence_id(int64_t answer) const;
  /// Unset if the task has no seeds.
  std::optional<uint64_t> seed(int64_t answer) const;
  int64_t max_length(int64_t answer) const;
  /// The only token that may be number `length`, from 1, of an output: the prefix's, or eos if the
  /// limit forces it. -1: any may.
  int32_t only(int64_t answer, int64_t length) const;

 private:
  size_t sentence_of(int64_t answer) const { return static_cast<size_t>(answer / task_.draws); }

  const SearchTask& task_;
  std::vector<int32_t> bos_;
};

}  // namespace tapestry
