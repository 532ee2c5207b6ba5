// Several models that decode together: against a table of their mean, against one model, and
// against loops over the models' own logits.
#include "nn/decoding/ensemble.h"

#include "tests/nn/models/models.h"
#include "tests/nn/models/table_model.h"

namespace tapestry {
namespace {

using namespace test;  // NOLINT: the table, the plain searches and the small models

double log_mean(const std::vector<double>& logs, const std::vector<double>& weights) {
  double sum = 0;
  for (size_t i = 0; i < logs.size(); ++i) sum += weights[i] * std::exp(logs[i]);
  return std::log(sum);
}

// log-softmax of one row.
std::vector<double> normalised(std::vector<double> z) {
  const double largest = *std::max_element(z.begin(), z.end());
  double total = 0;
  for (const double value : z) total += std::exp(value - largest);
  for (double& value : z) value -= largest + std::log(total);
  return z;
}

std::unique_ptr<NextToken> table_steps(const Table& table) {
  return std::make_unique<TableModel>(table);
}

// Greedy search by the mean of the tables' probabilities, with a repetition penalty.
Hypothesis plain_ensemble(const std::vector<const Table*>& tables,
                          const std::vector<double>& weights, int32_t sentence, int64_t limit,
                          double rho) {
  Tokens history = {kBos}, generated;
  double log_probability = 0;
  while (true) {
    std::vector<double> z;
    std::vector<std::vector<double>> each;
    for (const Table* table : tables) each.push_back(normalised(table->logits(sentence, history)));
    for (int64_t v = 0; v < kTableVocab; ++v) {
      std::vector<double> logs;
      for (const auto& one : each) logs.push_back(one[v]);
      z.push_back(log_mean(logs, weights));
    }
    for (int32_t v = 0; v < kTableVocab; ++v) {
      if (std::count(history.begin(), history.end(), v) > 0)
        z[v] = z[v] > 0 ? z[v] / rho : z[v] * rho;
    }
    z = normalised(z);
    int32_t token = kEos;
    for (int32_t v = kEos; v < kTableVocab; ++v) {
      if (z[v] > z[token]) token = v;
    }
    if (std::ssize(generated) + 1 >= limit) token = kEos;
    log_probability += z[token];
    if (token == kEos)
      return ended({*tables[0], sentence, limit}, generated, token, log_probability, {});
    generated.push_back(token);
    history.push_back(token);
  }
}

TEST(Ensemble, TakesTheWeightedMeanOfProbabilities) {
  const std::vector<int64_t> limits = {6, 1, 8};
  const std::vector<double> given = {3, 1, 0.5};
  const std::vector<double> weights = {3 / 4.5, 1 / 4.5, 0.5 / 4.5};
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    // The third model's logits are so far apart that some of its probabilities are 0.
    const Table a(seed, 2), b(seed + 100, 1), c(seed + 200, 300);
    for (const double rho : {1.0, 1.5}) {
      std::vector<std::unique_ptr<NextToken>> members;
      for (const Table* table : {&a, &b, &c}) members.push_back(table_steps(*table));
      const auto ensemble = ensemble_of(std::move(members), given);
      const auto found = generate(*ensemble, task_of(limits), {.repetition_penalty = rho});
      for (int32_t s = 0; s < 3; ++s) {
        expect_same({found[s]}, {plain_ensemble({&a, &b, &c}, weights, s, limits[s], rho)}, 1e-10);
      }
    }
  }
}

TEST(Ensemble, OfAModelWithItselfIsTheModel) {
  for (const SearchOptions& options :
       {SearchOptions{.num_beams = 1}, SearchOptions{.num_beams = 4, .n_best = 4},
        SearchOptions{.num_beams = 1, .do_sample = true, .top_k = 3, .top_p = 0.9}}) {
    const Table table(5);
    std::vector<std::unique_ptr<NextToken>> members;
    for (int i = 0; i < 2; ++i) members.push_back(table_steps(table));
    const auto ensemble = ensemble_of(std::move(members), {0.3, 0.7});
    const auto alone = table_steps(table);
    const auto found = search(*ensemble, task_of({6, 9}), options);
    const auto expected = search(*alone, task_of({6, 9}), options);
    for (size_t s = 0; s < 2; ++s) expect_same(found[s], expected[s], 1e-12);
  }
}

TEST(Ensemble, OfOneModelIsThatModel) {
  const Table table(5);
  std::vector<std::unique_ptr<NextToken>> members;
  members.push_back(table_steps(table));
  const NextToken* const model = members[0].get();
  EXPECT_EQ(ensemble_of(std::move(members), {2}).get(), model);
}

TEST(Ensemble, WeightsAreCheckedAndAddUpToOne) {
  EXPECT_EQ(ensemble_weights({}, 4), (std::vector<double>(4, 0.25)));
  EXPECT_EQ(ensemble_weights({3, 1}, 2), (std::vector<double>{0.75, 0.25}));
  EXPECT_EQ(ensemble_weights({0, 2}, 2), (std::vector<double>{0, 1}));
  const auto error = [](const std::vector<double>& weights) {
    return error_of([&] { ensemble_weights(weights, 2); });
  };
  const std::string expected =
      "[ensemble] expected 2 weights, one for each model, none below 0 and one above, got ";
  EXPECT_EQ(error({1}), expected + "1.");
  EXPECT_EQ(error({1, 2, 3}), expected + "1, 2, 3.");
  EXPECT_EQ(error({1, -0.5}), expected + "1, -0.5.");
  EXPECT_EQ(error({0, 0}), expected + "0, 0.");
  EXPECT_EQ(error({1, NAN}), expected + "1, nan.");
  EXPECT_EQ(error({1, INFINITY}), expected + "1, inf.");
}

TEST(Ensemble, MeansOfLogProbabilitiesDoNotUnderflow) {
  const auto means = mean_log_probabilities({{-1, -2000, -3}, {-2, -2001, -3}}, {0.25, 0.75});
  EXPECT_NEAR(means[0], std::log(0.25 * std::exp(-1) + 0.75 * std::exp(-2)), 1e-14);
  EXPECT_NEAR(means[1], -2000 + std::log(0.25 + 0.75 * std::exp(-1)), 1e-11);
  EXPECT_NEAR(means[2], -3, 1e-14);
}

// A recurrent model and two Transformers translate together. The most probable token of the mean of
// probabilities, by teacher forcing, again and again.
TEST(Ensemble, OfDifferentModelsTranslates) {
  ModelOptions recurrent = post_norm_options();
  recurrent.hidden_size = 12;
  const SmallModel a(post_norm_options()), b(pre_norm_options());
  const SmallModelOf<RnnAttention> c(recurrent);
  const PairModels models{{&a.model, &b.model, &c.model}, {1, 2, 3}};
  const Tensor source = sentences({5, 3}, 5, 7), lengths = lengths_tensor({5, 3});
  const auto found = translate(models, {source, lengths}, {.num_beams = 1, .max_new_tokens = 9});
  for (int64_t s = 0; s < 2; ++s) {
    Tokens history = {kBos};
    double total = 0;
    for (int step = 0;; ++step) {
      const PairInput input{source.slice(s, s + 1), lengths.slice(s, s + 1),
                            ints(history, {1, std::ssize(history)})};
      std::vector<std::vector<double>> each;
      for (const PairModel& model : models.models) {
        const auto all = pair_logits(model, input).value().to_vector<double>();
        each.push_back(normalised({all.end() - kVocabulary, all.end()}));
      }
      std::vector<double> log_probabilities;
      for (size_t v = 0; v < size_t{kVocabulary}; ++v) {
        log_probabilities.push_back(
            log_mean({each[0][v], each[1][v], each[2][v]}, {1 / 6.0, 2 / 6.0, 3 / 6.0}));
      }
      int32_t best = 3;
      for (int32_t v = 3; v < kVocabulary; ++v) {
        if (log_probabilities[v] > log_probabilities[best]) best = v;
      }
      if (step == 8) best = 3;
      total += log_probabilities[best];
      if (best == 3) break;
      history.push_back(best);
    }
    EXPECT_EQ(found[s].at(0).tokens, Tokens(history.begin() + 1, history.end()));
    EXPECT_NEAR(found[s].at(0).log_probability, total, 1e-10);
  }
}

// translate() gives the repetition penalty the source where both sides have one vocabulary.
TEST(Translate, TheRepetitionPenaltyCountsTheSource) {
  for (const bool shared : {true, false}) {
    const SmallModel built(
        post_norm_options(), DType::kFloat64,
        {.source_size = kVocabulary, .target_size = kVocabulary, .shared = shared, .no_target = 0});
    Tensor source = sentences({5}, 5, 7);
    source.data<int32_t>()[4] = 3;
    constexpr double kRho = 3;
    const auto found = translate({{&built.model}}, {source, lengths_tensor({5})},
                                 {.num_beams = 1, .repetition_penalty = kRho, .max_new_tokens = 8});
    Tokens history = {kBos}, words = source.to_vector<int32_t>();
    words.pop_back();  // eos
    double total = 0;
    for (int step = 0;; ++step) {
      const auto all = pair_logits(&built.model, {source, lengths_tensor({5}),
                                                  ints(history, {1, std::ssize(history)})})
                           .value()
                           .to_vector<double>();
      std::vector<double> z(all.end() - kVocabulary, all.end());
      for (int32_t v = 0; v < kVocabulary; ++v) {
        const bool seen = std::count(history.begin(), history.end(), v) > 0 ||
                          (shared && std::count(words.begin(), words.end(), v) > 0);
        if (seen) z[v] = z[v] > 0 ? z[v] / kRho : z[v] * kRho;
      }
      z = normalised(z);
      int32_t best = 3;
      for (int32_t v = 3; v < kVocabulary; ++v) {
        if (z[v] > z[best]) best = v;
      }
      if (step == 7) best = 3;
      total += z[best];
      if (best == 3) break;
      history.push_back(best);
    }
    EXPECT_EQ(found.at(0).at(0).tokens, Tokens(history.begin() + 1, history.end())) << shared;
    EXPECT_NEAR(found.at(0).at(0).log_probability, total, 1e-10) << shared;
  }
}

// The output begins with the prefix, whose log-probability is that of teacher forcing.
TEST(Translate, BeginsWithThePrefix) {
  const SmallModel built(pre_norm_options());
  const Tensor source = sentences({5, 3, 4}, 5, 7), lengths = lengths_tensor({5, 3, 4});
  const std::vector<Tokens> prefixes = {{9, 9, 12}, {}, {4}};
  for (const int64_t beams : {1, 4}) {
    const auto found = translate({{&built.model}},
                                 {.source = source,
                                  .lengths = lengths,
                                  .prefixes = prefixes,
                                  .token_log_probabilities = true},
                                 {.num_beams = beams, .n_best = beams, .max_new_tokens = 3});
    for (int64_t s = 0; s < 3; ++s) {
      for (const Hypothesis& h : found[s]) {
        // The limit of 3 leaves no room behind the first prefix, so that only eos follows.
        if (s == 0) {
          EXPECT_EQ(h.tokens, prefixes[0]);
        }
        ASSERT_GE(h.tokens.size(), prefixes[s].size());
        EXPECT_TRUE(std::equal(prefixes[s].begin(), prefixes[s].end(), h.tokens.begin()));
        Tokens in = h.tokens, out = h.tokens;
        in.insert(in.begin(), kBos);
        out.push_back(3);
        const auto z =
            log_softmax(pair_logits(&built.model, {source.slice(s, s + 1), lengths.slice(s, s + 1),
                                                   ints(in, {1, std::ssize(in)})}))
                .value()
                .to_vector<double>();
        double total = 0;
        ASSERT_EQ(h.token_log_probabilities.size(), out.size());
        for (size_t t = 0; t < out.size(); ++t) {
          const double expected = z[t * kVocabulary + static_cast<size_t>(out[t])];
          EXPECT_NEAR(h.token_log_probabilities[t], expected, 1e-10);
          total += expected;
        }
        EXPECT_NEAR(h.log_probability, total, 1e-10);
      }
    }
  }
  ModelOptions few = pre_norm_options();
  few.max_position_embeddings = 6;
  const SmallModel small(few);
  EXPECT_EQ(error_of([&] {
              translate({{&small.model}},
                        {.source = source, .lengths = lengths, .prefixes = {{}, Tokens(6, 4), {}}},
                        {});
            }),
            "[translate] a prefix has 6 tokens, the model writes at most 6 with eos.");
}

// The rows of the decoder's attention over the source: those of the recorder, averaged.
TEST(SourceAttention, IsTheMeanOverTheHeadsOfALayer) {
  ModelOptions options = pre_norm_options();
  options.decoder_layers = 3;
  const SmallModel built(options);
  const auto batch = batch_of({5, 3}, {4, 2}, 5, 5);
  const PairInput input{batch.source, batch.source_lengths, batch.target_in};
  const std::vector<AttentionRecorder::Map> maps = [&] {
    AttentionRecorder recorder;
    pair_logits(&built.model, input);
    return recorder.maps();
  }();
  for (const int64_t layer : {0, 1, 2, 3}) {
    const int64_t used = layer == 0 ? 2 : layer;
    const Tensor& map = maps.at(size_t(options.encoder_layers + 2 * used - 1)).weights;
    const auto all = map.to_vector<double>();
    const int64_t heads = map.shape()[1], cells = map.shape()[2] * map.shape()[3];
    std::vector<double> expected;
    for (int64_t i = 0; i < 2 * cells; ++i) {
      double sum = 0;
      for (int64_t h = 0; h < heads; ++h) {
        sum += all[size_t((i / cells * heads + h) * cells + i % cells)];
      }
      expected.push_back(sum / double(heads));
    }
    const auto found = source_attention(&built.model, input, layer).to_vector<double>();
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12);
  }
}

// Its decoder has no self-attention whose weights would be recorded in between.
TEST(SourceAttention, OfADecoderWithARecurrence) {
  ModelOptions options = post_norm_options();
  options.decoder_self_attention = DecoderSelfAttention::kSsru;
  options.decoder_layers = 3;
  const SmallModel built(options);
  const auto batch = batch_of({5, 3}, {4, 2}, 5, 5);
  const PairInput input{batch.source, batch.source_lengths, batch.target_in};
  std::vector<Tensor> expected;
  {
    AttentionRecorder recorder;
    pair_logits(&built.model, input);
    ASSERT_EQ(std::ssize(recorder.maps()), options.encoder_layers + options.decoder_layers);
    for (int64_t i = 0; i < options.decoder_layers; ++i) {
      const Tensor& weights = recorder.maps()[size_t(options.encoder_layers + i)].weights;
      expected.push_back(mean(Var(weights), 1).value());
    }
  }
  for (const int64_t layer : {1, 2, 3}) {
    EXPECT_LT(distance(source_attention(&built.model, input, layer), expected[size_t(layer - 1)]),
              1e-12);
  }
}

TEST(SourceAttention, OfARecurrentModelIsThatOfItsSteps) {
  ModelOptions options = post_norm_options();
  const SmallModelOf<RnnAttention> built(options);
  const auto batch = batch_of({5, 3}, {4, 2}, 5, 5);
  const Tensor found =
      source_attention(&built.model, {batch.source, batch.source_lengths, batch.target_in}, 0);
  ASSERT_EQ(found.shape(), (Shape{2, 5, 5}));
  RnnAttention::State state = test::started(built.model, batch.source, batch.source_lengths);
  const auto ids = batch.target_in.to_vector<int32_t>();
  for (int64_t t = 0; t < 5; ++t) {
    built.model.step(ints({ids[size_t(t)], ids[size_t(5 + t)]}, {2}), state);
    const auto expected = state.weights.to_vector<double>();
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t s = 0; s < 5; ++s) {
        EXPECT_NEAR(found.data<double>()[(b * 5 + t) * 5 + s], expected[size_t(b * 5 + s)], 1e-12);
      }
    }
  }
  EXPECT_EQ(
      error_of([&] {
        source_attention(&built.model, {batch.source, batch.source_lengths, batch.target_in}, 2);
      }),
      "[attention] expected a layer of the decoder in [1, 1], got 2.");
}

}  // namespace
}  // namespace tapestry
