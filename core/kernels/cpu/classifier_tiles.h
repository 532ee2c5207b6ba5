// The products of the fused classifier and cross-entropy on tiles: the weight is packed once a call
// and the rows once a chunk, for all blocks that meet them.
#pragma once

#include <optional>

#include "core/kernels/cpu/frozen_tiles.h"
#include "core/kernels/cpu/tile_operand.h"

namespace tapestry::kernels {

/// Products of x and a weight of T; needs runs_on_tiles<T>(). Ranges of rows and classes begin at
/// multiples of kTileDepth.
template <class T>
class ClassifierTiles {
 public:
  /// `gradients`: gradients() will be called. A frozen weight is packed piece by piece, whenever it
  /// is needed; any other by pack_weight().
  ClassifierTiles(int64_t classes, int64_t in, bool gradients, const FrozenMatrix* frozen);

  /// weight (classes, in), and x (rows, in) until the next call. Both run on all threads.
  void pack_weight(const T* weight);
  void pack_rows(const T* x, int64_t rows);

  /// z (rows.size(), classes.size()) = x W^T, on the calling thread.
  void logits(Range rows, Range classes, float* z) const;

  struct Gradients {
    const float* dz;    ///< (rows.size(), classes.size())
    float* dx;          ///< (rows.size(), in)
    bool add_dx;        ///< add to dx
    float* d_weight;    ///< (classes.size(), in), or null
    bool add_d_weight;  ///< add to d_weight
  };
  /// dx (=|+=) dz W and dW (=|+=) dz^T x, on the calling thread.
  void gradients(Range rows, Range classes, const Gradients& args) const;

 private:
  int64_t classes_, in_;
  bool gradients_;
  const FrozenMatrix* frozen_;
  std::optional<TileOperand> weight_for_logits_, weight_for_dx_;
  std::optional<TileOperand> x_for_logits_, x_for_d_weight_;
};

}  // namespace tapestry::kernels
