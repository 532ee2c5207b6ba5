// The recurrent encoder-decoder: parameters, padding, step by step decoding, determinism.
#include "nn/models/rnn_attention.h"

#include <map>

#include "nn/models/translate.h"
#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using test::batch_of;
using test::distance;
using test::kVocabulary;
using test::lengths_tensor;
using Small = test::SmallModelOf<RnnAttention>;

// Layers, tied or not.
struct RnnVariant {
  const char* name;
  int64_t layers;
  bool tied;
  DType dtype;
  double tolerance;
};

void PrintTo(const RnnVariant& variant, std::ostream* out) { *out << variant.name; }

ModelOptions small_rnn_options(int64_t layers, bool tied) {
  ModelOptions options;
  options.hidden_size = 16;
  options.encoder_layers = options.decoder_layers = layers;
  options.tie_word_embeddings = tied;
  options.dropout = 0;
  return options;
}

class RnnAttentionModel : public ::testing::TestWithParam<RnnVariant> {
 protected:
  Tensor teacher_forcing(const Tensor& source, const Tensor& lengths, const Tensor& target) const {
    return model_.logits(model_.decode(target, model_.encode(source, lengths), lengths)).value();
  }

  const ModelOptions options_ = small_rnn_options(GetParam().layers, GetParam().tied);
  const Small built_{options_, GetParam().dtype};
  const RnnAttention& model_ = built_.model;
  const std::vector<int32_t> lengths_ = {5, 3, 1};
  const Tensor source_ = test::sentences(lengths_, 5, 7);
  const Tensor source_lengths_ = lengths_tensor(lengths_);
  const double tolerance_ = GetParam().tolerance;
};

// ---- Parameters

TEST(RnnAttentionParameters, NamesAndShapes) {
  ParamStore store;
  const RnnAttention model(small_rnn_options(2, false),
                           {.source_size = 19, .target_size = 23, .shared = false}, store.root());
  std::map<std::string, std::string> shapes, expected;
  for (const Parameter& p : store.parameters()) shapes[p.name] = concat(p.var.shape());
  const auto linear = [&](const std::string& name, const char* weight, const char* bias) {
    expected[name + ".weight"] = weight;
    if (*bias != 0) expected[name + ".bias"] = bias;
  };
  linear("encoder.embedding", "(19, 16)", "");
  linear("decoder.embedding", "(23, 16)", "");
  linear("output", "(23, 16)", "");
  linear("encoder.layers.0.input", "(96, 16)", "(96)");
  linear("encoder.layers.0.recurrent", "(96, 16)", "(96)");
  linear("encoder.layers.1.input", "(96, 32)", "(96)");
  linear("encoder.layers.1.recurrent", "(96, 16)", "(96)");
  linear("decoder.initial", "(32, 16)", "(32)");
  linear("decoder.layers.0.input", "(48, 16)", "(48)");
  linear("decoder.layers.0.recurrent", "(48, 16)", "(48)");
  linear("decoder.layers.0.context", "(48, 32)", "");
  linear("decoder.layers.0.attention.query", "(16, 16)", "");
  linear("decoder.layers.0.attention.key", "(16, 32)", "(16)");
  linear("decoder.layers.0.attention.score", "(16)", "");
  linear("decoder.layers.1.input", "(48, 16)", "(48)");
  linear("decoder.layers.1.recurrent", "(48, 16)", "(48)");
  linear("decoder.readout", "(16, 64)", "(16)");
  EXPECT_EQ(shapes, expected);
}

TEST(RnnAttentionParameters, TyingDependsOnTheVocabularies) {
  const auto names = [](bool tie, bool shared) {
    ParamStore store;
    const RnnAttention model(small_rnn_options(1, tie),
                             {.source_size = 19, .target_size = 19, .shared = shared},
                             store.root());
    std::string found;
    for (const char* name : {"embedding.weight", "encoder.embedding.weight",
                             "decoder.embedding.weight", "output.weight"}) {
      if (store.contains(name)) found += std::string(name) + ' ';
    }
    return found;
  };
  EXPECT_EQ(names(true, true), "embedding.weight ");
  EXPECT_EQ(names(true, false), "encoder.embedding.weight decoder.embedding.weight ");
  EXPECT_EQ(names(false, true), "encoder.embedding.weight decoder.embedding.weight output.weight ");
}

TEST(RnnAttentionParameters, RecurrentMatricesOfEachGateAreOrthogonal) {
  ParamStore store(3, DType::kFloat64);
  const GruLayer layer({.in = 7, .hidden_size = 37, .bidirectional = true}, store.root());
  for (int64_t gate = 0; gate < 6; ++gate) {
    const test::Matrix w(layer.weight.value().slice(37 * gate, 37 * (gate + 1)));
    const test::Matrix product = w * test::transpose(w);
    for (int64_t i = 0; i < 37; ++i) {
      for (int64_t j = 0; j < 37; ++j) EXPECT_NEAR(product(i, j), i == j, 1e-12);
    }
  }
  const Tensor first = layer.weight.value().slice(0, 37),
               second = layer.weight.value().slice(37, 74);
  EXPECT_GT(distance(first, second), 0.1);
}

TEST(RnnAttentionParameters, RefusesAModelWithoutLayers) {
  ParamStore store;
  ModelOptions options = small_rnn_options(1, true);
  options.decoder_layers = 0;
  EXPECT_EQ(test::error_of([&] {
              RnnAttention(options, {.source_size = 19, .target_size = 19}, store.root());
            }),
            "[rnn_attention] expected hidden_size, encoder_layers and decoder_layers >= 1, got 16, "
            "1 and 0.");
}

// ---- Padding

// `width` columns, new ones filled with padding.
Tensor widen(const Tensor& ids, int64_t width) {
  const int64_t rows = ids.shape()[0], cols = ids.shape()[1];
  Tensor wide = Tensor::zeros({rows, width}, DType::kInt32);
  for (int64_t b = 0; b < rows; ++b) {
    std::copy_n(ids.data<int32_t>() + b * cols, cols, wide.data<int32_t>() + b * width);
  }
  return wide;
}

TEST_P(RnnAttentionModel, PaddingChangesNothing) {
  const auto run = [&](const RnnAttention::Batch& batch) {
    Tape tape;
    const Var loss = model_.loss(batch, {.label_smoothing = 0.1}).loss;
    tape.backward(loss);
    std::vector<Tensor> results = {loss.value()};
    for (const Parameter& p : built_.store.parameters()) {
      results.push_back(p.var.grad().clone());
      p.var.zero_grad();
    }
    return results;
  };
  RnnAttention::Batch batch = batch_of({5, 3}, {4, 2}, 5, 5);
  const auto tight = run(batch);
  batch.source = widen(batch.source, 8);
  batch.target_in = widen(batch.target_in, 9);
  batch.target_out = widen(batch.target_out, 9);
  const auto wide = run(batch);
  for (size_t i = 0; i < tight.size(); ++i) {
    EXPECT_LT(distance(tight[i], wide[i]), tolerance_)
        << (i == 0 ? "loss" : built_.store.parameters()[i - 1].name);
  }
}

// Padding and other sentences do not matter: a row gives the same by itself.
TEST_P(RnnAttentionModel, ARowDoesNotDependOnItsBatch) {
  const Tensor target = test::uniform_ids({3, 4}, 8, 2, kVocabulary);
  const Tensor together = teacher_forcing(source_, source_lengths_, target);
  for (int64_t b = 0; b < 3; ++b) {
    const Tensor alone = teacher_forcing(test::columns(source_.slice(b, b + 1), 0, lengths_[b]),
                                         source_lengths_.slice(b, b + 1), target.slice(b, b + 1));
    EXPECT_LT(distance(alone, together.slice(b, b + 1)), tolerance_) << b;
  }
}

TEST_P(RnnAttentionModel, EverySourceTokenIsFelt) {
  const Tensor lengths = lengths_tensor({5}), source = test::sentences({5}, 5, 3);
  const Tensor target = test::uniform_ids({1, 3}, 4, 2, kVocabulary);
  const Tensor before = teacher_forcing(source, lengths, target);
  for (int64_t t = 0; t < 5; ++t) {
    const Tensor other = source.clone();
    int32_t& token = other.data<int32_t>()[t];
    token = token == 4 ? 5 : 4;
    EXPECT_GT(distance(before, teacher_forcing(other, lengths, target)), 1e-4) << "token " << t;
  }
}

TEST_P(RnnAttentionModel, ASentenceOfNoTokenGivesFiniteResults) {
  RnnAttention::Batch batch = batch_of({4, 3}, {4, 2}, 5, 5);
  batch.source_lengths = lengths_tensor({4, 0});
  Tape tape;
  const Var loss = model_.loss(batch, {}).loss;
  tape.backward(loss);
  EXPECT_TRUE(std::isfinite(loss.value().item()));
  for (const Parameter& p : built_.store.parameters()) {
    for (const double g : p.var.grad().to_vector<double>()) ASSERT_TRUE(std::isfinite(g)) << p.name;
  }
}

// ---- Decoding

TEST_P(RnnAttentionModel, StepsEqualTeacherForcing) {
  const int64_t steps = 12;
  const Tensor target = test::uniform_ids({3, steps}, 8, 2, kVocabulary);
  const Var expected = teacher_forcing(source_, source_lengths_, target);
  RnnAttention::State state = test::started(model_, source_, source_lengths_);
  for (int64_t t = 0; t < steps; ++t) {
    const Tensor logits = model_.step(test::columns(target, t, t + 1).reshape({3}), state);
    ASSERT_EQ(logits.shape(), (Shape{3, kVocabulary}));
    const Tensor wanted = slice(expected, 1, t, t + 1).value().reshape(logits.shape());
    ASSERT_LT(distance(logits, wanted), tolerance_) << "step " << t;
    // The weights of each row are a distribution over its real tokens.
    const auto weights = state.weights.to_vector<double>();
    for (size_t b = 0; b < 3; ++b) {
      double sum = 0;
      for (size_t j = 0; j < 5; ++j) {
        sum += weights[5 * b + j];
        EXPECT_EQ(weights[5 * b + j] > 0, j < static_cast<size_t>(lengths_[b]));
      }
      EXPECT_NEAR(sum, 1, 1e-6);
    }
  }
}

// Sequences follow others, one leaves, and a shorter sentence joins behind the others.
TEST_P(RnnAttentionModel, SequencesFollowTheirParentsLeaveAndJoin) {
  const auto check_rows = [&](const Tensor& logits, const std::vector<int32_t>& sentences,
                              const std::vector<std::vector<int32_t>>& histories) {
    for (size_t row = 0; row < histories.size(); ++row) {
      const int32_t s = sentences[row];
      const auto length = static_cast<int64_t>(histories[row].size());
      const Tensor all = teacher_forcing(source_.slice(s, s + 1), source_lengths_.slice(s, s + 1),
                                         Tensor::from<int32_t>(histories[row], {1, length}))
                             .reshape({length, kVocabulary});
      const auto r = static_cast<int64_t>(row);
      EXPECT_LT(distance(logits.slice(r, r + 1), all.slice(length - 1, length)), tolerance_) << row;
    }
  };
  RnnAttention::State state;
  const auto feed = [&](const std::vector<int32_t>& tokens) {
    return model_.step(lengths_tensor(tokens), state);
  };
  model_.add(source_, source_lengths_, state);
  check_rows(feed({2, 4, 5}), {0, 1, 2}, {{2}, {4}, {5}});
  state.select(std::vector<int32_t>{1, 1, 2, 0, 2});
  check_rows(feed({9, 10, 11, 12, 13}), {1, 1, 2, 0, 2},
             {{4, 9}, {4, 10}, {5, 11}, {2, 12}, {5, 13}});
  state.select(std::vector<int32_t>{4, 2, 1});
  model_.add(test::columns(source_.slice(1, 3), 0, 3), source_lengths_.slice(1, 3), state);
  EXPECT_EQ(state.memory.keys.shape()[0], 4);  // sentence 0 is forgotten
  check_rows(feed({14, 15, 16, 2, 4}), {2, 2, 1, 1, 2},
             {{5, 13, 14}, {5, 11, 15}, {4, 10, 16}, {2}, {4}});
}

// Greedy search by teacher forcing: the most probable token that is allowed, again and again.
TEST_P(RnnAttentionModel, GreedyTranslationIsThatOfTeacherForcing) {
  const SearchOptions options{.num_beams = 1, .max_new_tokens = 8};
  const auto found = translate({{&model_}}, {source_, source_lengths_}, options);
  for (int64_t s = 0; s < 3; ++s) {
    std::vector<int32_t> history = {2};
    for (int step = 0; step < 7; ++step) {
      const auto length = static_cast<int64_t>(history.size());
      const auto logits = teacher_forcing(source_.slice(s, s + 1), source_lengths_.slice(s, s + 1),
                                          Tensor::from<int32_t>(history, {1, length}))
                              .to_vector<double>();
      const auto last = logits.end() - kVocabulary;
      const auto best = static_cast<int32_t>(std::max_element(last + 3, logits.end()) - last);
      if (best == 3) break;
      history.push_back(best);
    }
    EXPECT_EQ(found.at(s).at(0).tokens, std::vector<int32_t>(history.begin() + 1, history.end()));
  }
}

TEST_P(RnnAttentionModel, TranslationsDoNotDependOnTheBatch) {
  const SearchOptions beams{.num_beams = 3, .n_best = 2, .max_length_ratio = 0.5};
  const SearchOptions draws{.num_beams = 1, .max_length_ratio = 0.5, .do_sample = true};
  for (const SearchOptions& options : {beams, draws}) {
    const auto together =
        translate({{&model_}}, {source_, source_lengths_, {}, {4, 9, 2}}, options);
    ASSERT_EQ(together.size(), 3u);
    for (int64_t s = 0; s < 3; ++s) {
      const Tensor alone = test::columns(source_.slice(s, s + 1), 0, lengths_[s]);
      const int64_t id = s == 0 ? 4 : s == 1 ? 9 : 2;
      const auto found =
          translate({{&model_}}, {alone, source_lengths_.slice(s, s + 1), {}, {id}}, options);
      ASSERT_EQ(found.at(0).size(), together[s].size());
      for (size_t i = 0; i < found[0].size(); ++i) {
        EXPECT_EQ(found[0][i].tokens, together[s][i].tokens);
        EXPECT_NEAR(found[0][i].score, together[s][i].score, 100 * tolerance_);
        EXPECT_LE(found[0][i].tokens.size(), std::ceil(0.5 * lengths_[s]) + 10);
      }
    }
  }
}

// ---- Dropout and determinism

TEST_P(RnnAttentionModel, DropoutIsOnUnderATapeAndRepeatsByKey) {
  ModelOptions options = options_;
  options.dropout = 0.3;
  const Small built(options, GetParam().dtype);
  const RnnAttention::Batch batch = batch_of({5, 3}, {4, 2}, 5, 5);
  const Tensor quiet = built.model.loss(batch, {}).loss.value();
  EXPECT_TRUE(test::same_bits(quiet, model_.loss(batch, {}).loss.value()));
  const auto under_tape = [&](PhiloxKey key) {
    Tape tape(key);
    return built.model.loss(batch, {}).loss.value();
  };
  const Tensor drawn = under_tape({.seed = 1, .step = 4, .stream = 0});
  EXPECT_FALSE(test::same_bits(drawn, quiet));
  EXPECT_TRUE(test::same_bits(drawn, under_tape({.seed = 1, .step = 4, .stream = 0})));
  EXPECT_FALSE(test::same_bits(drawn, under_tape({.seed = 1, .step = 5, .stream = 0})));
}

// Large enough for products to be cut into many tiles.
TEST_P(RnnAttentionModel, SameBitsForAnyNumberOfThreads) {
  ModelOptions options = options_;
  options.hidden_size = 96;
  options.dropout = 0.1;
  const auto run = [&](int threads) {
    const test::WithThreads scope(threads);
    const Small built(options, GetParam().dtype);  // their initial values too
    Tape tape({.seed = 3, .step = 2, .stream = 0});
    const Var loss = built.model.loss(batch_of({30, 25, 13, 1}, {9, 4, 10, 12}, 30, 13), {}).loss;
    tape.backward(loss);
    std::vector<Tensor> results = {loss.value()};
    for (const Parameter& p : built.store.parameters()) results.push_back(p.var.grad().clone());
    return results;
  };
  const auto one = run(1);
  for (const int threads : {2, 3}) {
    const auto many = run(threads);
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_TRUE(test::same_bits(one[i], many[i])) << i << ", " << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Variants, RnnAttentionModel,
    ::testing::Values(RnnVariant{"one_layer_tied_float64", 1, true, DType::kFloat64, 1e-12},
                      RnnVariant{"two_layers_untied_float64", 2, false, DType::kFloat64, 1e-12},
                      RnnVariant{"three_layers_tied_float32", 3, true, DType::kFloat32, 2e-5}),
    [](const auto& info) { return std::string(info.param.name); });

// ---- One fixed vector

// Every step sees the same of the source, whatever stands behind its length, and steps of decoding
// are those of teacher forcing while sequences join.
TEST(RnnWithoutAttention, DecodesFromOneVector) {
  ModelOptions options = small_rnn_options(2, true);
  options.attends = false;
  const Small built(options, DType::kFloat64);
  const RnnAttention& model = built.model;
  for (const Parameter& p : built.store.parameters()) {
    EXPECT_EQ(p.name.find("attention"), std::string::npos) << p.name;
  }
  const std::vector<int32_t> lengths = {5, 3, 1};
  const Tensor source = test::sentences(lengths, 5, 7), source_lengths = lengths_tensor(lengths);
  const Tensor target = test::uniform_ids({3, 6}, 8, 2, kVocabulary);
  const Var memory = model.encode(source, source_lengths);
  const Tensor expected = model.logits(model.decode(target, memory, source_lengths)).value();
  RnnAttention::State state;
  model.add(source.slice(0, 1), source_lengths.slice(0, 1), state);
  model.add(source.slice(1, 3), source_lengths.slice(1, 3), state);
  for (int64_t t = 0; t < 6; ++t) {
    const Tensor logits = model.step(test::columns(target, t, t + 1).reshape({3}), state);
    const Tensor wanted = slice(Var(expected), 1, t, t + 1).value().reshape(logits.shape());
    EXPECT_LT(distance(logits, wanted), 1e-12) << t;
  }
  // Two sources whose last states are the same give the same, though their middles differ.
  const Var changed =
      concat({slice(memory, 1, 0, 1), slice(memory, 1, 0, 3), slice(memory, 1, 4, 5)}, 1);
  const Tensor again = model.logits(model.decode(target, changed, source_lengths)).value();
  EXPECT_LT(distance(again, expected), 1e-12);
  EXPECT_EQ(test::error_of([&] {
              source_attention(PairModel(&model), {source, source_lengths, target}, 0);
            }),
            "[attention] expected a model that attends to the source, got one with "
            "model.attention: none.");
}

}  // namespace
}  // namespace tapestry
