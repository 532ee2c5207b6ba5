// Figures of gradients, which come with the sum of their squares: the same bits with and without.
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/philox.h"
#include "optim/optimizer.h"

namespace tapestry {
namespace {

template <class T>
class GradientFiguresTest : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(GradientFiguresTest, Types);

// Sizes around those of vectors and of chunks; every third element of some is 0.
template <class T>
NamedVars parameters_with_gradients(const std::vector<int64_t>& sizes) {
  NamedVars params;
  for (size_t p = 0; p < sizes.size(); ++p) {
    std::vector<T> values;
    for (int64_t i = 0; i < sizes[p]; ++i) {
      const PhiloxKey key{.seed = 3, .step = 0, .stream = static_cast<uint32_t>(p)};
      const double x = to_uniform(philox_bits(key, static_cast<uint64_t>(i))) - 0.5;
      values.push_back(p % 2 == 0 && i % 3 == 0 ? T(0) : static_cast<T>(x));
    }
    const Var var = Var::parameter(Tensor::zeros({sizes[p]}, dtype_of<T>));
    var.gradient()->accept(Tensor::from(values, {sizes[p]}));
    params.emplace_back(concat("p", p), var);
  }
  return params;
}

TYPED_TEST(GradientFiguresTest, AreThoseOfEachParameter) {
  const std::vector<int64_t> sizes = {1, 31, 33, 257, 16384, 16385, 40000, 5};
  const NamedVars params = parameters_with_gradients<TypeParam>(sizes);
  const Var idle = Var::parameter(Tensor::zeros({7}, dtype_of<TypeParam>));
  NamedVars all = params;
  all.insert(all.begin() + 3, {"idle", idle});
  Optimizer plain(optimizer_defaults(OptimizerType::kSgd), all);
  Optimizer counting(optimizer_defaults(OptimizerType::kSgd), all);
  EXPECT_TRUE(plain.figures().empty());
  counting.count_figures();
  const double norm = plain.step(0).grad_norm;
  EXPECT_TRUE(plain.figures().empty());
  EXPECT_EQ(counting.step(0).grad_norm, norm);
  ASSERT_EQ(counting.figures().size(), all.size());
  double total = 0;
  for (const GradientFigures& figures : counting.figures()) {
    if (figures.name == "idle") {
      EXPECT_EQ(figures.elements, 0);
      continue;
    }
    const auto p = static_cast<size_t>(std::stoi(figures.name.substr(1)));
    double squares = 0;
    int64_t zeros = 0;
    for (const double x : params[p].second.grad().template to_vector<double>()) {
      squares += x * x;
      zeros += x == 0 ? 1 : 0;
    }
    EXPECT_EQ(figures.elements, sizes[p]);
    EXPECT_EQ(figures.zeros, zeros) << p;
    EXPECT_NEAR(figures.squares, squares, 1e-12 * squares) << p;
    total += figures.squares;
  }
  EXPECT_NEAR(std::sqrt(total), norm, 1e-12 * norm);
}

// Where the sum is known from elsewhere, they still come.
TYPED_TEST(GradientFiguresTest, ComeBesideAGivenSum) {
  const NamedVars params = parameters_with_gradients<TypeParam>({100, 5});
  Optimizer optimizer(optimizer_defaults(OptimizerType::kSgd), params);
  optimizer.count_figures();
  optimizer.launch(0, {}, 1, {}, Tensor::full({}, 4, DType::kFloat64));
  EXPECT_EQ(optimizer.outcome().grad_norm, 2);
  EXPECT_EQ(optimizer.figures()[0].zeros, 34);
}

}  // namespace
}  // namespace tapestry
