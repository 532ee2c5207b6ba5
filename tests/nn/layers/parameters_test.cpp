// What a new parameter takes of memory.
#include "nn/layers/parameters.h"

#include <gtest/gtest.h>

#include "core/allocator.h"

namespace tapestry {
namespace {

// The embeddings of a large vocabulary are a third of a small model: no second copy of them, and
// none in float64, may be made.
TEST(ParamStoreMemory, AParameterIsDrawnInItsOwnMemory) {
  constexpr int64_t kRows = 1 << 16, kBytes = kRows * 16 * 4;
  release_free_memory();
  const int64_t before = host_memory().bytes_in_use;
  reset_peak_bytes();
  ParamStore store(1, DType::kFloat32, Device{});
  const Var table = store.root().create("table", {kRows, 16}, Init::normal(1));
  EXPECT_LE(host_memory().peak_bytes - before, kBytes * 5 / 4 + 4096);
  EXPECT_EQ(table.value().bytes(), kBytes);
}

// Rounded from what a float64 model starts at.
TEST(ParamStoreMemory, TypesStartAtTheSamePoint) {
  const auto table = [](DType dtype) {
    ParamStore store(1, dtype, Device{});
    return store.root().create("table", {37, 5}, Init::normal(1)).value();
  };
  const auto exact = table(DType::kFloat64).to_vector<double>();
  const auto rounded = table(DType::kFloat32).to_vector<float>();
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(rounded[i], static_cast<float>(exact[i])) << i;
  }
}

}  // namespace
}  // namespace tapestry
