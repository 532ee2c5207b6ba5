// Low-rank adapters against the formula in doubles, and what merging does.
#include "nn/layers/adapter.h"

#include <gtest/gtest.h>

#include "nn/layers/layers.h"
#include "nn/models/language_model.h"

namespace tapestry {
namespace {

const LoraOptions kDora{.rank = 3, .alpha = 6, .dropout = 0, .dora = true, .target = {"*up"}};
const LoraOptions kLora{.rank = 3, .alpha = 6, .dropout = 0, .target = {"*up"}};

ParamStore adapted_store(const LoraOptions& lora) {
  return ParamStore(7, DType::kFloat64, Device{}, Precision::kFull, lora);
}

Tensor counting(const Shape& shape, double step) {
  Tensor t = Tensor::empty(shape, DType::kFloat64);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<double>()[i] = std::sin(step * double(i + 1));
  return t;
}

TEST(Adapter, AddsTheScaledProductInFrontOfTheActivation) {
  ParamStore store = adapted_store(kLora);
  const Linear layer({.in = 5, .out = 4, .activation = Activation::kRelu}, store.root() / "up");
  ASSERT_TRUE(layer.adapter);
  layer.adapter->b.value().copy_from(counting({4, 3}, 0.7));
  const Tensor x = counting({2, 5}, 0.3);
  const Tensor y = layer(Var(x)).value();
  const double* const w = layer.weight.value().data<double>();
  const double* const a = store.at("up.lora_A").var.value().data<double>();
  const double* const b = store.at("up.lora_B").var.value().data<double>();
  for (int64_t n = 0; n < 2; ++n) {
    for (int64_t o = 0; o < 4; ++o) {
      double sum = 0;
      for (int64_t i = 0; i < 5; ++i) {
        double entry = w[o * 5 + i];
        for (int64_t r = 0; r < 3; ++r) entry += 2.0 * b[o * 3 + r] * a[r * 5 + i];
        sum += entry * x.data<double>()[n * 5 + i];
      }
      EXPECT_NEAR(y.data<double>()[n * 4 + o], std::max(0.0, sum), 1e-13);
    }
  }
}

TEST(Adapter, StartsAsTheModelWithout) {
  ParamStore plain = adapted_store({}), adapted = adapted_store(kLora);
  const FeedForward::Options options{.hidden_size = 6, .intermediate_size = 8};
  const FeedForward without(options, plain.root()), with(options, adapted.root());
  EXPECT_FALSE(without.up.adapter);
  EXPECT_TRUE(with.up.adapter);
  EXPECT_FALSE(with.down.adapter);
  const Tensor x = counting({3, 6}, 0.2);
  const Tensor a = without(Var(x)).value(), b = with(Var(x)).value();
  for (int64_t i = 0; i < a.numel(); ++i) EXPECT_EQ(a.data<double>()[i], b.data<double>()[i]);
  const double bound = 1 / std::sqrt(6.0);
  double largest = 0;
  const Tensor down = with.up.adapter->a.value();
  for (int64_t i = 0; i < down.numel(); ++i) {
    largest = std::max(largest, std::abs(down.data<double>()[i]));
  }
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, bound / 2);
}

class MergedAdapter : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Kinds, MergedAdapter, testing::Bool());

TEST_P(MergedAdapter, ComputesTheSame) {
  const LoraOptions& lora = GetParam() ? kDora : kLora;
  ParamStore store = adapted_store(lora), plain = adapted_store({});
  const FeedForward::Options options{.hidden_size = 6, .intermediate_size = 8};
  const FeedForward layer(options, store.root()), merged(options, plain.root());
  layer.up.adapter->b.value().copy_from(counting({8, 3}, 0.9));
  if (GetParam()) layer.up.adapter->magnitude.value().copy_from(counting({8}, 0.6));
  const auto part = [&](const std::string& name) -> std::optional<Tensor> {
    if (!store.contains(name)) return std::nullopt;
    return store.at(name).var.value();
  };
  int moved = 0;
  for (const Parameter& parameter : plain.parameters()) {
    const Tensor before = store.at(parameter.name).var.value();
    const Tensor after = with_adapter(before, parameter.name, lora, part);
    moved += after.to_vector<double>() != before.to_vector<double>();
    parameter.var.value().copy_from(after);
  }
  EXPECT_EQ(moved, 1);
  const Tensor x = counting({3, 6}, 0.2);
  const Tensor before = layer(Var(x)).value(), after = merged(Var(x)).value();
  for (int64_t i = 0; i < after.numel(); ++i) {
    EXPECT_NEAR(after.data<double>()[i], before.data<double>()[i], 1e-12);
  }
}

// Of the rows of W + s B A only the directions count.
TEST(Adapter, MagnitudesAreTheLengthsOfRows) {
  ParamStore store = adapted_store(kDora);
  const Linear layer({.in = 5, .out = 4, .activation = Activation::kRelu}, store.root() / "up");
  layer.bias.value().copy_from(counting({4}, 0.4));
  layer.adapter->b.value().copy_from(counting({4, 3}, 0.7));
  const Tensor magnitude = counting({4}, 1.1);
  layer.adapter->magnitude.value().copy_from(magnitude);
  const Tensor x = counting({2, 5}, 0.3);
  const Tensor y = layer(Var(x)).value();
  const double* const w = layer.weight.value().data<double>();
  const double* const a = store.at("up.lora_A").var.value().data<double>();
  const double* const b = store.at("up.lora_B").var.value().data<double>();
  for (int64_t n = 0; n < 2; ++n) {
    for (int64_t o = 0; o < 4; ++o) {
      double sum = 0, squares = 0;
      for (int64_t i = 0; i < 5; ++i) {
        double entry = w[o * 5 + i];
        for (int64_t r = 0; r < 3; ++r) entry += 2.0 * b[o * 3 + r] * a[r * 5 + i];
        sum += entry * x.data<double>()[n * 5 + i];
        squares += entry * entry;
      }
      const double turned = magnitude.data<double>()[o] * sum / std::sqrt(squares);
      const double expected = turned + layer.bias.value().data<double>()[o];
      EXPECT_NEAR(y.data<double>()[n * 4 + o], std::max(0.0, expected), 1e-13);
    }
  }
}

TEST(Adapter, MagnitudesStartAsTheLengthsThatRowsHave) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
    ParamStore plain(7, dtype), store(7, dtype, Device{}, Precision::kFull, kDora);
    const Linear::Options options{.in = 6, .out = 8, .bias = false};
    const Linear without(options, plain.root() / "up"), with(options, store.root() / "up");
    const Var x = counting({3, 6}, 0.2).to(dtype);
    EXPECT_EQ(with(x).value().to(DType::kFloat64).to_vector<double>(),
              without(x).value().to(DType::kFloat64).to_vector<double>())
        << dtype;
    // Of other values of the matrix, too, unless they are given.
    for (const Linear* layer : {&without, &with}) {
      layer->weight.value().copy_from(counting({8, 6}, 0.1).to(dtype));
    }
    store.derive([](const std::string&) { return false; });
    EXPECT_NE(with.adapter->gain().value().to(DType::kFloat64).to_vector<double>()[0], 1);
    store.derive([](const std::string& name) { return name == "up.lora_magnitude"; });
    for (const double gain : with.adapter->gain().value().to(DType::kFloat64).to_vector<double>()) {
      EXPECT_EQ(gain, 1);
    }
  }
  ParamStore store = adapted_store(kDora);
  const Linear layer({.in = 6, .out = 8}, store.root() / "up");
  layer.weight.value().slice(3, 4).fill(0);
  try {
    store.derive([](const std::string&) { return true; });
    FAIL() << "a row without a direction";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "[lora] row 3 of the matrix beside up.lora_magnitude has no length, and "
              "training.lora.dora divides by it: leave the layer out of training.lora.target.");
  }
}

// Its matrix is read by the loss, and where embeddings are tied it is not a layer's own.
TEST(Adapter, ClassifiersHaveNone) {
  ParamStore store = adapted_store({.rank = 2, .target = {"*"}});
  ModelOptions options{.hidden_size = 8, .intermediate_size = 8, .num_attention_heads = 2};
  options.num_hidden_layers = 1;
  options.tie_word_embeddings = false;
  const LanguageModel model(options, {.size = 11}, /*causal=*/true, store.root());
  EXPECT_TRUE(store.contains("output.weight"));
  EXPECT_FALSE(store.contains("output.lora_A"));
  EXPECT_TRUE(store.contains("layers.0.feed_forward.down.lora_A"));
}

}  // namespace
}  // namespace tapestry
