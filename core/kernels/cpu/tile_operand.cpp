#include "core/kernels/cpu/tile_operand.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/cpu_traits.h"
#include "core/kernels/cpu/bfloat16_pairs.h"
#include "core/parallel.h"

namespace tapestry::kernels {
namespace {

using Side = TileOperand::Side;

// A task's share of the packing: 64 Ki elements.
constexpr int64_t kStripsPerTask = 8;
constexpr int64_t kTilesPerTask = 16;

}  // namespace
}  // namespace tapestry::kernels

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512bf16")
namespace tapestry::kernels {
namespace {

// 16 registers are a tile either way: loaded along k they are its rows, loaded across k its pairs,
// and where the side wants the other they are transposed.
void pack_tile(const TileSource& source, int64_t length, int64_t depth, bool transposed,
               const pairs::RowPairs& row_pairs, BFloat16* tile) {
  const float* const first = source.data;
  __m512i rows[16];
  if (source.along_k) {
    for (int64_t r = 0; r < kTileStrip; ++r) {
      rows[r] =
          r < length ? pairs::load_pairs(first + r * source.stride, depth) : _mm512_setzero_si512();
    }
  } else {
    const __mmask16 all = pairs::first_lanes(length);
    for (int64_t p = 0; p < kTileStrip; ++p) {
      const float* const even = first + 2 * p * source.stride;
      const bool has_even = 2 * p < depth, has_odd = 2 * p + 1 < depth;
      rows[p] = row_pairs(has_even ? even : first, has_even ? all : __mmask16{0},
                          has_odd ? even + source.stride : first, has_odd ? all : __mmask16{0});
    }
  }
  if (transposed) pairs::transpose(rows);
  for (int64_t r = 0; r < kTileStrip; ++r) _mm512_store_si512(tile + r * kTileDepth, rows[r]);
}

void pack_tiles_avx512(const TileSource& source, Range strips, Range tiles, TileOperand& operand) {
  const bool transposed = source.along_k == (operand.side() == Side::kRight);
  const pairs::RowPairs row_pairs;
  const auto pack = [&](int64_t s, int64_t t) {
    // A strip of padding has no first element.
    const int64_t length = std::max<int64_t>(0, operand.length() - s * kTileStrip);
    const int64_t i = length > 0 ? (s - strips.begin) * kTileStrip : 0;
    pack_tile(source.from(i, (t - tiles.begin) * kTileDepth), length, operand.k() - t * kTileDepth,
              transposed, row_pairs, operand.tile(s, t));
  };
  // Along the stored rows, so that memory is read forward.
  if (source.along_k) {
    for (int64_t s = strips.begin; s < strips.end; ++s) {
      for (int64_t t = tiles.begin; t < tiles.end; ++t) pack(s, t);
    }
  } else {
    for (int64_t t = tiles.begin; t < tiles.end; ++t) {
      for (int64_t s = strips.begin; s < strips.end; ++s) pack(s, t);
    }
  }
}

}  // namespace
}  // namespace tapestry::kernels
HWY_POP_ATTRIBUTES

namespace tapestry::kernels {
namespace {

BFloat16 rounded(float x) {
  const bool subnormal = std::abs(x) < std::numeric_limits<float>::min();
  return BFloat16(subnormal ? std::copysign(0.0F, x) : x);
}

}  // namespace

void pack_tiles_plainly(const TileSource& source, Range strips, Range tiles, TileOperand& operand) {
  for (int64_t s = strips.begin; s < strips.end; ++s) {
    for (int64_t t = tiles.begin; t < tiles.end; ++t) {
      BFloat16* const tile = operand.tile(s, t);
      for (int64_t r = 0; r < kTileStrip; ++r) {
        for (int64_t d = 0; d < kTileDepth; ++d) {
          const int64_t i = s * kTileStrip + r, k = t * kTileDepth + d;
          const int64_t at = operand.side() == Side::kLeft ? r * kTileDepth + d
                                                           : d / 2 * kTileDepth + 2 * r + d % 2;
          const bool exists = i < operand.length() && k < operand.k();
          const int64_t row = i - strips.begin * kTileStrip, inner = k - tiles.begin * kTileDepth;
          tile[at] = exists ? rounded(*source.from(row, inner).data) : BFloat16();
        }
      }
    }
  }
}

void pack_tiles(const TileSource& source, Range strips, Range tiles, TileOperand& operand) {
  const bool avx512 = cpu_traits().avx512_bf16;
  (avx512 ? pack_tiles_avx512 : pack_tiles_plainly)(source, strips, tiles, operand);
}

TilePacking::TilePacking(TileOperand& operand, const TileSource& source)
    : operand_(&operand),
      source_(source),
      strips_{operand.strips(), kStripsPerTask},
      tiles_{operand.tiles(), kTilesPerTask} {}

void TilePacking::run(int64_t task) const {
  const Range strips = strips_[task / tiles_.count()], tiles = tiles_[task % tiles_.count()];
  // The last strips may be padding alone.
  const int64_t i = std::min(strips.begin * kTileStrip, operand_->length() - 1);
  pack_tiles(source_.from(i, tiles.begin * kTileDepth), strips, tiles, *operand_);
}

void pack_operands(std::initializer_list<TilePacking> packings) {
  int64_t tasks = 0;
  for (const TilePacking& packing : packings) tasks += packing.tasks();
  parallel_for(tasks, [&](int64_t task) {
    for (const TilePacking& packing : packings) {
      if (task < packing.tasks()) return packing.run(task);
      task -= packing.tasks();
    }
  });
}

}  // namespace tapestry::kernels
