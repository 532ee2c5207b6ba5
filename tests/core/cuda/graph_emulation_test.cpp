// Refusing a graph, which only the emulation can do on request, and kernels of a test's own.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/cuda/runtime.h"
#include "core/dispatch.h"
#include "core/kernels/cuda/common.cuh"
#include "core/kernels/elementwise/elementwise.h"

namespace tapestry {
namespace {

TEST(GraphEmulationTest, WorkWhoseGraphIsRefusedIsLaunchedAsItComes) {
  const Tensor x = Tensor::full({777}, 1, DType::kFloat32, {Device::Kind::kCuda, 0});
  const auto triple = [&] {
    kernels::affine(Cuda{}, 3.0, x.data<float>(), 0.0, x.data<float>(), x.numel());
  };
  const GraphStats before = cuda::graph_stats();
  cuda_emulation::graphs_to_refuse = 1;
  for (int i = 0; i < 4; ++i) cuda::as_graph(triple);
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(777, 81.0f));
  const GraphStats after = cuda::graph_stats();
  EXPECT_EQ(after.launches, before.launches);
  EXPECT_NE(after.refusal.find("[graph] CUDA says"), std::string::npos) << after.refusal;
}

struct Padded {
  bool first;
  double second;
};
void write_second(Padded from, double* to) { *to = from.second; }

TEST(GraphEmulationTest, PaddingOfAnArgumentIsNoChange) {
  const Tensor x = Tensor::full({1}, 0, DType::kFloat64, {Device::Kind::kCuda, 0});
  const GraphStats before = cuda::graph_stats();
  for (int i = 0; i < 5; ++i) {
    alignas(Padded) unsigned char memory[sizeof(Padded)];
    std::memset(memory, 17 * i, sizeof(memory));
    auto* const argument = reinterpret_cast<Padded*>(memory);
    argument->first = true, argument->second = i < 4 ? 3 : 4;
    cuda::as_graph([&] {
      launch({.kernel = "write_second", .grid = 1, .block = 1}, write_second, *argument,
             x.data<double>());
    });
  }
  EXPECT_EQ(x.to_vector<double>(), std::vector<double>{4});
  EXPECT_EQ(cuda::graph_stats().launches - before.launches, 4);
  EXPECT_EQ(cuda::graph_stats().updates - before.updates, 1) << "the last";
}

}  // namespace
}  // namespace tapestry
