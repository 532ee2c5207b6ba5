// The classifier of a search in which each sentence may write only some tokens: a shortlist.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "nn/layers/layers.h"

namespace tapestry {

/// Multiplies by the rows that any of the searched sentences may write, which are gathered when
/// sentences join. A row of hidden states sees only the tokens of its own sentence, in their order,
/// so that its result does not depend on the sentences beside it, bit by bit.
class ChosenWords {
 public:
  /// The tokens of each sentence, ascending: SearchTask::chosen. Both must outlive this.
  ChosenWords(const Linear& classifier, const std::vector<std::vector<int32_t>>& lists)
      : classifier_(classifier), lists_(lists) {}

  /// A row for each of these sentences behind the rows that are there.
  void add(const std::vector<int64_t>& sentences);
  /// New row i is old row rows[i].
  void select(const std::vector<int32_t>& rows);

  /// Of hidden states (R, D): logits (R, V) in host memory, -inf where a row may not write.
  Tensor logits(const Var& hidden) const;
  /// NextToken::best() and largest(), for packed matrices.
  Tensor best(const Var& hidden, int64_t count, const std::vector<int32_t>& banned) const;
  Tensor largest(const Var& hidden, const std::vector<int32_t>& banned) const;

  /// Rows of the classifier that a product now has.
  int64_t gathered() const { return std::ssize(tokens_); }

 private:
  void gather();
  std::vector<std::span<const int32_t>> places_of_rows() const;
  std::vector<int32_t> places_of(const std::vector<int32_t>& tokens) const;

  const Linear& classifier_;
  const std::vector<std::vector<int32_t>>& lists_;
  std::vector<int64_t> rows_;    // the sentence of each row
  std::vector<int32_t> tokens_;  // of the gathered rows, ascending
  std::vector<Linear> part_;     // the gathered rows; one, or none before add()
  std::unordered_map<int64_t, std::vector<int32_t>> places_;  // of a sentence's tokens in tokens_
};

}  // namespace tapestry
