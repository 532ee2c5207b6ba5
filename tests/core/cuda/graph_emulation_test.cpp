// Refusing a graph, which only the emulation can do on request.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "core/cuda/runtime.h"
#include "core/dispatch.h"
#include "core/kernels/elementwise.h"

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

}  // namespace
}  // namespace tapestry
