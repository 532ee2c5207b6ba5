// Models whose matrices are packed for inference, against the same models as they were trained.
#include <gtest/gtest.h>

#include "core/allocator.h"
#include "nn/layers/weight_matrix.h"
#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using namespace test;  // NOLINT: the small models

Tensor ids_to_read(int64_t rows, int64_t length) {
  Tensor ids = Tensor::empty({rows, length}, DType::kInt32);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    ids.data<int32_t>()[i] = static_cast<int32_t>(4 + (7 * i + i / length) % (kVocabulary - 4));
  }
  return ids;
}

// Logits of a batch.
template <class Model>
std::vector<float> pair_logits_of(const Model& model) {
  const PairInput input{ids_to_read(3, 6), Tensor::from<int32_t>({6, 4, 1}, {3}),
                        ids_to_read(3, 5)};
  return pair_logits(&model, input).value().template to_vector<float>();
}

std::vector<float> text_logits_of(const LanguageModel& model) {
  return model.logits(model.hidden(ids_to_read(3, 7))).value().to_vector<float>();
}

// |a - b| / |b|
double relative(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2);
    size += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / size);
}

// What a format may change at most. Each layer rounds numbers by its share of the largest ones.
double most_error(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return 2e-6;
    case WeightFormat::kBFloat16:
      return 0.01;
    case WeightFormat::kInt8:
      return 0.05;
    case WeightFormat::kInt4:
      return 0.3;
  }
  return 0;
}

// `make` gives the same model every time.
template <class Make, class Logits>
void expect_packed_like_plain(Make make, Logits logits) {
  double before = 0;
  for (const WeightFormat format : kWeightFormats) {
    SCOPED_TRACE(name_of(format));
    auto model = make();
    const std::vector<float> plain = logits(model->model);
    model->store.pack(format);
    const double error = relative(logits(model->model), plain);
    EXPECT_LT(error, most_error(format));
    EXPECT_GE(error, 1.5 * before) << "nothing was rounded";
    before = std::max(error, 1e-6);
  }
}

TEST(PackedWeights, EncoderDecoders) {
  ModelOptions recurrent = post_norm_options();
  recurrent.decoder_self_attention = DecoderSelfAttention::kSsru;
  for (const ModelOptions& options : {post_norm_options(), pre_norm_options(), recurrent}) {
    expect_packed_like_plain([&] { return std::make_unique<SmallModel>(options, DType::kFloat32); },
                             pair_logits_of<EncoderDecoder>);
  }
}

TEST(PackedWeights, RecurrentModels) {
  expect_packed_like_plain(
      [] {
        return std::make_unique<SmallModelOf<RnnAttention>>(post_norm_options(), DType::kFloat32);
      },
      pair_logits_of<RnnAttention>);
}

TEST(PackedWeights, LanguageModels) {
  ModelOptions latent = llama_options();  // whose keys and values are read as matrices
  latent.num_key_value_heads = 0;
  latent.kv_latent_size = 8;
  for (const ModelOptions& options : {gpt2_options(), llama_options(), latent}) {
    expect_packed_like_plain(
        [&] { return std::make_unique<SmallLanguageModel>(options, true, DType::kFloat32); },
        text_logits_of);
  }
  expect_packed_like_plain(
      [] { return std::make_unique<SmallLanguageModel>(bert_options(), false, DType::kFloat32); },
      text_logits_of);
}

// Several steps of decoding go through the packed matrices, too.
TEST(PackedWeights, HypothesesAreTheSame) {
  SmallModel model(post_norm_options(), DType::kFloat32);
  const TranslationInput input{.source = ids_to_read(3, 6),
                               .lengths = Tensor::from<int32_t>({6, 4, 1}, {3})};
  SearchOptions options;
  options.num_beams = 3;
  const auto before = translate({{&model.model}}, input, options);
  model.store.pack(WeightFormat::kFloat32);
  EXPECT_TRUE(device_of({{&model.model}}).is_cpu());
  const auto after = translate({{&model.model}}, input, options);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i].at(0).tokens, before[i].at(0).tokens);
    EXPECT_NEAR(after[i].at(0).log_probability, before[i].at(0).log_probability, 1e-4);
  }
}

// Without log-probabilities a greedy search looks for the largest logit only, by another way.
TEST(PackedWeights, GreedyOutputsNeedNoLogProbabilities) {
  SmallModel model(post_norm_options(), DType::kFloat32);
  SmallLanguageModel text(gpt2_options(), true, DType::kFloat32);
  model.store.pack(WeightFormat::kFloat32);
  text.store.pack(WeightFormat::kFloat32);
  TranslationInput input{.source = ids_to_read(3, 6),
                         .lengths = Tensor::from<int32_t>({6, 4, 1}, {3})};
  SearchTask task{.sentences = 2};
  task.prompts = {{2, 5, 9}, {2}};
  task.max_lengths = {6, 6};
  task.banned = {0, 1};
  task.force_eos = false;
  SearchOptions options;
  options.num_beams = 1;
  const auto translations = [&] { return translate({{&model.model}}, input, options); };
  const auto texts = [&] {
    LanguageModelSteps steps(text.model);
    return generate(steps, task, options);
  };
  const auto with = translations();
  const auto texts_with = texts();
  input.log_probabilities = task.log_probabilities = false;
  const auto without = translations();
  const auto texts_without = texts();
  const auto expect_same = [&](const Hypothesis& a, const Hypothesis& b) {
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.has_eos, b.has_eos);
    EXPECT_LT(a.log_probability, 0);
    if (model.model.words.output.has_largest()) {
      EXPECT_GT(b.log_probability, a.log_probability) << "nothing was left out";
    }
  };
  for (size_t i = 0; i < with.size(); ++i) expect_same(with[i].at(0), without[i].at(0));
  for (size_t i = 0; i < 2; ++i) expect_same(texts_with[i], texts_without[i]);
}

TEST(PackedWeights, AdaptersStayBesideThem) {
  for (const bool dora : {false, true}) {
    const LoraOptions lora{.rank = 2, .alpha = 4, .dora = dora, .target = {"*up"}};
    ParamStore store(7, DType::kFloat32, Device{}, Precision::kFull, lora);
    const FeedForward layer({.hidden_size = 16, .intermediate_size = 40}, store.root());
    disturb(store);
    const Var x = uniform({3, 16}, 9, -1, 1).to(DType::kFloat32);
    const auto plain = layer(x).value().to_vector<float>();
    const auto expect_same = [&] {
      EXPECT_LT(relative(layer(x).value().to_vector<float>(), plain),
                most_error(WeightFormat::kFloat32));
    };
    {
      const PackedScope beside(store);
      expect_same();
    }
    store.pack(WeightFormat::kFloat32);
    expect_same();
    const PackedScope again(store);
    expect_same();
  }
}

// A classifier of its own leaves the embedding to be looked up in: float32 gains nothing there.
TEST(PackedWeights, TheParametersGiveUpTheirMemory) {
  for (const WeightFormat format : kWeightFormats) {
    ParamStore store(1, DType::kFloat32);
    const int64_t before = host_memory().bytes_in_use;
    const Linear layer({.in = 512, .out = 512, .bias = false}, store.root());
    const int64_t plain = host_memory().bytes_in_use - before;
    EXPECT_EQ(store.multiplied_bytes(), 512 * 512 * 4);
    store.pack(format);
    const int64_t packed = host_memory().bytes_in_use - before;
    const int64_t expected = PackedMatrix::bytes(format, 512, 512);
    EXPECT_LT(packed, plain - 512 * 512 * 4 + expected + 5000);
    EXPECT_EQ(store.multiplied_bytes(), expected);
    EXPECT_FALSE(store.at("weight").var.defined());
  }
  ParamStore store(1, DType::kFloat32);
  const WeightMatrix table = word_table(post_norm_options(), 40, store.root());
  store.pack(WeightFormat::kFloat32);
  EXPECT_FALSE(table.packed());
  store.pack(WeightFormat::kInt8);
  EXPECT_TRUE(table.packed());
}

// A matrix takes memory when it is read, and gives it up before the next one is.
TEST(PackedWeights, LoadingNeverHoldsTheWholeModelUnpacked) {
  constexpr int64_t kSize = 512, kLayers = 16;
  constexpr auto kOne = kSize * kSize * static_cast<int64_t>(sizeof(float));
  const auto layers_of = [](ParamStore& store) {
    std::vector<Linear> layers;
    for (int64_t i = 0; i < kLayers; ++i) {
      layers.emplace_back(Linear::Options{.in = kSize, .out = kSize}, store.root() / i);
    }
    return layers;
  };
  const Tensor x = uniform({3, kSize}, 9, -1, 1).to(DType::kFloat32);
  for (const WeightFormat format : kWeightFormats) {
    ParamStore drawn(1, DType::kFloat32);
    const std::vector<Linear> expected = layers_of(drawn);
    reset_peak_bytes();
    const int64_t before = host_memory().bytes_in_use;
    ParamStore store(1, DType::kFloat32, Device{}, Precision::kFull, {}, ParamStore::Start::kEmpty);
    const std::vector<Linear> layers = layers_of(store);
    EXPECT_THROW(static_cast<void>(layers[0].weight.value()), Error);
    size_t read = 0;
    store.load(
        [&](const Parameter& parameter) {
          parameter.var.value().copy_from(drawn.at(parameter.name).var.value());
          ++read;
        },
        format);
    EXPECT_EQ(read, store.parameters().size());
    const int64_t peak = host_memory().peak_bytes - before;
    const int64_t kept = kLayers * PackedMatrix::bytes(format, kSize, kSize);
    EXPECT_LT(peak, kept + 2 * kOne) << name_of(format);
    drawn.pack(format);
    for (size_t i = 0; i < layers.size(); ++i) {
      EXPECT_EQ(layers[i](x).value().to_vector<float>(), expected[i](x).value().to_vector<float>());
    }
  }
}

// Without a format, too, and of a type that is not packed.
TEST(PackedWeights, ALoadedModelMayStayAsItIs) {
  for (const DType type : {DType::kFloat32, DType::kFloat64}) {
    ParamStore store(1, type, Device{}, Precision::kFull, {}, ParamStore::Start::kEmpty);
    const Linear layer({.in = 4, .out = 3}, store.root());
    const auto fill = [](const Parameter& parameter) { parameter.var.value().fill(2); };
    if (type == DType::kFloat32) {
      store.load(fill);
    } else {
      EXPECT_THROW(store.load(fill, WeightFormat::kInt8), Error);
      store.load(fill, WeightFormat::kFloat32);
    }
    EXPECT_FALSE(layer.weight.packed());
    const Tensor x = Tensor::full({1, 4}, 1, type);
    EXPECT_EQ(layer(x).value().to_vector<double>(), std::vector<double>(3, 10));
  }
}

// A search between two updates: what it packs are the values of that moment, and training goes on.
TEST(PackedScopeTest, PacksTheValuesOfNowAndKeepsTheParameters) {
  SmallModel model(post_norm_options(), DType::kFloat32);
  const auto loss = [&] {
    return model.model.loss(batch_of({6, 4}, {5, 3}, 6, 6), {}).loss.value().item();
  };
  const WeightMatrix& table = model.model.words.target;  // of the classifier, too
  for (int update = 0; update < 2; ++update) {
    const std::vector<float> plain = pair_logits_of(model.model);
    const double before = loss();
    {
      const PackedScope packed(model.store);
      EXPECT_TRUE(table.packed());
      EXPECT_TRUE(model.model.words.output.has_best());
      EXPECT_LT(relative(pair_logits_of(model.model), plain), most_error(WeightFormat::kFloat32));
      EXPECT_NEAR(loss(), before, 1e-5);
      const PackedScope inside(model.store);  // has nothing to do
    }
    EXPECT_FALSE(table.packed());
    EXPECT_EQ(pair_logits_of(model.model), plain);
    const Pass pass = train_pass(model.store, [&] {
      return model.model.loss(batch_of({6, 4}, {5, 3}, 6, 6), {}).loss;
    });
    EXPECT_TRUE(std::isfinite(pass.loss.item()));
    disturb(model.store);
    EXPECT_NE(loss(), before);
  }
}

TEST(PackedScopeTest, LeavesAloneWhatIsPackedOrCannotBe) {
  SmallModel doubles(post_norm_options(), DType::kFloat64);
  const PackedScope none(doubles.store);
  EXPECT_FALSE(doubles.model.words.target.packed());
  SmallModel rounded(post_norm_options(), DType::kFloat32);
  rounded.store.pack(WeightFormat::kInt8);
  const std::vector<float> logits = pair_logits_of(rounded.model);
  { const PackedScope packed(rounded.store); }
  EXPECT_TRUE(rounded.model.words.target.packed());
  EXPECT_EQ(pair_logits_of(rounded.model), logits);
}

TEST(PackedWeights, HaveNoValuesAndNoGradient) {
  ParamStore store(1, DType::kFloat32);
  const Linear layer({.in = 4, .out = 3}, store.root());
  store.pack(WeightFormat::kInt8);
  EXPECT_THROW(static_cast<void>(layer.weight.value()), Error);
  const Tape tape;
  try {
    layer(Tensor::zeros({2, 4}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[weights] packed matrices are for inference, but a tape records.");
  }
}

TEST(PackedWeights, IdsMustBeInTheTable) {
  ParamStore store(1, DType::kFloat32);
  const WeightMatrix table = word_table(post_norm_options(), 40, store.root());
  store.pack(WeightFormat::kInt8);
  for (const int32_t id : {-1, 40}) {
    EXPECT_THROW(table.look_up(Tensor::from<int32_t>({3, id}, {1, 2})), Error) << id;
  }
}

TEST(PackedWeights, OtherTypesAreNotPacked) {
  ParamStore store(1, DType::kFloat64);
  const Linear layer({.in = 4, .out = 3}, store.root());
  store.pack(WeightFormat::kFloat32);
  EXPECT_FALSE(layer.weight.packed());
  try {
    store.pack(WeightFormat::kInt8);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_STREQ(error.what(),
                 "[weights] int8 needs a model of float32 on a CPU, got float64 on cpu.");
  }
}

}  // namespace
}  // namespace tapestry
