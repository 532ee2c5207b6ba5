// Products on tiles. The emulated units run everywhere and prove the loops and the bits; where the
// processor has AMX or BFMMLA, its bits are compared with the emulated ones. VDPBF16PS has an order
// of sums of its own.
#include <bit>
#include <set>

#include "core/cpu/bfloat16_kernel.h"
#include "core/kernels/cpu/tile_product-inl.h"
#include "core/kernels/cpu/tile_units.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry::kernels {
namespace {

using Side = TileOperand::Side;

struct Sizes {
  int64_t m, n, k;
};

// Edges of tiles (16 by 32), blocks (32) and pieces (1024 deep, 512 or fewer wide).
constexpr Sizes kSizes[] = {{1, 1, 1},    {16, 16, 32}, {17, 15, 33}, {32, 32, 64},   {33, 70, 31},
                            {5, 600, 40}, {70, 3, 96},  {64, 96, 65}, {31, 33, 1100}, {20, 40, 0}};

// An operand of random values: `rows` of the stored matrix, packed in plain loops.
struct Operand {
  Operand(Side side, int64_t length, int64_t k, bool along_k, uint64_t seed)
      : stride((along_k ? k : length) + 3),
        values(random_values<float>((along_k ? length : k) * stride, seed)),
        source{values.data(), stride, along_k},
        packed(side, length, k) {
    pack_tiles_plainly(source, {0, packed.strips()}, {0, packed.tiles()}, packed);
  }
  double rounded(int64_t i, int64_t k) const {
    const auto bits = std::bit_cast<uint32_t>(source.wide[source.index(i, k)]);
    return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
  }

  int64_t stride;
  Values<float> values;
  Factor source;
  TileOperand packed;
};

template <class Unit>
void run_pieces(const TileProduct& product, const Sizes& s, int64_t threads) {
  const TilePieces pieces(s.m, s.n, s.k, threads);
  Unit::open();
  for (int64_t i = 0; i < pieces.count(); ++i) {
    const auto [rows, cols] = pieces[i];
    multiply_piece<Unit>(product, rows, cols);
  }
  Unit::close();
}

template <class Unit>
std::vector<float> multiply(const Sizes& s, const Operand& a, const Operand& b, int64_t ldc,
                            bool add, int64_t threads) {
  const auto before = random_values<float>(s.m * ldc, 3);
  std::vector<float> c(before.begin(), before.end());
  TileProduct product{
      .a = a.packed.view(), .b = b.packed.view(), .c = c.data(), .ldc = ldc, .add = add};
  run_pieces<Unit>(product, s, threads);
  return c;
}

// The same by handing sums over, each element once.
template <class Unit>
std::vector<float> multiply_and_take(const Sizes& s, const Operand& a, const Operand& b,
                                     int64_t ldc, int64_t threads) {
  const auto before = random_values<float>(s.m * ldc, 3);
  std::vector<float> c(before.begin(), before.end());
  std::vector<bool> taken(c.size());
  const TileProduct product{.a = a.packed.view(),
                            .b = b.packed.view(),
                            .take = [&](Range rows, Range cols, const float* sums, int64_t stride) {
                              for (int64_t i = rows.begin; i < rows.end; ++i) {
                                for (int64_t j = cols.begin; j < cols.end; ++j) {
                                  const auto at = static_cast<size_t>(i * ldc + j);
                                  EXPECT_FALSE(taken[at]);
                                  taken[at] = true;
                                  c[at] = sums[(i - rows.begin) * stride + j - cols.begin];
                                }
                              }
                            }};
  run_pieces<Unit>(product, s, threads);
  EXPECT_EQ(std::count(taken.begin(), taken.end(), true), s.m * s.n);
  return c;
}

void expect_three_loops(const Sizes& s, const Operand& a, const Operand& b,
                        const std::vector<float>& c, int64_t ldc, bool add) {
  const auto before = random_values<float>(s.m * ldc, 3);
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < ldc; ++j) {
      const auto at = static_cast<size_t>(i * ldc + j);
      if (j >= s.n) {
        ASSERT_EQ(c[at], before[at]) << "beside C";
        continue;
      }
      double sum = add ? before[at] : 0, size = std::abs(sum);
      for (int64_t p = 0; p < s.k; ++p) {
        sum += a.rounded(i, p) * b.rounded(j, p);
        size += std::abs(a.rounded(i, p) * b.rounded(j, p));
      }
      ASSERT_LE(std::abs(c[at] - sum), 1e-5 * size) << "row " << i << ", column " << j;
    }
  }
}

template <class Unit>
void expect_three_loops() {
  for (const Sizes& s : kSizes) {
    for (const int way : {0, 1, 2, 3}) {
      const Operand a(Side::kLeft, s.m, s.k, way % 2 == 0, 1);
      const Operand b(Side::kRight, s.n, s.k, way / 2 == 0, 2);
      const bool add = way == 1 || way == 2;
      SCOPED_TRACE(concat(s.m, 'x', s.n, 'x', s.k, " way ", way));
      const auto c = multiply<Unit>(s, a, b, s.n + 5, add, 1);
      if (!add) {
        EXPECT_EQ(multiply_and_take<Unit>(s, a, b, s.n + 5, 2), c);
      }
      expect_three_loops(s, a, b, c, s.n + 5, add);
    }
  }
}

TEST(TileProduct, EmulatedEqualsThreeLoopsOverRoundedFactors) {
  expect_three_loops<EmulatedTiles>();
}

TEST(TileProduct, PairsEqualThreeLoopsOverRoundedFactors) {
  if (!cpu_traits().avx512_bf16) GTEST_SKIP() << "this processor has no AVX512-BF16";
  expect_three_loops<PairProducts>();
}

TEST(TileProduct, SquaresEqualThreeLoopsOverRoundedFactors) {
  expect_three_loops<EmulatedSquares>();
  if (cpu_traits().arm_bf16) expect_three_loops<SquareProducts>();
}

template <class Unit>
void expect_bits_of_any_cut() {
  const Sizes s{300, 900, 70};
  const Operand a(Side::kLeft, s.m, s.k, true, 1), b(Side::kRight, s.n, s.k, true, 2);
  const auto alone = multiply<Unit>(s, a, b, s.n, false, 1);
  for (const int64_t threads : {2, 3, 16}) {
    EXPECT_EQ(multiply<Unit>(s, a, b, s.n, false, threads), alone) << threads;
  }
}

TEST(TileProduct, BitsDoNotDependOnTheCut) {
  expect_bits_of_any_cut<EmulatedTiles>();
  expect_bits_of_any_cut<EmulatedSquares>();
  if (cpu_traits().arm_bf16) expect_bits_of_any_cut<SquareProducts>();
  if (cpu_traits().avx512_bf16) expect_bits_of_any_cut<PairProducts>();
}

// Where C has room for whole blocks, what is wanted is the same.
template <class Unit>
void expect_same_with_room() {
  for (const Sizes& s : {Sizes{1, 1, 40}, {8, 16, 33}, {9, 17, 70}, {33, 49, 20}, {40, 30, 64}}) {
    const Operand a(Side::kLeft, s.m, s.k, true, 1), b(Side::kRight, s.n, s.k, true, 2);
    const int64_t ldc = (s.n / kTileBlock + 1) * kTileBlock;
    const int64_t rows = (s.m / kTileBlock + 1) * kTileBlock;
    for (const bool add : {false, true}) {
      const auto expected = multiply<Unit>(s, a, b, ldc, add, 1);
      const auto before = random_values<float>(s.m * ldc, 3);
      std::vector<float> c(before.begin(), before.end());
      c.resize(static_cast<size_t>(rows * ldc));
      run_pieces<Unit>({.a = a.packed.view(),
                        .b = b.packed.view(),
                        .c = c.data(),
                        .ldc = ldc,
                        .has_room = true,
                        .add = add},
                       s, 1);
      for (int64_t i = 0; i < s.m; ++i) {
        for (int64_t j = 0; j < s.n; ++j) ASSERT_EQ(c[i * ldc + j], expected[i * ldc + j]);
      }
    }
  }
}

TEST(TileProduct, RoomForWholeBlocksChangesNoResult) {
  expect_same_with_room<EmulatedTiles>();
  expect_same_with_room<EmulatedSquares>();
  if (cpu_traits().arm_bf16) expect_same_with_room<SquareProducts>();
  if (cpu_traits().avx512_bf16) expect_same_with_room<PairProducts>();
}

TEST(TileProduct, PiecesCoverTheProductOnce) {
  for (const Sizes& s : {Sizes{1, 1, 1},
                         {4096, 1024, 256},
                         {768, 512, 4096},
                         {1, 50257, 768},
                         {2000, 33, 3000},
                         {33, 2000, 4}}) {
    for (const int64_t threads : {1, 2, 3, 8, 64}) {
      const TilePieces pieces(s.m, s.n, s.k, threads);
      int64_t covered = 0;
      std::set<std::pair<int64_t, int64_t>> corners;
      for (int64_t i = 0; i < pieces.count(); ++i) {
        const auto [rows, cols] = pieces[i];
        ASSERT_TRUE(corners.emplace(rows.begin, cols.begin).second);
        ASSERT_EQ(rows.begin % kTileBlock + cols.begin % kTileBlock, 0);
        ASSERT_LE(cols.size(), tile_piece_columns(s.k));
        ASSERT_GT(rows.size() * cols.size(), 0);
        covered += rows.size() * cols.size();
      }
      EXPECT_EQ(covered, s.m * s.n) << s.m << 'x' << s.n << 'x' << s.k << ", threads " << threads;
    }
  }
}

// Bit patterns of every kind: subnormal numbers, infinities, NaN, ties, huge and tiny exponents.
Values<float> odd_values(int64_t n, uint64_t seed) {
  Values<float> values = random_values<float>(n, seed, -1, 1);
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % 7 == 0) values[i] *= 0x1p-130F;
    if (i % 11 == 0)
      values[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(values[i]) << 16 | 0x8000);
    if (i % 13 == 0) values[i] *= 0x1p60F;
  }
  return values;
}

TEST(TileOperand, VectorsPackAsPlainLoopsDo) {
#ifndef __aarch64__
  if (!cpu_traits().avx512_bf16) GTEST_SKIP() << "this processor has no AVX512-BF16";
#endif
  for (const auto& [length, k] :
       {std::pair<int64_t, int64_t>{1, 1}, {16, 32}, {17, 33}, {40, 95}}) {
    for (const Side side : {Side::kLeft, Side::kRight}) {
      for (const bool along_k : {false, true}) {
        SCOPED_TRACE(concat(length, " by ", k, along_k ? " along k" : " across k"));
        const int64_t stride = (along_k ? k : length) + 2;
        const Values<float> values = odd_values((along_k ? length : k) * stride, 5);
        const Factor source{values.data(), stride, along_k};
        TileOperand plain(side, length, k), packed(side, length, k);
        pack_tiles_plainly(source, {0, plain.strips()}, {0, plain.tiles()}, plain);
        pack_operands({{packed, source}});
        for (int64_t i = 0; i < plain.strips() * plain.tiles() * kElementsPerTile; ++i) {
          const auto x = float(plain.tile(0, 0)[i]), y = float(packed.tile(0, 0)[i]);
          ASSERT_TRUE(plain.tile(0, 0)[i] == packed.tile(0, 0)[i] || (x != x && y != y)) << i;
        }
      }
    }
  }
}

template <class Unit, class Emulated>
void expect_bits_of_the_emulation() {
  for (const Sizes& s : kSizes) {
    for (const bool add : {false, true}) {
      Operand a(Side::kLeft, s.m, s.k, true, 1), b(Side::kRight, s.n, s.k, true, 2);
      // Exponents from subnormal numbers to 2^60, some of whose sums are subnormal again.
      for (int64_t i = 0; i < a.packed.strips() * a.packed.tiles() * kElementsPerTile; i += 3) {
        BFloat16& x = a.packed.tile(0, 0)[i];
        x = BFloat16(float(x) * (i % 2 == 0 ? 0x1p-126F : 0x1p60F));
      }
      const auto real = multiply<Unit>(s, a, b, s.n, add, 2);
      const auto emulated = multiply<Emulated>(s, a, b, s.n, add, 1);
      for (size_t i = 0; i < real.size(); ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(real[i]), std::bit_cast<uint32_t>(emulated[i])) << i;
      }
    }
  }
}

TEST(TileProduct, AmxHasTheBitsOfTheEmulation) {
  if (!cpu_traits().amx_bf16 || !tiles_allowed()) GTEST_SKIP() << "this processor has no AMX-BF16";
  expect_bits_of_the_emulation<AmxTiles, EmulatedTiles>();
}

TEST(TileProduct, BfmmlaHasTheBitsOfTheEmulation) {
  if (!cpu_traits().arm_bf16) GTEST_SKIP() << "this processor has no BFMMLA";
  expect_bits_of_the_emulation<SquareProducts, EmulatedSquares>();
}

}  // namespace
}  // namespace tapestry::kernels
