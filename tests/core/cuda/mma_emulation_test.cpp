// The emulated tensor-core instructions against plain products and copies: the other tests of the
// emulated kernels rely on them.
#include <warp_mma.h>

#include "core/kernels/cuda/common.cuh"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

// c (16, 8) += a (16, 16) b (16, 8), all row-major, with fragments picked by the PTX ISA's formulas
// for element i of a lane: groupID = lane / 4, threadID_in_group = lane % 4.
void one_warp_product(const BFloat16* a, const BFloat16* b, float* c) {
  const int lane = static_cast<int>(threadIdx.x), group = lane / 4, in_group = lane % 4;
  uint32_t left[4] = {}, right[2] = {};
  for (int i = 0; i < 8; ++i) {
    const int row = i < 2 || (4 <= i && i < 6) ? group : group + 8;
    const int column = in_group * 2 + (i & 1) + (i < 4 ? 0 : 8);
    left[i / 2] |= static_cast<uint32_t>(a[row * 16 + column].bits) << 16 * (i % 2);
  }
  for (int i = 0; i < 4; ++i) {
    const int row = in_group * 2 + (i & 1) + (i < 2 ? 0 : 8), column = group;
    right[i / 2] |= static_cast<uint32_t>(b[row * 8 + column].bits) << 16 * (i % 2);
  }
  const auto place = [&](int i) {
    return (i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1);
  };
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = c[place(i)];
  warp_mma(sums, left, right[0], right[1]);
  for (int i = 0; i < 4; ++i) c[place(i)] = sums[i];
}

// Words of lane l at words + 4 l; matrix m is rows [8 m, 8 m + 8) of 16 elements' distance.
template <bool kTransposed>
void load_matrices(const BFloat16* rows, uint32_t* words) {
  const int lane = static_cast<int>(threadIdx.x);
  uint32_t loaded[4];
  if (kTransposed) {
    warp_load_transposed(loaded, rows + 16 * lane);
  } else {
    warp_load_matrices(loaded, rows + 16 * lane);
  }
  for (int m = 0; m < 4; ++m) words[4 * lane + m] = loaded[m];
}

void copy_in_the_background(const int32_t* from, int32_t* before, int32_t* after) {
  static __shared__ int32_t memory[32];
  const int i = static_cast<int>(threadIdx.x);
  memory[i] = -1;
  copy_async<4>(memory + i, from + i, i != 5);
  before[i] = memory[i];
  wait_for_copies();
  after[i] = memory[i];
}

TEST(MmaEmulationTest, MmaIsAProduct) {
  const auto a = random_values<BFloat16>(256, 1), b = random_values<BFloat16>(128, 2);
  Values<float> c = random_values<float>(128, 3);
  std::vector<double> expected = widen(c);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      for (int k = 0; k < 16; ++k) {
        expected[i * 8 + j] += static_cast<float>(a[i * 16 + k]) * static_cast<float>(b[k * 8 + j]);
      }
    }
  }
  launch({.kernel = "product", .grid = 1, .block = kWarp}, one_warp_product, a.data(), b.data(),
         c.data());
  expect_close(c, expected, 20);
}

TEST(MmaEmulationTest, MatricesComeAsFragments) {
  Values<BFloat16> rows(32 * 16);
  for (size_t i = 0; i < rows.size(); ++i) rows[i].bits = static_cast<uint16_t>(i);
  Values<uint32_t> plain(128), transposed(128);
  launch({.kernel = "load", .grid = 1, .block = kWarp}, load_matrices<false>, rows.data(),
         plain.data());
  launch({.kernel = "load", .grid = 1, .block = kWarp}, load_matrices<true>, rows.data(),
         transposed.data());
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned m = 0; m < 4; ++m) {
      // An element's value is its place: row * 16 + column.
      const unsigned first = 8 * m * 16, g = lane / 4, q = lane % 4;
      const unsigned low = first + g * 16 + 2 * q, low_transposed = first + 2 * q * 16 + g;
      EXPECT_EQ(plain[4 * lane + m], low | (low + 1) << 16);
      EXPECT_EQ(transposed[4 * lane + m], low_transposed | (low_transposed + 16) << 16);
    }
  }
}

TEST(MmaEmulationTest, CopiesArriveWhenTheyAreWaitedFor) {
  const Values<int32_t> from = random_ints(32, 4, 1000);
  Values<int32_t> before(32), after(32), expected = from;
  expected[5] = 0;
  launch({.kernel = "copy", .grid = 1, .block = kWarp}, copy_in_the_background, from.data(),
         before.data(), after.data());
  EXPECT_EQ(before, Values<int32_t>(32, -1));
  EXPECT_EQ(after, expected);
}

TEST(MmaEmulationTest, PacksTheFirstNumberIntoTheLowerHalf) {
  EXPECT_EQ(pack_bfloat16(1.0f, -2.0f), 0xc0003f80u);
}

}  // namespace
}  // namespace tapestry
