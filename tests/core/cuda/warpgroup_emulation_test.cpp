// The emulation of sm_90a refuses what would be a race or an endless wait on a GPU.
#include <bulk_copy.h>
#include <warpgroup_mma.h>

#include <stdexcept>

#include "core/cuda/tensor_map.h"
#include "core/kernels/cuda/panel_tile.cuh"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

enum class Mistake {
  kNone,
  kNoBegin,
  kCopyNotWaitedFor,
  kOverwrites,
  kTouchesSums,
  kChangesLeftOperand,
  kNoWait,
  kWrongParity,
  kOneWarpMissing,
  kNotInitialised,
};

using Tile = PanelTile<64, 64>;

void one_product(CUtensorMap map, Mistake mistake, float* out) {
  unsigned char* const tile = tile_memory();
  auto* const full = reinterpret_cast<TransferBarrier*>(tile + Tile::kBytes);
  const bool first = threadIdx.x == 0;
  if (first && mistake != Mistake::kNotInitialised) init_barrier(full, 1);
  __syncthreads();
  if (first) {
    arrive_expecting(full, Tile::kBytes);
    Tile::copy_async(tile, map, 0, 0, 0, full);
  }
  if (mistake != Mistake::kCopyNotWaitedFor) wait_for(full, mistake == Mistake::kWrongParity);
  float sums[8][4] = {};
  uint32_t left[4] = {1, 2, 3, 4};
  if (mistake != Mistake::kNoBegin) begin_products();
  multiply<true>(sums, left, Tile::of_columns(tile, 0), false);
  multiply<false, false>(sums, Tile::of_rows(tile, 0, 0), Tile::of_rows(tile, 0, 1), true);
  end_products();
  if (mistake == Mistake::kOverwrites) tile[threadIdx.x] ^= 1;
  if (mistake == Mistake::kTouchesSums) sums[3][2] *= 2;
  if (mistake == Mistake::kChangesLeftOperand) left[2] = 7;
  EXPECT_TRUE(std::isnan(sums[0][0]) || mistake == Mistake::kTouchesSums);
  if (mistake == Mistake::kNoWait) return;
  if (mistake == Mistake::kCopyNotWaitedFor) wait_for(full, 0);
  wait_for_products<0>();
  if (mistake != Mistake::kOneWarpMissing || threadIdx.x >= kWarp) sync_group(2, 128);
  out[threadIdx.x] = sums[7][3];
}

void run(Mistake mistake) {
  const auto x = random_values<BFloat16>(64 * 64, 1);
  Values<float> out(128, std::numeric_limits<float>::quiet_NaN());
  const CUtensorMap map = cuda::tensor_map({.data = x.data(),
                                            .sizes = {64, 64, 1, 1},
                                            .strides = {64, 64, 64},
                                            .box_columns = 64,
                                            .box_rows = 64});
  launch({.kernel = "product", .grid = 2, .block = 128, .shared_bytes = Tile::kBytes + 8},
         one_product, map, mistake, out.data());
  for (const float number : out) EXPECT_FALSE(std::isnan(number));
}

TEST(WarpgroupEmulationTest, RefusesMistakes) {
  run(Mistake::kNone);
  for (int i = 1; i <= static_cast<int>(Mistake::kNotInitialised); ++i) {
    EXPECT_THROW(run(static_cast<Mistake>(i)), std::logic_error) << i;
    run(Mistake::kNone);  // nothing is left behind
  }
}

TEST(WarpgroupEmulationTest, RefusesTensorsThatTheDriverRefuses) {
  const auto x = random_values<BFloat16>(64 * 64, 1);
  cuda::TensorBoxes boxes{.data = x.data(),
                          .sizes = {64, 64, 1, 1},
                          .strides = {64, 64, 64},
                          .box_columns = 64,
                          .box_rows = 64};
  cuda::tensor_map(boxes);
  boxes.strides[0] = 68;
  EXPECT_THROW(cuda::tensor_map(boxes), std::runtime_error);
  boxes.strides[0] = 64;
  boxes.box_columns = 40;
  EXPECT_THROW(cuda::tensor_map(boxes), std::runtime_error);
}

}  // namespace
}  // namespace tapestry
