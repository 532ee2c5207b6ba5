// The gradient table against finite differences, and the check itself against wrong gradients.
#include "autograd/gradcheck.h"

#include <ostream>

#include "tests/autograd/support.h"

namespace tapestry {

void PrintTo(const GradcheckCase& test, std::ostream* out) { *out << test.name; }

namespace {

using test::parameter;

// The value of a case and the gradients of all its inputs, with an output gradient of ones.
struct Pass {
  Tensor value;
  std::vector<Tensor> gradients;
};

constexpr PhiloxKey kDraws{.seed = 5, .step = 3, .stream = 0};

void accumulate(const GradcheckCase& test, Pass& pass) {
  Tape tape(kDraws);
  const Var y = test.function();
  pass.value = y.value().clone();
  tape.backward(y, test::uniform(y.shape(), 1));
}

Pass run(const GradcheckCase& test, int passes) {
  for (const Var& input : test.inputs) input.zero_grad();
  Pass pass;
  for (int i = 0; i < passes; ++i) accumulate(test, pass);
  for (const Var& input : test.inputs) {
    pass.gradients.push_back(input.grad().defined() ? input.grad().clone() : Tensor());
    input.zero_grad();
  }
  return pass;
}

class OperationGradcheck : public ::testing::TestWithParam<GradcheckCase> {};

TEST_P(OperationGradcheck, EqualsFiniteDifferences) {
  ASSERT_LE(GetParam().tolerance, 1e-6) << "every row of the table is smooth where it is evaluated";
  const GradcheckResult result = gradcheck(GetParam());
  EXPECT_TRUE(result.passed) << result.worst_error << " at " << result.worst_place;
  EXPECT_GT(result.elements, 0);
}

TEST_P(OperationGradcheck, RepeatsBitByBitForAnyNumberOfThreads) {
  const Pass first = run(GetParam(), 1);
  for (const int threads : {1, 1, 2, 3}) {
    const test::WithThreads scope(threads);
    const Pass again = run(GetParam(), 1);
    EXPECT_TRUE(test::same_bits(first.value, again.value)) << threads << " threads";
    for (size_t i = 0; i < first.gradients.size(); ++i) {
      ASSERT_EQ(first.gradients[i].defined(), again.gradients[i].defined());
      if (!first.gradients[i].defined()) continue;
      EXPECT_TRUE(test::same_bits(first.gradients[i], again.gradients[i]))
          << "gradient " << i << ", " << threads << " threads";
    }
  }
}

// The second pass reaches the leaves with Write::kAdd.
TEST_P(OperationGradcheck, SecondPassDoublesTheGradients) {
  const Pass once = run(GetParam(), 1), twice = run(GetParam(), 2);
  for (size_t i = 0; i < once.gradients.size(); ++i) {
    if (!once.gradients[i].defined()) continue;
    const auto single = once.gradients[i].to_vector<double>();
    const auto sum = twice.gradients[i].to_vector<double>();
    for (size_t j = 0; j < single.size(); ++j) {
      ASSERT_NEAR(sum[j], 2 * single[j], 1e-13 * (1 + std::abs(single[j])))
          << "gradient " << i << " [" << j << ']';
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, OperationGradcheck, ::testing::ValuesIn(operation_gradchecks()),
                         [](const auto& info) { return test::identifier(info.param.name); });

// ---- Errors that the check must catch. Each function below has a right forward and a backward
// that is wrong in one way.

template <class F>
Var with_backward(const Var& x, const Tensor& value, F backward) {
  Var y = value.clone();
  Tape::record({&x}, y,
               [gradient = x.gradient(), backward](Tensor dy) { gradient->accept(backward(dy)); });
  return y;
}

Tensor without_tape(const std::function<Var()>& f) { return f().value(); }

TEST(GradcheckCatches, SoftmaxWhoseBackwardIsZero) {
  const Var x = parameter({3, 5}, 1);
  const GradcheckCase broken{"zero", {x}, [=] {
                               const Tensor y = softmax(Var(x.value())).value();
                               return with_backward(x, y, [](const Tensor& dy) {
                                 return Tensor::zeros(dy.shape(), dy.dtype());
                               });
                             }};
  const GradcheckResult result = gradcheck(broken);
  EXPECT_FALSE(result.passed);
  EXPECT_DOUBLE_EQ(result.worst_error, 1.0);
}

TEST(GradcheckCatches, OneElementThatIsALittleWrong) {
  const Var x = parameter({3, 5}, 2, 0.5, 1.5);
  const auto square = [=](double factor) {
    return [=] {
      return with_backward(x, without_tape([&] { return Var(x.value()) * Var(x.value()); }),
                           [=](const Tensor& dy) {
                             Tensor dx = (2.0 * Var(x.value()) * Var(dy)).value();
                             dx.data<double>()[7] *= factor;
                             return dx;
                           });
    };
  };
  EXPECT_TRUE(gradcheck({"right", {x}, square(1.0)}).passed);
  const GradcheckResult result = gradcheck({"wrong", {x}, square(1.00001)});
  EXPECT_FALSE(result.passed);
  EXPECT_NEAR(result.worst_error, 1e-5, 1e-7);
  EXPECT_EQ(result.worst_place.substr(0, 13), "input 0 [7]: ");
}

// y = sin(rate * x), whose bends are as near as the rate says, with the gradient of one element
// times `factor`.
GradcheckCase wave(const Var& x, double rate, int64_t element, double factor) {
  return {"wave", {x}, [=] {
            Tensor y = x.value().clone();
            for (int64_t i = 0; i < y.numel(); ++i) {
              y.data<double>()[i] = std::sin(rate * y.data<double>()[i]);
            }
            return with_backward(x, y, [=](const Tensor& dy) {
              Tensor dx = dy.clone();
              for (int64_t i = 0; i < dx.numel(); ++i) {
                dx.data<double>()[i] *= rate * std::cos(rate * x.value().data<double>()[i]);
              }
              dx.data<double>()[element] *= factor;
              return dx;
            });
          }};
}

// No one step is right for all of these: the fixed one of 1e-3 fails from a rate of 100 on.
TEST(GradcheckCatches, AnErrorOfOneMillionthWhateverTheBendsOfTheFunction) {
  constexpr double kRates[] = {0.01, 1, 100, 1000, 10000};
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Var x = parameter({3, 5}, seed, 0.5, 1.5);
    const double rate = kRates[seed % std::size(kRates)];
    int64_t steepest = 0;
    const auto slope = [&](int64_t i) {
      return std::abs(std::cos(rate * x.value().data<double>()[i]));
    };
    for (int64_t i = 1; i < 15; ++i) {
      if (slope(i) > slope(steepest)) steepest = i;
    }
    const GradcheckResult right = gradcheck(wave(x, rate, steepest, 1));
    EXPECT_TRUE(right.passed) << seed << ": " << right.worst_error << " at " << right.worst_place;
    const double factor = seed % 2 == 0 ? 1 + 1e-6 : 1 - 1e-6;
    const GradcheckResult wrong = gradcheck(wave(x, rate, steepest, factor));
    EXPECT_FALSE(wrong.passed) << seed << ": " << wrong.worst_error;
  }
}

TEST(GradcheckCatches, InputThatWasForgotten) {
  const Var x = parameter({4}, 3), y = parameter({4}, 4);
  const GradcheckCase broken{"forgotten", {x, y}, [=] { return x * Var(y.value()); }};
  const GradcheckResult result = gradcheck(broken);
  EXPECT_FALSE(result.passed);
  EXPECT_EQ(result.worst_place.substr(0, 7), "input 1");
}

TEST(GradcheckCatches, GradientThatIsNotANumber) {
  const Var x = parameter({4}, 5);
  const GradcheckCase broken{"nan", {x}, [=] {
                               return with_backward(x, x.value(), [](const Tensor& dy) {
                                 return Tensor::full(dy.shape(), NAN, dy.dtype());
                               });
                             }};
  EXPECT_FALSE(gradcheck(broken).passed);
}

TEST(GradcheckCatches, GradientOfAFrozenInput) {
  const Var x = parameter({4}, 6), frozen = parameter({4}, 7);
  frozen.set_requires_grad(false);
  const GradcheckCase broken{
      "leak", {x, frozen}, [=] {
        Var y = (x * frozen).value();
        Tape::record({&x}, y, [dx = x.gradient(), leak = frozen.gradient()](Tensor dy) {
          dx->accept(dy.clone());
          leak->accept(dy);
        });
        return y;
      }};
  EXPECT_EQ(test::error_of([&] { gradcheck(broken); }),
            "[gradcheck] leak: frozen input 1 received a gradient.");
}

// A width that is a multiple of the sampling stride must not hide whole columns.
TEST(GradcheckCatches, WrongColumnOfALargeMatrix) {
  const Var x = parameter({64, 8}, 8);
  for (int64_t column = 0; column < 8; ++column) {
    const GradcheckCase broken{"column", {x}, [=] {
                                 return with_backward(x, x.value(), [=](const Tensor& dy) {
                                   Tensor dx = dy.clone();
                                   for (int64_t i = 0; i < 64; ++i) {
                                     dx.data<double>()[i * 8 + column] = 0;
                                   }
                                   return dx;
                                 });
                               }};
    EXPECT_FALSE(gradcheck(broken).passed) << "column " << column;
  }
}

}  // namespace
}  // namespace tapestry
