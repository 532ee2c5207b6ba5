#include "core/kernels/cpu/tile_grid.h"

#include <algorithm>

#include "core/cpu/cpu_traits.h"
#include "core/cpu/portable_bits.h"

namespace tapestry::kernels {
namespace {

constexpr int64_t kThinTile = 32;
constexpr int64_t kInnerPiece = 192;
constexpr int64_t kLargeOperands = 6;  // times the result
constexpr int64_t kMultiple = 32;      // of every micro-kernel's height and width

// The number of parts of `size`: at most `most`, each of at least `smallest` elements.
int64_t parts_of(int64_t size, int64_t smallest, int64_t most) {
  return std::max<int64_t>(1, std::min(most, size / smallest));
}

Cut cut(int64_t size, int64_t parts) {
  const int64_t length = (size + parts - 1) / parts;
  return {size, std::max<int64_t>(1, (length + kMultiple - 1) / kMultiple * kMultiple)};
}

}  // namespace

const TileSizes& tile_sizes() {
  static const bool intel = cpu_traits().vendor == CpuVendor::kIntel && cpu_traits().avx512;
  return intel && !has_portable_bits() ? kTallTiles : kSquareTiles;
}

TileGrid tile_grid(int64_t m, int64_t n, int64_t k, int64_t batch, bool may_cut_k,
                   const TileSizes& sizes) {
  const double flops =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const int64_t affordable = static_cast<int64_t>(std::min(flops / kLeastTileFlops, 1e6));
  const int64_t most = std::clamp<int64_t>(affordable, 1, (sizes.most + batch - 1) / batch);
  const int64_t enough = std::min(most, (sizes.enough + batch - 1) / batch);

  int64_t m_parts = 1, n_parts = 1, k_parts = 1;
  const auto missing = [&] { return m_parts * n_parts * k_parts < enough; };
  // The gradient of a weight has few elements with many terms. Cut along k, each tile reads its own
  // rows; cut along m or n, all tiles would read all rows of the other operand.
  if (may_cut_k && k * (m + n) >= kLargeOperands * m * n) {
    k_parts = parts_of(k, kInnerPiece, enough);
  }
  if (missing()) {
    m_parts = parts_of(m, sizes.full_rows, most / k_parts);
    n_parts = parts_of(n, sizes.full_cols, most / (m_parts * k_parts));
  }
  if (missing() && may_cut_k) k_parts = parts_of(k, kInnerPiece, most / (m_parts * n_parts));
  if (missing()) m_parts = parts_of(m, sizes.half, most / (n_parts * k_parts));
  if (missing()) n_parts = parts_of(n, sizes.half, most / (m_parts * k_parts));
  if (missing()) m_parts = parts_of(m, kThinTile, most / (n_parts * k_parts));
  if (missing()) n_parts = parts_of(n, kThinTile, most / (m_parts * k_parts));
  return {cut(m, m_parts), cut(n, n_parts), cut(k, k_parts)};
}

}  // namespace tapestry::kernels
