// time_kernels(): what was launched, how often, and under which name.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/cuda/runtime.h"
#include "core/cuda/times.h"
#include "core/device_runtime.h"
#include "core/dispatch.h"
#include "core/kernels/cross_entropy.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/matmul/gemm.h"

namespace tapestry {
namespace {

constexpr Device kGpu{Device::Kind::kCuda, 0};

std::map<std::string, KernelTime> measured() {
  std::map<std::string, KernelTime> result;
  for (const KernelTime& time : kernel_times()) result[time.name] = time;
  return result;
}

// A program that measures goes on to its end; other tests here want their graphs.
struct KernelTimes : testing::Test {
  ~KernelTimes() override { cuda::internal::times_are_on = false; }
};

TEST_F(KernelTimes, CountsAndMeasuresByName) {
  const Tensor x = Tensor::full({100, 100}, 0.5, DType::kFloat32, kGpu), y = x.clone();
  const auto work = [&] {
    kernels::affine(Cuda{}, 2.0, x.data<float>(), 1.0, y.data<float>(), x.numel());
    kernels::affine(Cuda{}, 3.0, x.data<float>(), 1.0, y.data<float>(), x.numel());
    Gemm<float> g;
    g.m = 100, g.n = 50, g.k = 20, g.lda = 20, g.ldb = 50, g.ldc = 50;
    g.a = x.data<float>(), g.b = x.data<float>(), g.c = y.data<float>();
    kernels::gemm(Cuda{}, g);
  };
  work();
  EXPECT_TRUE(kernel_times().empty()) << "nobody asked";

  time_kernels();
  work();
  const Tensor copy = x.clone();
  auto times = measured();
  EXPECT_EQ(times["affine"].launches, 2);
  EXPECT_EQ(times["product float32 nn 100 x 50 x 20"].launches, 1);
  EXPECT_EQ(times["copy"].launches, 1);
  EXPECT_EQ(times.size(), 3u);
  const std::vector<KernelTime> sorted = kernel_times();
  for (size_t i = 0; i < sorted.size(); ++i) {
    EXPECT_GT(sorted[i].milliseconds, 0) << sorted[i].name;
    EXPECT_GE(sorted[i > 0 ? i - 1 : 0].milliseconds, sorted[i].milliseconds);
  }

  forget_kernel_times();
  EXPECT_TRUE(kernel_times().empty());

  // More than there are events at once.
  for (int i = 0; i < 9000; ++i) {
    kernels::affine(Cuda{}, 2.0, x.data<float>(), 1.0, y.data<float>(), 4);
  }
  EXPECT_EQ(measured()["affine"].launches, 9000);

  const int64_t graphs = graph_stats().launches;
  forget_kernel_times();
  for (int i = 0; i < 4; ++i) as_graph(kGpu, work);
  EXPECT_EQ(graph_stats().launches, graphs) << "each piece by itself";
  EXPECT_EQ(measured()["affine"].launches, 8);
}

// cuBLASLt is slow where a row of logits is no multiple of 16 bytes.
TEST_F(KernelTimes, ClassifiersMultiplyWholeRows) {
  constexpr int64_t kRows = 16, kIn = 8;
  const auto gpu = [](const Shape& shape) {
    return Tensor::full(shape, 0.5, DType::kBFloat16, kGpu);
  };
  const Tensor x = gpu({kRows, kIn}), dx = gpu({kRows, kIn});
  const Tensor targets = Tensor::full({kRows}, 300, DType::kInt32, kGpu);
  const Tensor sums = Tensor::full({sizeof(CrossEntropySums) / 8}, 0, DType::kFloat64, kGpu);
  time_kernels();
  for (const bool with_bias : {false, true}) {
    for (const auto& [classes, columns] : {std::pair<int64_t, int64_t>{301, 320}, {304, 304}}) {
      SCOPED_TRACE(testing::Message() << classes << " classes, bias " << with_bias);
      const Tensor weight = gpu({classes, kIn}), d_weight = gpu({classes, kIn});
      const Tensor bias = gpu({classes}), d_bias = gpu({classes});
      forget_kernel_times();
      kernels::linear_cross_entropy<BFloat16>(
          Cuda{}, {kRows, classes, 0.1, -1},
          {.in = kIn,
           .x = x.data<BFloat16>(),
           .weight = weight.data<BFloat16>(),
           .bias = with_bias ? bias.data<BFloat16>() : nullptr,
           .targets = {targets.data<int32_t>(), nullptr},
           .dx = dx.data<BFloat16>(),
           .d_weight = d_weight.data<BFloat16>(),
           .d_bias = with_bias ? d_bias.data<BFloat16>() : nullptr},
          reinterpret_cast<CrossEntropySums*>(sums.data<double>()));
      auto times = measured();
      const std::string n = std::to_string(columns), end = with_bias ? " bias" : "";
      EXPECT_EQ(times["product bfloat16 nt 16 x " + n + " x 8" + end].launches, 1) << "logits";
      EXPECT_EQ(times["product bfloat16 nn 16 x 8 x " + n].launches, 1) << "of x";
      EXPECT_EQ(times["product bfloat16 tn " + n + " x 8 x 16"].launches, 1) << "of the weight";
      const int64_t copied = classes == columns ? 0 : with_bias ? 4 : 2;
      EXPECT_EQ(times["copy"].launches, copied) << "operands and results";
    }
  }
}

}  // namespace
}  // namespace tapestry
