// How a matrix product is cut into tiles for the threads. Only its shape decides, so that results
// do not depend on the number of threads. Used by all kernels built on single-threaded products.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tapestry::kernels {

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

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

/// As many tiles as keep about eight threads busy, but none too small to run near full speed;
/// `batch` products of that shape run side by side. Cuts k if cuts of m and n give too few tiles.
TileGrid tile_grid(int64_t m, int64_t n, int64_t k, int64_t batch, bool may_cut_k);

}  // namespace tapestry::kernels
