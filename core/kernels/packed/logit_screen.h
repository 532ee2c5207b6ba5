// The largest logit without most of the work: integers of eight bits rule out nearly all tokens,
// and float32 decides among those that are left.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "core/kernels/packed/packed_matrix.h"

namespace tapestry {

/// W (N, K) of a classifier in int8, with what rounding can change. Of x ~ x' and a row w ~ w',
/// |x.w - x'.w'| <= |x - x'| |w| + |x'| |w - w'| in Euclidean norms (Cauchy and Schwarz), so that
/// only a few logits can be the largest.
class LogitScreen {
 public:
  /// `exact` holds float32 or bfloat16.
  explicit LogitScreen(const PackedMatrix& exact);
  /// The screen of the given rows of another one's matrix.
  LogitScreen(const LogitScreen& all, std::span<const int32_t> rows);

  const PackedMatrix& rounded() const { return rounded_; }
  /// Bytes of its memory.
  int64_t bytes() const { return rounded_.bytes() + 2 * 4 * rounded_.rows(); }

  struct Search {
    int64_t most = 0;    ///< tokens
    double softcap = 0;  ///< of the logits: monotone, but it makes some of them equal
  };
  /// The tokens, ascending, that may have the largest of the logits (N) of x (K), of which `z` are
  /// the rounded ones, without the softcap. Empty if that cannot be decided: not all numbers are
  /// finite, the best one is the lowest float, or more than `most` tokens are left.
  std::vector<int32_t> candidates(const float* x, const float* z, const Search& search) const;

 private:
  PackedMatrix rounded_;
  Scratch<float> norms_, errors_;  // |w| and |w - w'|, never below them
};

}  // namespace tapestry
