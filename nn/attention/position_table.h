// Tables with a row for each position.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "autograd/sequences.h"
#include "nn/layers/parameters.h"
#include "nn/layers/rope_frequencies.h"

namespace tapestry {

/// Row p belongs to position p. Learned rows are a parameter and have an end. Rows of a formula
/// (sinusoidal or rotary positions) have none: for a longer sequence the table is made again with
/// more rows, and the old rows keep their bits. Copies share the table, and threads may ask at
/// once.
class PositionTable {
 public:
  /// The first `rows` rows.
  using Formula = std::function<Tensor(int64_t rows)>;

  PositionTable() = default;  ///< without positions
  explicit PositionTable(const Var& learned);
  /// Makes `rows` rows at once.
  PositionTable(int64_t rows, Formula formula);

  bool defined() const { return state_ != nullptr; }
  /// A table of at least `count` rows; undefined without positions. Throws Error(kData) if learned
  /// rows end before.
  Var rows(int64_t count) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Positions of a batch's tokens.
struct Positions {
  Positions(int64_t first = 0) : first(first) {}  // NOLINT: a number stands for all rows
  /// `firsts` (B) int32, each at most `most`.
  Positions(Tensor firsts, int64_t most) : first(most), firsts(std::move(firsts)) {}
  /// Those of sequences end to end; of undefined ones as Positions(0).
  Positions(const Sequences& sequences)  // NOLINT
      : each(sequences.positions), longest(sequences.longest) {}

  /// The rows that a table of positions needs for `length` tokens of each row.
  int64_t needed(int64_t length) const { return each.defined() ? longest : first + length; }

  int64_t first = 0;    ///< of the first token of all rows, or the largest of `firsts`
  Tensor firsts = {};   ///< (B) of the first token of each row, or undefined
  Tensor each = {};     ///< (B, T) of each token, or undefined; in place of both
  int64_t longest = 0;  ///< more than any of `each`
};

/// The table of rope() for heads of `size` (nn/layers/layers.h, rope_table), on the device of
/// `scope`.
PositionTable rotary_positions(int64_t rows, int64_t size, const RopeFrequencies& w,
                               const ParamScope& scope);

}  // namespace tapestry
