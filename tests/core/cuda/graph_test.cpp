// core/cuda/graph.h: work gives the same results with and without graphs.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "core/base/error.h"
#include "core/cuda/runtime.h"
#include "core/dispatch.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/matmul/gemm.h"
#include "core/tensor.h"

namespace tapestry {
namespace {

constexpr Device kGraphDevice{Device::Kind::kCuda, 0};

class GraphTest : public testing::Test {
 protected:
  void SetUp() override { before_ = cuda::graph_stats(); }
  GraphStats since() const {
    const GraphStats now = cuda::graph_stats();
    return {now.graphs - before_.graphs, 0, now.launches - before_.launches,
            now.updates - before_.updates, ""};
  }

  GraphStats before_;
};

Tensor row(const std::vector<float>& values) {
  const Tensor tensor = Tensor::empty({static_cast<int64_t>(values.size())}, DType::kFloat32);
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

// y = factor x + 1, on the GPU.
void scale(double factor, const Tensor& x, const Tensor& y) {
  kernels::affine(Cuda{}, factor, x.data<float>(), 1, y.data<float>(), x.numel());
}

using Floats = std::vector<float>;

TEST_F(GraphTest, TheSameWorkBecomesAGraphAndTakesOtherArguments) {
  const Tensor y = Tensor::zeros({3}, DType::kFloat32, kGraphDevice);
  for (int i = 0; i < 5; ++i) {
    cuda::as_graph([&] {
      // An upload, a copy, a fill, and a kernel with another argument each time.
      const Tensor x = row({1, 2, static_cast<float>(i)}).to(kGraphDevice), copy = x.clone(),
                   zero = Tensor::zeros({3}, DType::kFloat32, kGraphDevice);
      scale(i, copy, y);
      scale(1, zero, zero);
    });
    const float n = static_cast<float>(i);
    EXPECT_EQ(y.to_vector<float>(), (Floats{n + 1, 2 * n + 1, n * n + 1})) << i;
  }
  EXPECT_EQ(since().graphs, 1);
  EXPECT_EQ(since().launches, 4) << "all but the first";
  EXPECT_GE(since().updates, 3) << "the factor";
  EXPECT_LE(since().updates, 2 * 3) << "and the place in pinned memory";
}

TEST_F(GraphTest, OtherSizesAreOtherGraphs) {
  for (int turn = 0; turn < 3; ++turn) {
    for (const int64_t n : {5, 5000, 50000}) {
      const Tensor x = Tensor::full({n}, 2, DType::kFloat32, kGraphDevice);
      cuda::as_graph([&] { scale(3, x, x); });
      EXPECT_EQ(x.to_vector<float>(), Floats(static_cast<size_t>(n), 7));
    }
  }
  EXPECT_EQ(since().graphs, 3);
  EXPECT_EQ(since().launches, 6);
}

TEST_F(GraphTest, WhatMustBeKnownAtOnceEndsTheCollecting) {
  for (int turn = 0; turn < 3; ++turn) {
    const Tensor x = row({1, 2}).to(kGraphDevice), y = row({0, 0}).to(kGraphDevice);
    cuda::as_graph([&] {
      scale(2, x, y);
      EXPECT_EQ(y.to_vector<float>(), (Floats{3, 5}));
      scale(3, y, y);
    });
    EXPECT_EQ(y.to_vector<float>(), (Floats{10, 16}));
  }
  EXPECT_EQ(since().launches, 0);
}

TEST_F(GraphTest, AnErrorWithinLosesNothing) {
  const Tensor x = row({1, 2}).to(kGraphDevice);
  EXPECT_THROW(cuda::as_graph([&] {
                 scale(2, x, x);
                 fail(ErrorKind::kRuntime, "within");
               }),
               Error);
  EXPECT_EQ(x.to_vector<float>(), (Floats{3, 5}));
  cuda::as_graph([&] { scale(2, x, x); });
  EXPECT_EQ(x.to_vector<float>(), (Floats{7, 11}));
}

TEST_F(GraphTest, AnUploadThatIsTooLongIsNotCollected) {
  std::vector<float> values(1 << 19);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
  const Tensor x = Tensor::zeros({1 << 19}, DType::kFloat32, kGraphDevice);
  cuda::as_graph([&] {
    scale(2, x, x);
    x.copy_from(row(values));
    scale(0, x, x);
    x.copy_from(row(values));
  });
  EXPECT_EQ(x.to_vector<float>(), values);
}

// The arguments of a library's kernels cannot be changed, so other addresses need another graph,
// but only a limited number of times.
TEST_F(GraphTest, ProductsAtOtherAddressesAreOtherGraphs) {
  const auto product = [](const Tensor& a, const Tensor& c) {
    Gemm<float> g;
    g.m = g.n = g.k = g.lda = g.ldb = g.ldc = 2;
    g.a = g.b = a.data<float>(), g.c = c.data<float>();
    kernels::gemm(Cuda{}, g);
  };
  const Tensor a = row({1, 2, 3, 4}).to(kGraphDevice);
  std::vector<Tensor> results;
  for (int i = 0; i < 12; ++i) results.push_back(row({0, 0, 0, 0}).to(kGraphDevice));
  product(a, results[0]);  // a product that never ran is not collected
  for (const Tensor& c : results) {
    for (int turn = 0; turn < 3; ++turn) {
      c.copy_from(row({0, 0, 0, 0}));
      cuda::as_graph([&] { product(a, c); });
      EXPECT_EQ(c.to_vector<float>(), (Floats{7, 10, 15, 22}));
    }
  }
  EXPECT_EQ(since().graphs, 5);
  EXPECT_EQ(since().launches, 3 * 5 - 1) << "all but the very first";
}

TEST_F(GraphTest, AGraphThatPaysOffIsForgivenItsAddresses) {
  const Tensor a = row({1, 2, 3, 4}).to(kGraphDevice);
  std::vector<Tensor> results;
  for (int i = 0; i < 8; ++i) results.push_back(row({0, 0, 0, 0}).to(kGraphDevice));
  const auto product = [&](const Tensor& c) {
    Gemm<float> g;
    g.m = 2, g.n = g.k = 1, g.lda = g.ldb = 1, g.ldc = 2;
    g.a = g.b = a.data<float>(), g.c = c.data<float>();
    kernels::gemm(Cuda{}, g);
  };
  product(results[0]);
  for (const Tensor& c : results) {
    for (int turn = 0; turn < 12; ++turn) cuda::as_graph([&] { product(c); });
    EXPECT_EQ(c.to_vector<float>(), (Floats{1, 0, 2, 0}));
  }
  EXPECT_EQ(since().graphs, 8);
}

}  // namespace
}  // namespace tapestry
