// Multi-head latent attention: the definition written out, its two forms, and what it caches.
#include "nn/attention/latent_attention.h"

#include <functional>

#include "nn/models/language_model.h"
#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using test::distance;
using test::Matrix;
using Options = LatentAttention::Options;

struct LatentVariant {
  const char* name;
  Options options;
};

void PrintTo(const LatentVariant& variant, std::ostream* out) { *out << variant.name; }

Options rotary_options() {
  return {.hidden_size = 12,
          .heads = 3,
          .kv_latent_size = 5,
          .rope_head_size = 2,
          .rope_positions = 32};
}

Options query_latent_options() {
  Options options = rotary_options();
  options.q_latent_size = 7;
  options.head_size = 6;
  options.value_head_size = 3;
  options.rope_head_size = 4;
  options.rope_layout = RopeLayout::kInterleaved;
  return options;
}

Options plain_options() {
  Options options = rotary_options();
  options.rope_head_size = 0;
  options.rope_positions = 0;
  return options;
}

Options wide_value_options() {
  Options options = rotary_options();
  options.value_head_size = options.hidden_size / options.heads + options.rope_head_size + 3;
  return options;
}

class LatentAttentionTest : public ::testing::TestWithParam<LatentVariant> {
 protected:
  LatentAttentionTest() {
    uint32_t stream = 900;
    for (const Parameter& p : store_.parameters()) {  // the norms' scales move away from 1
      p.var.value().copy_from(
          (p.var + Var(test::uniform(p.var.shape(), stream++, -0.2, 0.2))).value());
    }
  }

  Matrix weight(const char* name) const {
    return test::transpose(Matrix(store_.at(std::string(name) + ".weight").var.value()));
  }

  // The RMS norm of each row.
  Matrix normed(Matrix x, const char* name) const {
    const auto gamma = store_.at(std::string(name) + ".weight").var.value().to_vector<double>();
    for (int64_t i = 0; i < x.rows; ++i) {
      double squares = 0;
      for (int64_t j = 0; j < x.cols; ++j) squares += x(i, j) * x(i, j) / x.cols;
      for (int64_t j = 0; j < x.cols; ++j) x(i, j) *= gamma[j] / std::sqrt(squares + 1e-5);
    }
    return x;
  }

  // Heads of size R side by side, row t turned to position t.
  Matrix turned(Matrix x) const {
    const int64_t size = layer_.options.rope_head_size;
    const bool halves = layer_.options.rope_layout == RopeLayout::kHalf;
    for (int64_t t = 0; t < x.rows; ++t) {
      for (int64_t first = 0; first < x.cols; first += size) {
        for (int64_t i = 0; i < size / 2; ++i) {
          const double angle = t * std::pow(10000.0, -2.0 * i / size);
          double& a = x(t, first + (halves ? i : 2 * i));
          double& b = x(t, first + (halves ? i + size / 2 : 2 * i + 1));
          const double before = a;
          a = before * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + before * std::sin(angle);
        }
      }
    }
    return x;
  }

  // One sequence x (T, D), of which `length` tokens are real.
  Matrix naive(const Matrix& x, int64_t length, bool causal) const {
    const Options& o = layer_.options;
    const int64_t count = x.rows, size = o.head_size, rope = o.rope_head_size;
    const Matrix source = o.q_latent_size > 0 ? normed(x * weight("q_down"), "q_norm") : x;
    const Matrix latent = normed(x * weight("kv_down"), "kv_norm");
    const Matrix query = source * weight("q"), key = latent * weight("k_up");
    const Matrix value = latent * weight("v_up");
    const Matrix query_rope = rope > 0 ? turned(source * weight("q_rope")) : Matrix(count, 0);
    const Matrix key_rope = rope > 0 ? turned(x * weight("k_rope")) : Matrix(count, 0);
    Matrix heads(count, o.heads * o.value_head_size);
    for (int64_t h = 0; h < o.heads; ++h) {
      for (int64_t t = 0; t < count; ++t) {
        const int64_t seen = causal ? std::min(length, t + 1) : length;
        std::vector<double> a(seen);
        double sum = 0;
        for (int64_t j = 0; j < seen; ++j) {
          double score = 0;
          for (int64_t i = 0; i < size; ++i) score += query(t, h * size + i) * key(j, h * size + i);
          for (int64_t i = 0; i < rope; ++i) score += query_rope(t, h * rope + i) * key_rope(j, i);
          sum += a[j] = std::exp(score / std::sqrt(static_cast<double>(size + rope)));
        }
        for (int64_t j = 0; j < seen; ++j) {
          for (int64_t i = 0; i < o.value_head_size; ++i) {
            const int64_t column = h * o.value_head_size + i;
            heads(t, column) += a[j] / sum * value(j, column);
          }
        }
      }
    }
    Matrix y = heads * weight("out");
    const auto bias = store_.at("out.bias").var.value().to_vector<double>();
    for (int64_t t = 0; t < count; ++t) {
      for (int64_t j = 0; j < y.cols; ++j) y(t, j) += bias[j];
    }
    return y;
  }

  ParamStore store_{3, DType::kFloat64};
  const LatentAttention layer_{GetParam().options, store_.root()};
  const Tensor x_ = test::uniform({2, 9, 12}, 31, -2, 2);
};

TEST_P(LatentAttentionTest, EqualsTheDefinition) {
  const std::vector<int32_t> lengths = {9, 4};
  for (const bool causal : {false, true}) {
    const Tensor y = layer_(x_, test::lengths_tensor(lengths), causal).value();
    for (int64_t b = 0; b < 2; ++b) {
      const Matrix x(x_.slice(b, b + 1).reshape({9, 12}));
      EXPECT_LT(distance(y.slice(b, b + 1), naive(x, lengths[b], causal).tensor({1, 9, 12})), 1e-12)
          << "causal " << causal << ", sequence " << b;
    }
  }
}

TEST_P(LatentAttentionTest, AbsorbedEqualsExplicit) {
  const auto latents = layer_.compress(x_, 3);
  const Tensor lengths = test::lengths_tensor({9, 4});
  for (const AttentionOptions& attention :
       {AttentionOptions{}, AttentionOptions{.causal = true},
        AttentionOptions{.causal = true, .key_lengths = lengths},
        AttentionOptions{.key_lengths = lengths}}) {
    EXPECT_LT(distance(layer_.attend(x_, 3, latents, attention).value(),
                       layer_.attend_absorbed(x_, 3, latents.packed(), attention).value()),
              1e-12);
  }
}

// Also when the cache outgrows its first capacity.
TEST_P(LatentAttentionTest, StepsEqualTheFullPass) {
  const Tensor x = test::uniform({2, 40, 12}, 32, -2, 2);
  const Tensor all = layer_(x, {}, /*causal=*/true).value();
  for (const int32_t first : {1, 6}) {
    KeyValueCache cache;
    CacheRows rows;
    const DecodingStep prompt = rows.add(std::vector<int32_t>{first, first}, first, {});
    const Tensor read = layer_.step(test::columns(x, 0, first), cache, prompt).value();
    EXPECT_LT(distance(read, test::columns(all, 0, first)), 1e-10);
    for (int64_t t = first; t < 40; ++t) {
      const Tensor y = layer_.step(test::columns(x, t, t + 1), cache, rows.next({})).value();
      EXPECT_LT(distance(y, test::columns(all, t, t + 1)), 1e-10) << "token " << t;
    }
  }
}

TEST_P(LatentAttentionTest, CacheHoldsTheLatentAndTheRotaryKeyAlone) {
  KeyValueCache cache;
  CacheRows rows;
  layer_.step(x_, cache, rows.add(std::vector<int32_t>{9, 9}, 9, {}));
  const Options& o = layer_.options;
  EXPECT_EQ(cache.kv.shape()[2], o.kv_latent_size + o.rope_head_size);
  EXPECT_EQ(cache.kv.bytes() / cache.kv.shape()[1],
            (o.kv_latent_size + o.rope_head_size) * size_of(DType::kFloat64));
}

// Scores depend on m - n: the whole sequence may be shifted, but not a part of it.
TEST_P(LatentAttentionTest, OnlyDistancesCount) {
  const Tensor y = layer_.attend(x_, 0, layer_.compress(x_, 0), {.causal = true}).value();
  const Tensor later = layer_.attend(x_, 17, layer_.compress(x_, 17), {.causal = true}).value();
  const Tensor apart = layer_.attend(x_, 17, layer_.compress(x_, 0), {.causal = true}).value();
  EXPECT_LT(distance(y, later), 1e-12);
  if (layer_.options.rope_head_size > 0) {
    EXPECT_GT(distance(y, apart), 1e-3);
  } else {
    EXPECT_LT(distance(y, apart), 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(Options, LatentAttentionTest,
                         ::testing::Values(LatentVariant{"rotary", rotary_options()},
                                           LatentVariant{"query_latent", query_latent_options()},
                                           LatentVariant{"plain", plain_options()},
                                           LatentVariant{"wide_values", wide_value_options()}),
                         [](const auto& info) { return std::string(info.param.name); });

std::string error_of_options(const std::function<void(Options&)>& change) {
  Options options = rotary_options();
  change(options);
  return test::error_of([&] {
    ParamStore store;
    const LatentAttention layer(options, store.root());
  });
}

TEST(LatentAttentionOptions, MustFit) {
  EXPECT_EQ(error_of_options([](Options& o) { o.heads = 5; }),
            "[attention] hidden_size must be a multiple of num_attention_heads, got 12 and 5.");
  EXPECT_EQ(error_of_options([](Options& o) { o.rope_head_size = 3; }),
            "[attention] rope_head_size must be even, got 3.");
  EXPECT_EQ(error_of_options([](Options& o) { o.value_head_size = -1; }),
            "[attention] value_head_size must be at least 0, got -1.");
  EXPECT_EQ(error_of_options([](Options& o) { o.kv_latent_size = 0; }),
            "[attention] kv_latent_size must be at least 1, got 0.");
}

// ---- In a model

ModelOptions model_options() {
  ModelOptions options = test::pre_norm_options();
  options.num_key_value_heads = 0;
  options.kv_latent_size = 6;
  options.position_embedding = PositionEmbedding::kRope;
  return options;
}

TEST(LatentModel, NamesAndShapes) {
  ModelOptions options = model_options();
  options.q_latent_size = 10;
  ParamStore store;
  const LanguageModel model(options, {.size = 19}, /*causal=*/true, store.root());
  const auto shape = [&](const std::string& name) {
    return store.at("layers.3.self_attention." + name + ".weight").var.shape().str();
  };
  EXPECT_EQ(shape("q_down"), "(10, 16)");
  EXPECT_EQ(shape("q_norm"), "(10)");
  EXPECT_EQ(shape("q"), "(16, 10)");
  EXPECT_EQ(shape("q_rope"), "(8, 10)");  // four heads of half their size
  EXPECT_EQ(shape("kv_down"), "(6, 16)");
  EXPECT_EQ(shape("kv_norm"), "(6)");
  EXPECT_EQ(shape("k_rope"), "(2, 16)");
  EXPECT_EQ(shape("k_up"), "(16, 6)");
  EXPECT_EQ(shape("v_up"), "(16, 6)");
  EXPECT_EQ(shape("out"), "(16, 16)");
  EXPECT_FALSE(store.contains("layers.0.self_attention.qkv.weight"));
}

TEST(LatentModel, OptionsMustFit) {
  const auto error = [](ModelOptions options) {
    return test::error_of([&] {
      ParamStore store;
      const LanguageModel model(options, {.size = 19}, /*causal=*/true, store.root());
    });
  };
  ModelOptions options = model_options();
  options.num_key_value_heads = 2;
  EXPECT_EQ(error(options),
            "[model] num_key_value_heads must be 0 with kv_latent_size, whose latents all heads "
            "share, got 2.");
  options = model_options();
  options.position_embedding = PositionEmbedding::kLearned;
  EXPECT_EQ(error(options), "");
  options.rope_head_size = 2;
  EXPECT_EQ(error(options), "[model] rope_head_size needs position_embedding rope, got 2.");
}

TEST(LatentModel, CachedStepsEqualTheFullPass) {
  ParamStore store(3, DType::kFloat64);
  const LanguageModel model(model_options(), {.size = 19}, /*causal=*/true, store.root());
  const Tensor ids = test::uniform_ids({2, 20}, 5, 1, 19);
  const Tensor all = model.logits(model.hidden(ids)).value();
  LanguageModel::State state = test::started(model, ids, 4);
  for (int64_t t = 4; t < 20; ++t) {
    const Tensor logits = test::step_of(model, ids, t, state);
    EXPECT_LT(distance(logits, test::columns(all, t, t + 1).reshape({2, 19})), 1e-10);
  }
  for (const KeyValueCache& cache : state.layers) {
    EXPECT_EQ(cache.kv.bytes() / cache.kv.shape()[1],
              cache_bytes_per_token(model_options(), DType::kFloat64));
  }
}

// ---- How much each kind of attention keeps, and grouped heads

// Bytes of one token in the cache that a layer of such a model fills.
int64_t measured_bytes(const ModelOptions& options, DType dtype) {
  ParamStore store(3, dtype);
  const LayerAttention layer(options, 2, store.root());
  KeyValueCache cache;
  CacheRows rows;
  layer.step(test::uniform({3, 5, 16}, 1).to(dtype), cache,
             rows.add(std::vector<int32_t>{5, 5, 5}, 5, {}));
  return cache.kv.bytes() / cache.kv.shape()[1];
}

TEST(CacheBytesPerToken, AreWhatTheCacheTakes) {
  ModelOptions options = test::post_norm_options();  // four heads of size 4
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const int64_t size = size_of(dtype);
    for (const int64_t groups : {0, 4, 2, 1}) {
      options.num_key_value_heads = groups;
      const int64_t expected = 2 * (groups == 0 ? 4 : groups) * 4 * size;
      EXPECT_EQ(cache_bytes_per_token(options, dtype), expected) << groups << " groups";
      EXPECT_EQ(measured_bytes(options, dtype), expected) << groups << " groups";
    }
    EXPECT_EQ(cache_bytes_per_token(model_options(), dtype), (6 + 2) * size);
    EXPECT_EQ(measured_bytes(model_options(), dtype), (6 + 2) * size);
  }
}

TEST(GroupedAttention, OneGroupAHeadIsMultiHead) {
  const Tensor x = test::uniform({2, 7, 16}, 1), lengths = test::lengths_tensor({7, 3});
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    ParamStore one_store(3, dtype), other_store(3, dtype);
    const SelfAttention all({.hidden_size = 16, .heads = 4}, one_store.root());
    const SelfAttention grouped({.hidden_size = 16, .heads = 4, .kv_heads = 4}, other_store.root());
    const auto run = [&](const SelfAttention& layer) {
      Tape tape;
      const Var input = Var::parameter(x.to(dtype));
      const Var y = layer(input, lengths, true);
      tape.backward(y, test::uniform(y.shape(), 2).to(dtype));
      return std::vector{y.value(), input.grad(), layer.qkv.weight.grad(), layer.out.weight.grad()};
    };
    const auto a = run(all), b = run(grouped);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(test::same_bits(a[i], b[i])) << i;
  }
}

// Grouped heads are multi-head attention whose key and value rows are written once for each head of
// a group; the gradient of a group's rows is the sum of theirs.
TEST(GroupedAttention, EqualsMultiHeadWithRepeatedKeysAndValues) {
  const int64_t heads = 4, size = 4, hidden = heads * size;
  const Tensor x = test::uniform({2, 7, hidden}, 1);
  for (const int64_t groups : {1, 2, 4}) {
    ParamStore store(3, DType::kFloat64), wide_store(3, DType::kFloat64);
    const SelfAttention grouped({.hidden_size = hidden, .heads = heads, .kv_heads = groups},
                                store.root());
    const SelfAttention wide({.hidden_size = hidden, .heads = heads}, wide_store.root());
    // Which row of the grouped projection a row of the wide one repeats.
    std::vector<int64_t> source(3 * hidden);
    for (int64_t row = 0; row < 3 * hidden; ++row) {
      const int64_t part = row / hidden, head = row % hidden / size;
      source[row] = part == 0 ? row
                              : hidden + (part - 1) * groups * size +
                                    head / (heads / groups) * size + row % size;
      std::copy_n(grouped.qkv.weight.value().data<double>() + source[row] * hidden, hidden,
                  wide.qkv.weight.value().data<double>() + row * hidden);
    }
    wide.out.weight.value().copy_from(grouped.out.weight.value());
    const auto run = [&](const SelfAttention& layer) {
      Tape tape;
      const Var y = layer(x, test::lengths_tensor({7, 3}), true);
      tape.backward(y, test::uniform(y.shape(), 2));
      return y.value();
    };
    EXPECT_LT(distance(run(grouped), run(wide)), 1e-12);
    Matrix summed(hidden + 2 * groups * size, hidden);
    const Matrix gradient(wide.qkv.weight.grad());
    for (int64_t row = 0; row < 3 * hidden; ++row) {
      for (int64_t i = 0; i < hidden; ++i) summed(source[row], i) += gradient(row, i);
    }
    EXPECT_LT(distance(grouped.qkv.weight.grad(), summed.tensor()), 1e-12) << groups << " groups";
  }
}

}  // namespace
}  // namespace tapestry
