// VDPBF16PS multiplies pairs: each of its 16 lanes adds the products of two neighbours along k.
// B is packed into panels of 32 columns (pair after pair along k, so that the innermost loop reads
// forward only), A into rows of pairs, or, stored transposed, into strips of up to 14 columns.
// The blocking is that of Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication.
#include "core/kernels/cpu/packed_bf16.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "core/error.h"
#include "core/kernels/cpu/bfloat16_pairs.h"
#include "core/scratch.h"

namespace tapestry::kernels {
namespace {

using pairs::kLanes;
constexpr int64_t kPanel = 2 * kLanes;  // columns
constexpr int64_t kStrip = 14;          // rows: 28 of the 32 registers hold sums
// A panel of B, kDepth deep, is 32 KiB and stays in the L1 cache for all strips of a block of A,
// which is at most 256 KiB. Measured on Zen 4: depths of 384 and 512 are equally fast, 256 is 3 %
// slower and 128 12 %.
constexpr int64_t kDepth = 512;
constexpr int64_t kRows = 256;
constexpr int64_t kCols = 1024;

constexpr int64_t pairs_of(int64_t k) { return (k + 1) / 2; }
constexpr int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

}  // namespace
}  // namespace tapestry::kernels

// Intrinsics and their callers are compiled for processors with AVX512-BF16.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512bf16")
namespace tapestry::kernels {
namespace {

using pairs::first_lanes;
using pairs::load_pairs;
using pairs::RowPairs;
using pairs::transpose;

// b (k, n) to panels, pair after pair of the 32 columns.
template <class T>
void pack_b(const T* b, int64_t ldb, int64_t k, int64_t n, uint32_t* packed) {
  const RowPairs row_pairs;
  for (int64_t j = 0; j < n; j += kPanel) {
    const __mmask16 left = first_lanes(n - j), right = first_lanes(n - j - kLanes);
    for (int64_t i = 0; i < k; i += 2, packed += kPanel) {
      const bool odd = i + 1 < k;
      const T* const row = b + i * ldb + j;
      const T* const next = odd ? row + ldb : row;
      _mm512_store_si512(packed, row_pairs.interleave(row, left, next, odd ? left : __mmask16{0}));
      _mm512_store_si512(packed + kLanes, row_pairs.interleave(row + kLanes, right, next + kLanes,
                                                               odd ? right : __mmask16{0}));
    }
  }
}

// The same from b stored (n, k). Also fills the columns of the last panel that do not exist.
template <class T>
void pack_transposed_b(const T* b, int64_t ldb, int64_t k, int64_t n, uint32_t* packed) {
  const int64_t pairs = pairs_of(k);
  for (int64_t j = 0; j < round_up(n, kPanel); j += kLanes) {
    uint32_t* const half_panel = packed + j / kPanel * pairs * kPanel + j % kPanel;
    for (int64_t p = 0; p < pairs; p += kLanes) {
      __m512i rows[16];
      for (int64_t c = 0; c < kLanes; ++c) {
        rows[c] =
            j + c < n ? load_pairs(b + (j + c) * ldb + 2 * p, k - 2 * p) : _mm512_setzero_si512();
      }
      transpose(rows);
      for (int64_t i = 0; i < std::min(kLanes, pairs - p); ++i) {
        _mm512_store_si512(half_panel + (p + i) * kPanel, rows[i]);
      }
    }
  }
}

// a (m, k) to rows of `stride` pairs; writes whole registers.
template <class T>
void pack_a(const T* a, int64_t lda, int64_t m, int64_t k, uint32_t* packed, int64_t stride) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t p = 0; 2 * p < k; p += kLanes) {
      _mm512_storeu_si512(packed + i * stride + p, load_pairs(a + i * lda + 2 * p, k - 2 * p));
    }
  }
}

// a stored (k, rows) to a strip: pair after pair, `rows` <= kStrip of each.
template <class T>
void pack_strip(const T* a, int64_t lda, int64_t rows, int64_t k, uint32_t* packed) {
  const RowPairs row_pairs;
  const __mmask16 all = first_lanes(rows);
  for (int64_t i = 0; i < k; i += 2, packed += rows) {
    const bool odd = i + 1 < k;
    const T* const row = a + i * lda;
    _mm512_mask_storeu_epi32(
        packed, all,
        row_pairs.interleave(row, all, odd ? row + lda : row, odd ? all : __mmask16{0}));
  }
}

struct Tile {
  int64_t pairs;  // along k
  const uint32_t* a;
  int64_t a_stride;  // between rows of pairs; unused for a strip
  const uint32_t* b;
  float* c;
  int64_t ldc;
  int64_t columns;  // of the panel's 32
  bool add;
};

// c (kHeight, columns) (=|+=) a b
template <int kHeight, bool kIsStrip>
void multiply(const Tile& tile) {
  __m512 sums[kHeight][2];
#pragma GCC unroll 14
  for (int r = 0; r < kHeight; ++r) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
  const uint32_t* const a = tile.a;
  const int64_t pairs = tile.pairs, stride = tile.a_stride;
  for (int64_t p = 0; p < pairs; ++p) {
    const auto left = reinterpret_cast<__m512bh>(_mm512_load_si512(tile.b + p * kPanel));
    const auto right = reinterpret_cast<__m512bh>(_mm512_load_si512(tile.b + p * kPanel + kLanes));
#pragma GCC unroll 14
    for (int r = 0; r < kHeight; ++r) {
      const uint32_t pair = kIsStrip ? a[p * kHeight + r] : a[r * stride + p];
      const auto everywhere = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(pair)));
      sums[r][0] = _mm512_dpbf16_ps(sums[r][0], everywhere, left);
      sums[r][1] = _mm512_dpbf16_ps(sums[r][1], everywhere, right);
    }
  }
  const __mmask16 masks[2] = {first_lanes(tile.columns), first_lanes(tile.columns - kLanes)};
#pragma GCC unroll 14
  for (int r = 0; r < kHeight; ++r) {
    for (int half = 0; half < 2; ++half) {
      float* const c = tile.c + r * tile.ldc + half * kLanes;
      __m512 sum = sums[r][half];
      if (tile.add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(masks[half], c), sum);
      _mm512_mask_storeu_ps(c, masks[half], sum);
    }
  }
}

using Multiply = void (*)(const Tile&);

template <bool kIsStrip, int... kHeightsLessOne>
constexpr std::array<Multiply, kStrip> multiply_table(
    std::integer_sequence<int, kHeightsLessOne...>) {
  return {multiply<kHeightsLessOne + 1, kIsStrip>...};
}

// Indexed by the number of rows - 1.
template <bool kIsStrip>
constexpr std::array<Multiply, kStrip> kMultiply =
    multiply_table<kIsStrip>(std::make_integer_sequence<int, kStrip>());

}  // namespace
}  // namespace tapestry::kernels
HWY_POP_ATTRIBUTES

namespace tapestry::kernels {
namespace {

using Product = RoundedProduct;

// Rows of a block in strips of nearly equal height, none above kStrip.
struct Strips {
  explicit Strips(int64_t rows_in) : rows(rows_in), count((rows_in + kStrip - 1) / kStrip) {}
  int64_t begin(int64_t i) const { return rows * i / count; }
  int64_t height(int64_t i) const { return begin(i + 1) - begin(i); }
  int64_t rows, count;
};

struct Block {
  int64_t first_row, rows;
  int64_t first_column, columns;
  int64_t first_inner, inner;
  bool add;
};

void pack_a_block(const Product& g, const Block& block, const Strips& strips, uint32_t* packed,
                  int64_t stride) {
  g.a.from(block.first_row, block.first_inner).visit([&](const auto* a) {
    const int64_t lda = g.a.stride;
    if (g.a.along_k) return pack_a(a, lda, block.rows, block.inner, packed, stride);
    for (int64_t s = 0; s < strips.count; ++s) {
      pack_strip(a + strips.begin(s), lda, strips.height(s), block.inner,
                 packed + strips.begin(s) * pairs_of(block.inner));
    }
  });
}

void pack_b_block(const Product& g, int64_t first_column, int64_t columns, int64_t first_inner,
                  int64_t inner, uint32_t* packed) {
  g.b.from(first_column, first_inner).visit([&](const auto* b) {
    if (g.b.along_k) return pack_transposed_b(b, g.b.stride, inner, columns, packed);
    pack_b(b, g.b.stride, inner, columns, packed);
  });
}

void multiply_block(const Product& g, const Block& block, const uint32_t* packed_a,
                    int64_t a_stride, const uint32_t* packed_b) {
  const Strips strips(block.rows);
  const int64_t pairs = pairs_of(block.inner);
  const auto& multiply = g.a.along_k ? kMultiply<false> : kMultiply<true>;
  for (int64_t j = 0; j < block.columns; j += kPanel, packed_b += pairs * kPanel) {
    for (int64_t s = 0; s < strips.count; ++s) {
      const int64_t row = strips.begin(s);
      multiply[static_cast<size_t>(strips.height(s) - 1)](
          {.pairs = pairs,
           .a = packed_a + row * (g.a.along_k ? a_stride : pairs),
           .a_stride = a_stride,
           .b = packed_b,
           .c = g.c + (block.first_row + row) * g.ldc + block.first_column + j,
           .ldc = g.ldc,
           .columns = std::min(kPanel, block.columns - j),
           .add = block.add});
    }
  }
}

}  // namespace

void packed_bf16_product(const Product& g) {
  const int64_t depths = (g.k + kDepth - 1) / kDepth;
  const int64_t depth = round_up((g.k + depths - 1) / depths, 2 * kLanes);
  const int64_t width = std::min<int64_t>(g.n, kCols), height = std::min<int64_t>(g.m, kRows);
  // Rows a power of two apart would fall into a few sets of the L1 cache.
  const int64_t a_stride = depth / 2 + kLanes;
  Scratch<uint32_t> packed_b(round_up(width, kPanel) * depth / 2);
  Scratch<uint32_t> packed_a(height * a_stride);
  for (int64_t k = 0; k < g.k; k += depth) {
    const int64_t inner = std::min(depth, g.k - k);
    for (int64_t j = 0; j < g.n; j += width) {
      const int64_t columns = std::min(width, g.n - j);
      pack_b_block(g, j, columns, k, inner, packed_b.data());
      for (int64_t i = 0; i < g.m; i += height) {
        const Block block{i, std::min(height, g.m - i), j, columns, k, inner, g.add || k > 0};
        pack_a_block(g, block, Strips(block.rows), packed_a.data(), a_stride);
        multiply_block(g, block, packed_a.data(), a_stride, packed_b.data());
      }
    }
  }
}

}  // namespace tapestry::kernels
