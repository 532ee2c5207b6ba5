// The products of the fused classifier and cross-entropy on tiles: the weight is packed once a call
// and the rows once a chunk, for all blocks that meet them.
#pragma once

#include <optional>

#include "core/kernels/cpu/tile_operand.h"

namespace tapestry::kernels {

/// Products of x and a weight of T; needs runs_on_tiles<T>(). Ranges of rows and classes begin at
/// multiples of kTileDepth.
template <class T>
class ClassifierTiles {
 public:
  /// `gradients`: gradients() will be called.
  ClassifierTiles(int64_t classes, int64_t in, bool gradients);

  /// weight (classes, in), and x (rows, in) until the next call. Both run on all threads.
  void pack_weight(const T* weight);
  void pack_rows(const T* x, int64_t rows);

  /// z (rows.size(), classes.size()) = x W^T, on the calling thread.
  void logits(Range rows, Range classes, float* z) const;

  /// Of dz, the gradient of the logits (rows.size(), classes.size()), on the calling thread:
  /// dx (rows.size(), in) (=|+=) dz W; and unless `transposed` is null, keeps dz there for
  /// weight_gradient(), from row `row` of all that it has room for: a left operand (classes, rows).
  void row_gradients(Range rows, Range classes, const float* dz, float* dx, bool add,
                     TileOperand* transposed, int64_t row) const;
  /// dW (classes, in) (=|+=) dz^T x of the rows whose dz is kept, on the calling thread.
  void weight_gradient(Range rows, const TileOperand& dz, float* d_weight, bool add) const;
  /// The same where these are all rows: each sum is rounded once.
  void whole_weight_gradient(Range rows, const TileOperand& dz, BFloat16* d_weight) const;

 private:
  int64_t classes_, in_;
  bool gradients_;
  TileOperand weight_for_logits_;
  std::optional<TileOperand> weight_for_dx_;
  std::optional<TileOperand> x_for_logits_, x_for_d_weight_;
};

}  // namespace tapestry::kernels
