// Sequences of different lengths without padding: they lie end to end in the rows of one batch
// element, (1, N, ...), and attention lets each see only itself.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"

namespace tapestry {

struct Sequences {
  Tensor starts = {};     ///< (S + 1) int32: sequence s is rows [starts[s], starts[s + 1])
  Tensor positions = {};  ///< (1, N) int32: the place of each row in its sequence
  int64_t longest = 0;    ///< rows of the longest one

  /// `lengths`: rows of each, at least 1. Throws Error(kShape) otherwise, and without any.
  static Sequences of_lengths(std::span<const int32_t> lengths, Device device = {});

  bool defined() const { return starts.defined(); }
  int64_t count() const { return starts.numel() - 1; }
  int64_t rows() const { return positions.numel(); }
};

}  // namespace tapestry
