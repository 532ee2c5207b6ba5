// Products of packed tiles with a frozen matrix, of which each task packs a piece by itself: the
// matrix is never in memory as a whole, and its pieces stay in the cache of their thread.
#pragma once

#include <functional>

#include "core/kernels/cpu/tile_operand.h"
#include "core/kernels/frozen/frozen_matrix.h"

namespace tapestry::kernels {

/// The right operand of a product with some rows and columns of W.
enum class FrozenSide {
  kTransposed,  ///< x W^T: rows of W are columns of the product
  kStraight,    ///< dz W: columns of W are
};

/// Fills a right operand with W[rows, cols]: its length is that of `rows`, or with kStraight of
/// `cols`. Both ranges begin at multiples of kTileDepth. On the calling thread.
void pack_frozen(const FrozenMatrix& w, Range rows, Range cols, FrozenSide side,
                 TileOperand& operand);

/// x W^T of a left operand x (R, K), or with kStraight x W of x (R, N), on all threads. `take`
/// receives the sums as that of a TileProduct.
void multiply_frozen(
    const TileOperand& x, const FrozenMatrix& w, FrozenSide side,
    const std::function<void(Range rows, Range cols, const float* sums, int64_t stride)>& take);

}  // namespace tapestry::kernels
