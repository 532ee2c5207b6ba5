// Attention pooling against the formula, and Nadaraya-Watson regression of a noisy curve.
#include "nn/attention/attention_pooling.h"

#include "tests/autograd/support.h"

namespace tapestry {
namespace {

using test::distance;
using test::Matrix;
using PoolingOptions = AttentionPooling::Options;

constexpr SimilarityKernel kKernels[] = {SimilarityKernel::kGaussian, SimilarityKernel::kBoxcar,
                                         SimilarityKernel::kEpanechnikov};

double similarity(SimilarityKernel kernel, double u) {
  switch (kernel) {
    case SimilarityKernel::kGaussian:
      return std::exp(-u * u / 2);
    case SimilarityKernel::kBoxcar:
      return u < 1 ? 1 : 0;
    default:
      return u < 1 ? 1 - u * u : 0;
  }
}

TEST(AttentionPooling, EqualsTheFormula) {
  const Tensor queries = test::uniform({7, 2}, 1, -2, 2), keys = test::uniform({11, 2}, 2, -2, 2);
  const Tensor values = test::uniform({11, 3}, 3);
  Tensor mask = Tensor::zeros({7, 11}, DType::kInt32);
  for (int64_t i = 0; i < 7; ++i) mask.data<int32_t>()[i * 11 + i] = 1;
  for (const SimilarityKernel kernel : kKernels) {
    for (const double width : {0.7, 1.5}) {
      for (const bool masked : {false, true}) {
        ParamStore store(1, DType::kFloat64);
        const AttentionPooling pooling({.kernel = kernel, .width = width}, store.root());
        EXPECT_TRUE(store.parameters().empty());
        const Matrix q(queries), k(keys), v(values);
        Matrix expected(7, 3);
        for (int64_t i = 0; i < 7; ++i) {
          double total = 0;
          std::vector<double> a(11);
          for (int64_t j = 0; j < 11; ++j) {
            if (masked && i == j) continue;
            const double distance = std::hypot(q(i, 0) - k(j, 0), q(i, 1) - k(j, 1));
            total += a[j] = similarity(kernel, distance / width);
          }
          for (int64_t j = 0; j < 11 && total > 0; ++j) {
            for (int64_t c = 0; c < 3; ++c) expected(i, c) += a[j] / total * v(j, c);
          }
        }
        const Var y = pooling(queries, keys, values, masked ? mask : Tensor());
        EXPECT_LT(distance(y.value(), expected.tensor()), 1e-12);
      }
    }
  }
}

// The query at 9 is outside every window: its output and gradients are 0, also in float32.
TEST(AttentionPooling, AQueryThatSeesNoKeyGivesZero) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const SimilarityKernel kernel :
         {SimilarityKernel::kBoxcar, SimilarityKernel::kEpanechnikov}) {
      ParamStore store(1, dtype);
      const AttentionPooling pooling(
          {.kernel = kernel, .learned = kernel == SimilarityKernel::kEpanechnikov}, store.root());
      const Var queries = Var::parameter(test::doubles({0.4, 9}, {2, 1}).to(dtype));
      const Var keys = test::doubles({0, 1, 2}, {3, 1}).to(dtype);
      const Var values = Var::parameter(test::doubles({1, 2, 4}, {3, 1}).to(dtype));
      Tape tape;
      const Var y = pooling(queries, keys, values);
      EXPECT_GT(y.value().to_vector<double>()[0], 1);
      EXPECT_EQ(y.value().to_vector<double>()[1], 0);
      tape.backward(y, Tensor::full({2, 1}, 1, dtype));
      for (const double v : values.grad().to_vector<double>()) EXPECT_TRUE(std::isfinite(v));
      if (kernel == SimilarityKernel::kBoxcar) continue;
      EXPECT_TRUE(std::isfinite(queries.grad().to_vector<double>()[0]));
      EXPECT_EQ(queries.grad().to_vector<double>()[1], 0);
      EXPECT_TRUE(std::isfinite(pooling.inverse_width.grad().item()));
    }
  }
}

TEST(AttentionPooling, OptionsMustFit) {
  const auto error = [](const PoolingOptions& options) {
    return test::error_of([&] {
      ParamStore store;
      const AttentionPooling pooling(options, store.root());
    });
  };
  EXPECT_EQ(error({.width = 0}), "[attention_pooling] width must be positive, got 0.");
  EXPECT_EQ(error({.kernel = SimilarityKernel::kBoxcar, .learned = true}),
            "[attention_pooling] learned must be false for a boxcar: its width has no gradient.");
  ParamStore store(1, DType::kFloat64);
  const AttentionPooling pooling({}, store.root());
  EXPECT_EQ(test::error_of([&] {
              pooling.weights(test::uniform({2, 3}, 1), test::uniform({4, 2}, 1));
            }),
            "[attention_pooling] queries and keys must be matrices of one width, got (2, 3) and "
            "(4, 2).");
}

// ---- Regression of y = 2 sin(x) + x^0.8 from 60 places with noise of deviation 0.5

double curve(double x) { return 2 * std::sin(x) + std::pow(x, 0.8); }

struct Curve {
  Tensor x = test::uniform({60, 1}, 4, 0, 5), y = Tensor::empty({60, 1}, DType::kFloat64);
  Tensor held_out = Tensor::empty({100, 1}, DType::kFloat64);
  Tensor truth = Tensor::empty({100, 1}, DType::kFloat64);
  Tensor diagonal = Tensor::zeros({60, 60}, DType::kInt32);

  Curve() {
    for (int64_t i = 0; i < 60; ++i) {
      const double noise = philox_normal({.seed = 9, .step = 0, .stream = 1}, i);
      y.data<double>()[i] = curve(x.data<double>()[i]) + 0.5 * noise;
      diagonal.data<int32_t>()[i * 61] = 1;
    }
    for (int64_t i = 0; i < 100; ++i) {
      held_out.data<double>()[i] = 0.05 * i;
      truth.data<double>()[i] = curve(0.05 * i);
    }
  }

  double held_out_error(const AttentionPooling& pooling) const {
    const Var error = pooling(held_out, x, y) - truth;
    return mean(error * error).value().item();
  }
};

// Gradient descent on the leave-one-out error; with its own label each place would choose width 0.
TEST(NadarayaWatson, TheLearnedWidthBeatsWidthOne) {
  const Curve data;
  for (const SimilarityKernel kernel :
       {SimilarityKernel::kGaussian, SimilarityKernel::kEpanechnikov}) {
    ParamStore store(1, DType::kFloat64);
    const AttentionPooling pooling({.kernel = kernel, .learned = true}, store.root());
    const double before = data.held_out_error(pooling);
    double first = 0, last = 0;
    for (int step = 0; step < 200; ++step) {
      Tape tape;
      const Var error = pooling(data.x, data.x, data.y, data.diagonal) - data.y;
      const Var loss = mean(error * error);
      tape.backward(loss);
      (step == 0 ? first : last) = loss.value().item();
      *pooling.inverse_width.value().data<double>() -= 0.2 * pooling.inverse_width.grad().item();
      pooling.inverse_width.zero_grad();
    }
    EXPECT_LT(last, first);
    EXPECT_LT(data.held_out_error(pooling), 0.7 * before);
    EXPECT_GT(std::abs(pooling.inverse_width.value().item()), 1.2) << "narrower than 1";
  }
}

// Each kernel beats the plain mean of the labels, average pooling, by far.
TEST(NadarayaWatson, EveryKernelBeatsAveragePooling) {
  const Curve data;
  const Var centred = affine(mean(Var(data.y)), 1, 0) - data.truth;
  const double average = mean(centred * centred).value().item();
  for (const SimilarityKernel kernel : kKernels) {
    ParamStore store(1, DType::kFloat64);
    const AttentionPooling pooling({.kernel = kernel, .width = 0.5}, store.root());
    EXPECT_LT(data.held_out_error(pooling), 0.2 * average);
  }
}

}  // namespace
}  // namespace tapestry
