// How a matrix product is cut into tiles for the threads. Only its shape decides, so that results
// do not depend on the number of threads. Used by all kernels built on single-threaded products.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/kernels/range.h"

namespace tapestry::kernels {

/// [0, size) in pieces of `length`, the last of which may be shorter.
struct Cut {
  int64_t size = 0;
  int64_t length = 1;

  int64_t count() const { return (size + length - 1) / length; }
  Range operator[](int64_t i) const { return {i * length, std::min(size, (i + 1) * length)}; }
};

/// The cut of an (m, n) product with inner size k. If k has several pieces, each gives a partial
/// product, and these are added in order.
struct TileGrid {
  Cut m, n, k;

  int64_t tiles() const { return m.count() * n.count() * k.count(); }
};

/// A smaller tile is not worth a thread.
inline constexpr double kLeastTileFlops = 1 << 20;

/// Tile sizes for a kind of processor.
struct TileSizes {
  int64_t full_rows, full_cols;  ///< of a tile that runs near the peak
  int64_t half;                  ///< taken if there would be too few of those
  int64_t most, enough;          ///< tiles
};
/// Measured on Zen 4: a tile of 256 x 256 runs within 2 % of the peak, 128 x 256 within 5 %,
/// 64 x 256 within 10 %, and handing a tile to a thread costs as much as 0.2 MFLOP.
inline constexpr TileSizes kSquareTiles = {256, 256, 128, 16, 8};
/// Measured on Sapphire Rapids, two cores: training steps are 1 to 9 % faster than with square
/// tiles. Fewer tiles are enough, which leaves cores of a larger machine idle.
inline constexpr TileSizes kTallTiles = {512, 1024, 256, 16, 4};
/// Sizes for this processor.
const TileSizes& tile_sizes();

/// As many tiles as are enough, but none too small to run near full speed; `batch` products of that
/// shape run side by side. Cuts k if cuts of m and n give too few tiles.
TileGrid tile_grid(int64_t m, int64_t n, int64_t k, int64_t batch, bool may_cut_k,
                   const TileSizes& sizes = tile_sizes());

}  // namespace tapestry::kernels
