#include "core/kernels/cpu/tile_operand.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/cpu/cpu_traits.h"
#include "core/cpu/parallel.h"
#include "core/kernels/cpu/bfloat16_pairs.h"
#include "core/kernels/cpu/tile_packing_neon.h"

namespace tapestry::kernels {
namespace {

using Side = TileOperand::Side;

// A task's share of the packing: 64 Ki elements.
constexpr int64_t kStripsPerTask = 8;
constexpr int64_t kTilesPerTask = 16;

}  // namespace
}  // namespace tapestry::kernels

#ifdef __x86_64__
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512bf16")
namespace tapestry::kernels {
namespace {

// The place and matrix of a tile.
template <class T>
struct TileSource {
  const T* x;  // its first element
  int64_t stride;
  int64_t length, depth;  // of the rest of the matrix

  bool is_whole() const { return length >= kTileStrip && depth >= kTileDepth; }
};

// 16 registers are a tile either way: loaded along k they are its rows, loaded across k its pairs,
// and where the side wants the other they are transposed. kWhole: all its elements exist.
template <bool kAlongK, bool kTransposed, bool kWhole, class Part, class T>
HWY_INLINE void pack_tile(const TileSource<T>& source, const pairs::RowPairs& row_pairs,
                          BFloat16* tile) {
  const auto [x, stride, length, depth] = source;
  __m512i rows[16];
  if constexpr (kAlongK) {
#pragma GCC unroll 16
    for (int64_t r = 0; r < kTileStrip; ++r) {
      const T* const row = x + r * stride;
      const bool exists = kWhole || r < length;
      rows[r] = exists ? pairs::load_pairs<Part>(row, kWhole ? kTileDepth : depth)
                       : _mm512_setzero_si512();
    }
  } else {
    const __mmask16 all = kWhole ? __mmask16{0xffff} : pairs::first_lanes(length);
#pragma GCC unroll 16
    for (int64_t p = 0; p < kTileStrip; ++p) {
      const T* const even = x + 2 * p * stride;
      if constexpr (kWhole) {
        rows[p] = row_pairs.interleave<Part>(even, all, even + stride, all);
      } else {
        const bool has_even = 2 * p < depth, has_odd = 2 * p + 1 < depth;
        rows[p] =
            row_pairs.interleave<Part>(has_even ? even : x, has_even ? all : __mmask16{0},
                                       has_odd ? even + stride : x, has_odd ? all : __mmask16{0});
      }
    }
  }
  if constexpr (kTransposed) pairs::transpose(rows);
#pragma GCC unroll 16
  for (int64_t r = 0; r < kTileStrip; ++r) _mm512_store_si512(tile + r * kTileDepth, rows[r]);
}

template <bool kAlongK, bool kTransposed, class Part, class T>
HWY_INLINE void pack_part(const TileSource<T>& source, const pairs::RowPairs& row_pairs,
                          BFloat16* tile) {
  if (source.is_whole()) {
    pack_tile<kAlongK, kTransposed, true, Part>(source, row_pairs, tile);
  } else {
    pack_tile<kAlongK, kTransposed, false, Part>(source, row_pairs, tile);
  }
}

template <bool kAlongK, bool kTransposed, bool kSplit, class T>
void pack_all(const Factor& source, Range strips, Range tiles, TileOperand& operand) {
  const pairs::RowPairs row_pairs;
  // Along the stored rows, so that memory is read forward.
  const Range outer = kAlongK ? strips : tiles, inner = kAlongK ? tiles : strips;
  for (int64_t o = outer.begin; o < outer.end; ++o) {
    for (int64_t i = inner.begin; i < inner.end; ++i) {
      const int64_t s = kAlongK ? o : i, t = kAlongK ? i : o;
      const int64_t length = operand.length() - s * kTileStrip,
                    depth = operand.k() - t * kTileDepth;
      // A strip of padding has no first element.
      const T* const x =
          source.data<T>() + source.index(length > 0 ? (s - strips.begin) * kTileStrip : 0,
                                          (t - tiles.begin) * kTileDepth);
      BFloat16* const tile = operand.tile(s, t);
      const TileSource<T> from{x, source.stride, length, depth};
      if constexpr (kSplit) {
        pack_part<kAlongK, kTransposed, pairs::HighPart>(from, row_pairs, tile);
        pack_part<kAlongK, kTransposed, pairs::LowPart>(from, row_pairs, tile + kElementsPerTile);
      } else {
        pack_part<kAlongK, kTransposed, pairs::Rounded>(from, row_pairs, tile);
      }
    }
  }
}

template <bool kSplit, class T>
void pack_elements(const Factor& source, Range strips, Range tiles, TileOperand& operand) {
  const bool right = operand.side() == Side::kRight;
  const auto pack =
      source.along_k
          ? (right ? pack_all<true, true, kSplit, T> : pack_all<true, false, kSplit, T>)
          : (right ? pack_all<false, false, kSplit, T> : pack_all<false, true, kSplit, T>);
  pack(source, strips, tiles, operand);
}

void pack_tiles_avx512(const Factor& source, Range strips, Range tiles, TileOperand& operand) {
  const bool split = operand.form() == TileForm::kSplit;
  const auto pack_floats = split ? pack_elements<true, float> : pack_elements<false, float>;
  (source.wide != nullptr ? pack_floats : pack_elements<false, BFloat16>)(source, strips, tiles,
                                                                          operand);
}

}  // namespace
}  // namespace tapestry::kernels
HWY_POP_ATTRIBUTES
#endif

namespace tapestry::kernels {
namespace {

BFloat16 rounded(float x) {
  const bool subnormal = std::abs(x) < std::numeric_limits<float>::min();
  return BFloat16(subnormal ? std::copysign(0.0F, x) : x);
}

// The parts of a split operand, as pack_tiles() defines them.
BFloat16 high_part(float x) {
  constexpr float kLargest = 0x1.fep127F;
  if (std::isinf(x)) return BFloat16(std::copysign(1.0F, x));
  return rounded(std::isnan(x) ? x : std::clamp(x, -kLargest, kLargest));
}
BFloat16 low_part(float x) { return rounded(x - static_cast<float>(high_part(x))); }

}  // namespace

void pack_tiles_plainly(const Factor& source, Range strips, Range tiles, TileOperand& operand) {
  for (int64_t s = strips.begin; s < strips.end; ++s) {
    for (int64_t t = tiles.begin; t < tiles.end; ++t) {
      BFloat16* const tile = operand.tile(s, t);
      std::fill_n(tile, stored_elements(operand.form()), BFloat16());
      for (int64_t r = 0; r < kTileStrip; ++r) {
        for (int64_t d = 0; d < kTileDepth; ++d) {
          const int64_t i = s * kTileStrip + r, k = t * kTileDepth + d;
          const int64_t at = operand.side() == Side::kLeft ? r * kTileDepth + d
                                                           : d / 2 * kTileDepth + 2 * r + d % 2;
          if (i >= operand.length() || k >= operand.k()) continue;
          const int64_t index =
              source.index(i - strips.begin * kTileStrip, k - tiles.begin * kTileDepth);
          if (operand.form() == TileForm::kSplit) {
            tile[at] = high_part(source.wide[index]);
            tile[at + kElementsPerTile] = low_part(source.wide[index]);
          } else {
            tile[at] = source.wide != nullptr ? rounded(source.wide[index]) : source.narrow[index];
          }
        }
      }
    }
  }
}

#ifdef __aarch64__
namespace {

// Those at the edges plainly.
void pack_tiles_neon(const Factor& source, Range strips, Range tiles, TileOperand& operand) {
  for (int64_t s = strips.begin; s < strips.end; ++s) {
    for (int64_t t = tiles.begin; t < tiles.end; ++t) {
      const int64_t i = (s - strips.begin) * kTileStrip, k = (t - tiles.begin) * kTileDepth;
      if ((s + 1) * kTileStrip <= operand.length() && (t + 1) * kTileDepth <= operand.k()) {
        pack_whole_tile(source.from(i, k), operand.side(), operand.form(), operand.tile(s, t));
      } else {
        // A strip of padding has no first element.
        const bool exists = s * kTileStrip < operand.length();
        pack_tiles_plainly(exists ? source.from(i, k) : source, {s, s + 1}, {t, t + 1}, operand);
      }
    }
  }
}

}  // namespace
#endif

void pack_tiles(const Factor& source, Range strips, Range tiles, TileOperand& operand) {
#ifdef __x86_64__
  if (cpu_traits().avx512_bf16) return pack_tiles_avx512(source, strips, tiles, operand);
#elif defined(__aarch64__)
  return pack_tiles_neon(source, strips, tiles, operand);
#endif
  pack_tiles_plainly(source, strips, tiles, operand);
}

void TileOperand::pack(const Factor& source) {
  pack_tiles(source, {0, strips()}, {0, tiles()}, *this);
}

TilePacking::TilePacking(TileOperand& operand, const Factor& source)
    : operand_(&operand),
      source_(source),
      strips_{operand.strips(), kStripsPerTask},
      tiles_{operand.tiles(), kTilesPerTask} {}

void TilePacking::run(int64_t task) const {
  const Range strips = strips_[task / tiles_.count()], tiles = tiles_[task % tiles_.count()];
  // The last strips may be only padding.
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
