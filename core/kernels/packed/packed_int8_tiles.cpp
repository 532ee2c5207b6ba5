// A tile register takes 64 columns of 16 rows; its partner, those of the 16 rows of weights that
// are half a panel, where they lie. The bytes of x are q + 128, as of VPDPBUSD.
#include <algorithm>
#include <type_traits>

#include "core/kernels/cpu/tile_units.h"
#include "core/kernels/packed/packed_tile.h"

namespace tapestry::kernels {
namespace {

constexpr int64_t kPanel = PackedMatrix::kPanel;
constexpr uint8_t kFlip = 0x80;
constexpr int64_t kStrip = 16, kColumns = 64;  // what a register holds
static_assert(padded_bytes(1) == kColumns);

// Of one register of rows by two of weights: the sums are in the registers 0 and 1. Measured on
// Sapphire Rapids, against two registers of rows, which halve the loads of weights: 1.2 to 2 times
// as fast while a neighbour shares the core; without, 0.8 to 1 times.
template <class Unit>
void multiply_strip(const PackedTile& tile, int64_t row, int64_t panel, int32_t* sums) {
  constexpr int64_t kHalf = kPanel / 2, kGroupBytes = kPanel * PackedMatrix::kGroup;
  constexpr int64_t kSumBytes = kPanel * sizeof(int32_t);
  const uint8_t* q = tile.q + row * tile.ldx;
  const int8_t* w = tile.weight.panel<int8_t>(panel);
  Unit::template zero<0>();
  Unit::template zero<1>();
  for (int64_t k = 0; k < tile.weight.cols(); k += kColumns) {
    Unit::template load<4>(q, tile.ldx);
    Unit::template load<6>(w, kGroupBytes);
    Unit::template multiply_bytes<0, 4, 6>();
    Unit::template load<7>(w + kHalf * PackedMatrix::kGroup, kGroupBytes);
    Unit::template multiply_bytes<1, 4, 7>();
    q += kColumns, w += kColumns * kPanel;
  }
  Unit::template store<0>(sums, kSumBytes);
  Unit::template store<1>(sums + kHalf, kSumBytes);
}

// Rows in strips of `height`, which divides them.
template <class Unit>
void multiply_rows(const PackedTile& tile, Range rows, int64_t height) {
  if (rows.size() == 0) return;
  const DeliverFunction deliver = packed_int8_deliver();
  alignas(64) int32_t sums[kStrip * kPanel];
  TileConfig config;
  for (const size_t of_rows : {0, 1, 4}) config.rows[of_rows] = static_cast<uint8_t>(height);
  Unit::open(config);
  for (int64_t panel = tile.panels.begin; panel < tile.panels.end; ++panel) {
    for (int64_t row = rows.begin; row < rows.end; row += height) {
      multiply_strip<Unit>(tile, row, panel, sums);
      deliver(tile, {row, row + height}, panel, sums, kFlip);
    }
  }
  Unit::close();
}

template <class Unit>
void multiply_tile(const PackedTile& tile) {
  // Of fewer rows, vectors are faster.
  constexpr int64_t kFewRows = std::is_same_v<Unit, AmxTiles> ? 6 : 1;
  const int64_t whole = tile.rows / kStrip * kStrip, rest = tile.rows - whole;
  multiply_rows<Unit>(tile, {0, whole}, kStrip);
  if (rest >= kFewRows) {
    multiply_rows<Unit>(tile, {whole, tile.rows}, rest);
  } else if (rest > 0) {
    PackedTile few = tile;
    few.rows = rest, few.q += whole * tile.ldx, few.scales += whole, few.y += whole * tile.ldy;
    packed_int8_avx512_vnni_tile()(few);
  }
}

}  // namespace

PackedTileFunction packed_int8_amx_tile() { return multiply_tile<AmxTiles>; }
PackedTileFunction packed_int8_emulated_tile() { return multiply_tile<EmulatedTiles>; }

}  // namespace tapestry::kernels
