// The innermost products with packed matrices, for packed_linear_cpu.cpp and for tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "core/cpu/int8_kernel.h"
#include "core/kernels/cpu/tile_grid.h"
#include "core/kernels/packed/packed_matrix.h"

namespace tapestry::kernels {

/// y = x W^T + bias for some rows and panels, all on one thread.
struct PackedTile {
  const PackedMatrix& weight;
  Range panels;
  int64_t rows = 0;
  const float* x = nullptr;         ///< of weights that are not integers; ldx between rows
  const uint8_t* q = nullptr;       ///< of integers: quantize_row()'s, 0 up to padded_bytes(K)
  const float* scales = nullptr;    ///< of these: of each row, or for int4 (rows, groups())
  const int32_t* starts = nullptr;  ///< (rows, groups()), for int4: -8 times the sum of q
  int64_t ldx = 0;
  const float* bias = nullptr;  ///< (N) or null
  float* y = nullptr;           ///< (rows, N), ldy between rows
  int64_t ldy = 0;

  /// Columns of y in a panel.
  int64_t columns(int64_t panel) const {
    return std::min(PackedMatrix::kPanel, weight.rows() - panel * PackedMatrix::kPanel);
  }
  /// Groups of columns, of int4.
  int64_t groups() const {
    return (weight.cols() + PackedMatrix::kInt4Columns - 1) / PackedMatrix::kInt4Columns;
  }
};

using PackedTileFunction = void (*)(const PackedTile& tile);

/// The function for a format on this processor.
PackedTileFunction packed_tile(WeightFormat format);

PackedTileFunction packed_float32_tile();
PackedTileFunction packed_bfloat16_tile();

struct IntegerTiles {
  uint8_t flip;  ///< for quantize_row() of int8; of int4 there is none
  PackedTileFunction int8, int4;
};
IntegerTiles packed_integer_tiles(Int8Kernel kernel);

/// Bytes of a rounded row and of the zeros behind it: as many as a tile register takes at a time.
constexpr int64_t padded_bytes(int64_t cols) { return (cols + 63) / 64 * 64; }

// The functions of the kinds; only for processors that can run them, null on another architecture.
PackedTileFunction packed_int8_plain_tile();
PackedTileFunction packed_int8_avx_vnni_tile();
PackedTileFunction packed_int8_avx512_vnni_tile();
PackedTileFunction packed_int8_dotprod_tile();
PackedTileFunction packed_int8_i8mm_tile();
PackedTileFunction packed_int8_i8mm_emulated_tile();
PackedTileFunction packed_int8_amx_tile();
PackedTileFunction packed_int8_emulated_tile();
PackedTileFunction packed_int4_plain_tile();
PackedTileFunction packed_int4_avx_vnni_tile();
PackedTileFunction packed_int4_avx512_vnni_tile();
PackedTileFunction packed_int4_dotprod_tile();

/// Writes rows of y from their sums (rows, kPanel), which have `flip` too much in each byte of q.
using DeliverFunction = void (*)(const PackedTile& tile, Range rows, int64_t panel,
                                 const int32_t* sums, uint8_t flip);
DeliverFunction packed_int8_deliver();

/// A strip of some height: by one panel, and by several.
struct StripFunctions {
  void (*wide)(const PackedTile& tile, int64_t row, int64_t panel);
  int64_t wide_panels;
  void (*one)(const PackedTile& tile, int64_t row, int64_t panel);
};

/// Sums that hide the latency of an addition.
inline constexpr int kEnoughSums = 8;

/// The strips of heights 1 to kMost. of<height, panels>() gives the function of a height and a
/// number of panels; a panel of one row makes kVectors sums, and a wide strip kSums or more.
template <int kMost, int kVectors, int kSums, class Of>
constexpr std::array<StripFunctions, kMost> strips_of(Of of) {
  const auto strip = [of]<int kHeight>() {
    constexpr int kWide = std::max(1, kSums / (kHeight * kVectors));
    return StripFunctions{of.template operator()<kHeight, kWide>(), kWide,
                          of.template operator()<kHeight, 1>()};
  };
  return [strip]<int... kLess>(std::integer_sequence<int, kLess...>) {
    return std::array{strip.template operator()<kLess + 1>()...};
  }
  (std::make_integer_sequence<int, kMost>());
}

/// Runs a tile in strips of rows of nearly equal height, none above kMost; strips[h - 1] is for
/// height h. A panel passes all strips before the next one comes, but a lone strip takes several
/// panels at a time.
template <size_t kMost>
inline void run_strips(const PackedTile& tile, const std::array<StripFunctions, kMost>& strips) {
  constexpr auto kHighest = static_cast<int64_t>(kMost);
  const int64_t count = (tile.rows + kHighest - 1) / kHighest;
  const auto begin = [&](int64_t strip) { return tile.rows * strip / count; };
  const auto of_height = [&](int64_t height) { return strips[static_cast<size_t>(height - 1)]; };
  int64_t panel = tile.panels.begin;
  if (count == 1) {
    const StripFunctions strip = of_height(tile.rows);
    for (; panel + strip.wide_panels <= tile.panels.end; panel += strip.wide_panels) {
      strip.wide(tile, 0, panel);
    }
  }
  for (; panel < tile.panels.end; ++panel) {
    for (int64_t s = 0; s < count; ++s) {
      of_height(begin(s + 1) - begin(s)).one(tile, begin(s), panel);
    }
  }
}

}  // namespace tapestry::kernels
