// Every row of the gradient table, operations, layers and tiny models, on a GPU against the CPU:
// values and all gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "nn/gradcheck/models.h"
#include "nn/layers/unpadded.h"
#include "tests/core/cuda/need_gpu.h"

namespace tapestry {
namespace {

std::vector<GradcheckCase> all_rows(const GradcheckPlace& place) {
  std::vector<GradcheckCase> rows = operation_gradchecks(place);
  for (GradcheckCase& row : model_gradchecks(place)) rows.push_back(std::move(row));
  return rows;
}

// The largest difference over the largest magnitude, of all elements of all tensors.
double distance(const TapeResult& a, const TapeResult& b) {
  double difference = 0, magnitude = 0;
  const auto compare = [&](const Tensor& x, const Tensor& y) {
    ASSERT_EQ(x.defined(), y.defined());
    if (!x.defined()) return;
    ASSERT_TRUE(x.shape() == y.shape());
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double p = x.data<double>()[i], q = y.data<double>()[i];
      ASSERT_TRUE(std::isfinite(p) && std::isfinite(q));
      difference = std::max(difference, std::abs(p - q));
      magnitude = std::max(magnitude, std::abs(p));
    }
  };
  compare(a.value, b.value);
  for (size_t i = 0; i < a.gradients.size(); ++i) compare(a.gradients[i], b.gradients[i]);
  return difference / std::max(magnitude, 1e-300);
}

void expect_parity(DType dtype, double tolerance) {
  NEED_GPU();
  const Unpadded::Off padded;
  const std::vector<GradcheckCase> expected = all_rows({});
  const std::vector<GradcheckCase> actual = all_rows({{Device::Kind::kCuda, 0}, dtype});
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(expected[i].name);
    // A layer's running statistics have the parameters' dtype: the config refuses this pair.
    const bool batch_layer = expected[i].name.ends_with(", batch");
    if (dtype == DType::kBFloat16 && batch_layer) continue;
    try {
      EXPECT_LE(distance(evaluate(expected[i]), evaluate(actual[i])), tolerance);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

TEST(CudaParityTest, Float64) { expect_parity(DType::kFloat64, 1e-10); }
TEST(CudaParityTest, Float32) { expect_parity(DType::kFloat32, 1e-5); }
// Every operation rounds to 8 bits, and the recurrent rows chain tens of them: this finds wrong
// results, not imprecise ones. The kernel tests hold single operations to 1.6e-2.
TEST(CudaParityTest, BFloat16) { expect_parity(DType::kBFloat16, 0.2); }

}  // namespace
}  // namespace tapestry
