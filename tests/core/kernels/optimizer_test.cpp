#include "core/kernels/optimizer.h"

#include <set>

#include "core/kernels/optimizer_functors.h"
#include "core/kernels/sum_squares.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

// Sizes around the vector lengths and across the ends of chunks (16384 elements).
const std::vector<int64_t> kTensorSizes = {1, 31, 0, 33, 257, 16384, 5, 20011};

template <class T>
using Tensors = std::vector<Values<T>>;

template <class T>
Tensors<T> random_tensors(uint32_t stream, bool positive,
                          const std::vector<int64_t>& sizes = kTensorSizes) {
  Tensors<T> values;
  uint64_t index = 0;
  for (const int64_t size : sizes) {
    Values<T>& tensor = values.emplace_back(size);
    for (T& x : tensor) {
      const double drawn = philox_normal({7, 0, stream}, index++);
      x = static_cast<T>(positive ? std::abs(drawn) : drawn);
    }
  }
  return values;
}

// Parameters, gradients and state of one rule; the state of these rules may be any positive number.
template <class T, class Step>
struct Update {
  static constexpr size_t kStates = Step::kStates.size();

  Tensors<T> param, grad;
  std::vector<Tensors<T>> state;

  explicit Update(const std::vector<int64_t>& sizes = kTensorSizes)
      : param(random_tensors<T>(1, false, sizes)), grad(random_tensors<T>(2, false, sizes)) {
    for (uint32_t k = 0; k < kStates; ++k) {
      state.push_back(random_tensors<T>(3 + k, true, sizes));
    }
  }

  std::vector<ParameterUpdate<T>> updates(const Step& step) {
    std::vector<ParameterUpdate<T>> result;
    for (size_t i = 0; i < param.size(); ++i) {
      ParameterUpdate<T> update{
          step, param[i].data(), grad[i].data(), {}, static_cast<int64_t>(param[i].size())};
      for (size_t k = 0; k < kStates; ++k) update.state[k] = state[k][i].data();
      result.push_back(update);
    }
    return result;
  }
};

template <class T, class Step>
void run_kernel(const Step& step, const GradientTransform& transform, Update<T, Step>& problem) {
  const auto updates = problem.updates(step);
  kernels::optimizer_step<T>(TestDevice{}, updates, transform);
}

template <class T, class Step>
void run_functor(const Step& step, const GradientTransform& transform, Update<T, Step>& problem) {
  const auto rule = rule_of<T>(step);
  const T limit = static_cast<T>(transform.limit);
  constexpr size_t kStates = Step::kStates.size();
  for (const auto& update : problem.updates(step)) {
    for (int64_t i = 0; i < update.n; ++i) {
      const T grad = static_cast<T>(transform.scale) * update.grad[i];
      T state[kStates + 1] = {};
      for (size_t k = 0; k < kStates; ++k) state[k] = update.state[k][i];
      rule(update.param[i], std::max(-limit, std::min(limit, grad)), state);
      for (size_t k = 0; k < kStates; ++k) update.state[k][i] = state[k];
    }
  }
}

template <class T>
void expect_near(const Tensors<T>& actual, const Tensors<T>& expected, const char* what) {
  // A handful of roundings on numbers of order one; fused against separate multiply-add.
  const T tolerance = 16 * std::numeric_limits<T>::epsilon();
  for (size_t i = 0; i < expected.size(); ++i) {
    for (size_t j = 0; j < expected[i].size(); ++j) {
      const T scale = std::max(T{1}, std::abs(expected[i][j]));
      ASSERT_NEAR(actual[i][j], expected[i][j], tolerance * scale)
          << what << " of tensor " << i << ", element " << j;
    }
  }
}

const OptimizerStep kSteps[] = {
    SgdStep{0.1, 0.01},
    MomentumStep{0.1, 0.01, 0.9, false},
    MomentumStep{0.1, 0.01, 0.9, true},
    AdagradStep{0.1, 0.01, 1e-10},
    RmspropStep{0.1, 0.01, 0.99, 1e-8},
    AdadeltaStep{0.1, 0.01, 0.9, 1e-6},
    AdamStep{0.1, 0.01, 0.9, 0.98, 1e-9, false, 1 - 0.9, 1 - 0.98},
    AdamStep{0.1, 0.01, 0.9, 0.98, 1e-9, true, 1 - 0.81, 1 - 0.98 * 0.98},
    MuonMomentumStep{0.95, false},
    MuonMomentumStep{0.95, true},
    MuonRowsStep{0.95},
    MuonStep{0.1, 1 - 0.01, false},
    MuonStep{0.1, 1 - 0.01, true},
};

TEST(OptimizerKernel, EveryRuleIsTested) {
  std::set<size_t> tested;
  for (const OptimizerStep& step : kSteps) tested.insert(step.index());
  EXPECT_EQ(tested.size(), std::variant_size_v<OptimizerStep>);
}

// Calls f(float{}, step) and f(double{}, step) for every rule.
template <class F>
void for_each_rule(F&& f) {
  for (const OptimizerStep& any : kSteps) {
    std::visit(
        [&](const auto& step) {
          f(float{}, step);
          f(double{}, step);
        },
        any);
  }
}

TEST(OptimizerKernel, VectorFormEqualsFunctor) {
  const GradientTransform plain, clipped{0.37, 0.4};
  for_each_rule([&](auto type, const auto& step) {
    using T = decltype(type);
    using Step = std::decay_t<decltype(step)>;
    for (const GradientTransform& transform : {plain, clipped}) {
      Update<T, Step> actual, expected;
      run_kernel(step, transform, actual);
      run_functor(step, transform, expected);
      expect_near(actual.param, expected.param, "parameter");
      for (size_t k = 0; k < Step::kStates.size(); ++k) {
        expect_near(actual.state[k], expected.state[k], "state");
      }
    }
  });
}

TEST(OptimizerKernel, ClippingReachesTheRule) {
  Update<double, SgdStep> problem({4});
  problem.param[0] = {1, 1, 1, 1};
  problem.grad[0] = {8, -8, 1, -1};
  run_kernel(SgdStep{0.5, 0.0}, GradientTransform{0.5, 3}, problem);
  EXPECT_EQ(problem.param[0], (Values<double>{-0.5, 2.5, 0.75, 1.25}));
}

// The norm may lie in device memory: the same clipping, without the host.
TEST(OptimizerKernel, ClipsByANormThatItReads) {
  const AdamStep step{0.1, 0.01, 0.9, 0.98, 1e-9, false, 1 - 0.9, 1 - 0.98};
  const Values<double> squared_norm(1, 16.0);
  for (const double max_norm : {0.0, 0.5, 100.0}) {
    // scale * 4 is the norm after scaling.
    const double factor = max_norm == 0.5 ? 0.5 / (0.5 * 4 + 1e-6) : 1;
    Update<double, AdamStep> actual, expected;
    run_kernel(step, {-0.5, 0.4, squared_norm.data(), max_norm}, actual);
    run_kernel(step, {-0.5 * factor, 0.4}, expected);
    expect_near(actual.param, expected.param, "parameter");
    for (int k = 0; k < 2; ++k) expect_near(actual.state[k], expected.state[k], "state");
  }
}

TEST(OptimizerKernel, ANormThatIsNotFiniteSkipsTheUpdate) {
  const AdamStep step{0.1, 0.01, 0.9, 0.98, 1e-9, false, 1 - 0.9, 1 - 0.98};
  using Limits = std::numeric_limits<double>;
  for (const double bad : {Limits::infinity(), Limits::quiet_NaN()}) {
    const Values<double> squared_norm(1, bad);
    Update<float, AdamStep> problem;
    const auto param = problem.param;
    const auto state = problem.state;
    problem.grad[4][100] = std::numeric_limits<float>::quiet_NaN();
    run_kernel(step, {1, 0.4, squared_norm.data(), 1}, problem);
    EXPECT_EQ(problem.param, param);
    EXPECT_EQ(problem.state, state);
  }
}

// More tensors than the table of one launch holds.
TEST(OptimizerKernel, HundredsOfTensors) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < 300; ++i) sizes.push_back(i % 7);
  const AdamStep step{0.1, 0.01, 0.9, 0.98, 1e-9, true, 1 - 0.9, 1 - 0.98};
  Update<float, AdamStep> actual(sizes), expected(sizes);
  run_kernel(step, {}, actual);
  run_functor(step, {}, expected);
  expect_near(actual.param, expected.param, "parameter");
  expect_near(actual.state[1], expected.state[1], "state");
}

TEST(OptimizerKernel, BitsDoNotDependOnThreadsOrOnTheCut) {
  for_each_rule([&](auto type, const auto& step) {
    using T = decltype(type);
    using Step = std::decay_t<decltype(step)>;
    const GradientTransform transform{0.37, 0.4};
    Update<T, Step> one, two;
    set_num_threads(1);
    run_kernel(step, transform, one);
    set_num_threads(2);
    run_kernel(step, transform, two);
    set_num_threads(0);
    EXPECT_EQ(one.param, two.param);
    EXPECT_EQ(one.state, two.state);

    // The same numbers as one tensor: draws are numbered through, so the values agree.
    int64_t total = 0;
    for (const int64_t size : kTensorSizes) total += size;
    Update<T, Step> joined({total});
    run_kernel(step, transform, joined);
    Values<T> parts;
    for (const auto& tensor : one.param) parts.insert(parts.end(), tensor.begin(), tensor.end());
    EXPECT_EQ(joined.param[0], parts);
  });
}

template <class T>
class SumSquares : public testing::Test {};
TYPED_TEST_SUITE(SumSquares, DeviceTypes);

template <class T>
double sum_squares_of(const Tensors<T>& values) {
  std::vector<ElementSpan<T>> spans;
  for (const auto& tensor : values) {
    spans.push_back({tensor.data(), static_cast<int64_t>(tensor.size())});
  }
  Values<double> result(1, -1.0);
  kernels::sum_squares<T>(TestDevice{}, spans, result.data());
  return result[0];
}

TYPED_TEST(SumSquares, EqualsNaiveLoop) {
  const auto values = random_tensors<TypeParam>(9, false);
  long double expected = 0;
  for (const auto& tensor : values) {
    for (const TypeParam x : tensor)
      expected += static_cast<long double>(as_double(x)) * as_double(x);
  }
  EXPECT_NEAR(sum_squares_of(values), static_cast<double>(expected), 1e-13 * expected);
  EXPECT_EQ(sum_squares_of<TypeParam>({}), 0.0);
  EXPECT_EQ(sum_squares_of<TypeParam>({{}, {TypeParam{3}, TypeParam{4}}, {}}), 25.0);
}

// Chunks may be summed apart, by whoever has them.
TYPED_TEST(SumSquares, ChunksOfOneArrayAddUpToIt) {
  using T = TypeParam;
  if constexpr (std::is_same_v<T, Wider<T>>) {
    constexpr int64_t kChunk = kernels::kSquaresChunk;
    for (const int64_t n : {int64_t{1}, kChunk, 3 * kChunk, 3 * kChunk + 31}) {
      const Values<T> x = random_values<T>(n, 4);
      const int64_t count = (n + kChunk - 1) / kChunk;
      Values<double> whole(count), apart(count), result(1);
      kernels::chunk_squares(TestDevice{}, x.data(), n, whole.data());
      for (int64_t c = 0; c < count; ++c) {
        kernels::chunk_squares(TestDevice{}, x.data() + c * kChunk,
                               std::min(kChunk, n - c * kChunk), apart.data() + c);
      }
      kernels::add_chunks(TestDevice{}, whole.data(), count, result.data());
      finish_work();
      EXPECT_EQ(whole, apart);
      EXPECT_NEAR(result[0], sum_squares_of<T>({x}), 1e-13 * result[0]);
      if constexpr (std::is_same_v<TestDevice, Cpu>) {
        EXPECT_EQ(result[0], sum_squares_of<T>({x}));
      }
    }
  }
}
TYPED_TEST(SumSquares, HundredsOfTensors) {
  const Tensors<TypeParam> values(500, {TypeParam{1}, TypeParam{2}, TypeParam{3}});
  EXPECT_EQ(sum_squares_of(values), 500.0 * 14);
}

TYPED_TEST(SumSquares, SameBitsForAnyNumberOfThreads) {
  const auto values = random_tensors<TypeParam>(9, false);
  set_num_threads(1);
  const double one = sum_squares_of(values);
  set_num_threads(3);
  const double three = sum_squares_of(values);
  set_num_threads(0);
  EXPECT_EQ(one, three);
}

TYPED_TEST(SumSquares, FindsEveryNonFiniteElement) {
  using Limits = std::numeric_limits<double>;
  auto values = random_tensors<TypeParam>(9, false);
  for (const auto& [tensor, element] : {std::pair{0, 0}, {3, 32}, {4, 100}, {7, 20010}}) {
    const TypeParam before = values[tensor][element];
    for (const double bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
      values[tensor][element] = static_cast<TypeParam>(bad);
      EXPECT_FALSE(std::isfinite(sum_squares_of(values))) << tensor << ' ' << element;
    }
    values[tensor][element] = before;
  }
  EXPECT_TRUE(std::isfinite(sum_squares_of(values)));
}

TYPED_TEST(SumSquares, LargeElementsDoNotOverflow) {
  using T = TypeParam;
  const T large = static_cast<T>(1e30);
  EXPECT_NEAR(sum_squares_of<T>({{large, large}}), 2e60, 2 * kEpsilon<T> * 1e60 + 1e54);
}

// What each tensor has of it.
TYPED_TEST(SumSquares, CountsTheZerosOfEachTensor) {
  using T = TypeParam;
  if constexpr (std::is_same_v<TestDevice, Cpu>) {
    on_every_target([] {
      auto values = random_tensors<T>(9, false);
      for (const auto& [tensor, element] : {std::pair{0, 0}, {3, 32}, {3, 1}, {7, 20010}}) {
        values[tensor][element] = static_cast<T>(element == 1 ? -0.0 : 0.0);
      }
      std::vector<ElementSpan<T>> spans;
      for (const auto& tensor : values) spans.push_back({tensor.data(), std::ssize(tensor)});
      std::vector<kernels::TensorSquares> each(values.size());
      double sum = 0;
      kernels::sum_squares<T>(TestDevice{}, spans, &sum, each);
      EXPECT_EQ(sum, sum_squares_of(values));
      for (size_t i = 0; i < each.size(); ++i) {
        const double alone = sum_squares_of<T>({values[i]});
        EXPECT_NEAR(each[i].squares, alone, 1e-13 * alone);
        EXPECT_EQ(each[i].zeros, i == 3 ? 2 : i == 0 || i == 7 ? 1 : 0) << i;
      }
    });
  }
}

template <class T>
class MovingAverage : public testing::Test {};
TYPED_TEST_SUITE(MovingAverage, DeviceTypes);

TYPED_TEST(MovingAverage, EqualsNaiveLoop) {
  using T = TypeParam;
  using W = Wider<T>;
  auto average = random_tensors<W>(1, false);
  const auto value = random_tensors<T>(2, false);
  auto expected = average;
  std::vector<AverageUpdate<T>> updates;
  for (size_t i = 0; i < average.size(); ++i) {
    for (size_t j = 0; j < average[i].size(); ++j) {
      expected[i][j] =
          static_cast<W>(0.9 * as_double(average[i][j]) + 0.1 * as_double(value[i][j]));
    }
    updates.push_back(
        {average[i].data(), value[i].data(), static_cast<int64_t>(average[i].size())});
  }
  kernels::moving_average<T>(TestDevice{}, 0.9, updates);
  expect_near(average, expected, "average");
}

}  // namespace
}  // namespace tapestry
