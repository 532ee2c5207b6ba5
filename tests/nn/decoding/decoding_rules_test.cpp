// Penalties, bans and open ends in greedy and beam search, against exhaustive and plain searches.
#include <set>

#include "nn/decoding/decoding.h"
#include "nn/models/transformer.h"
#include "tests/nn/models/models.h"
#include "tests/nn/models/table_model.h"

namespace tapestry {
namespace {

using namespace test;  // NOLINT: the table and the plain searches

struct Rules {
  const char* name;
  SearchOptions options;
};

void PrintTo(const Rules& rules, std::ostream* out) { *out << rules.name; }

const Rules kRules[] = {
    {"none", {}},
    {"frequency", {.frequency_penalty = 0.9}},
    {"frequency_reward", {.frequency_penalty = -0.4}},
    {"presence", {.presence_penalty = 1.2}},
    {"repetition", {.repetition_penalty = 1.7}},
    {"repetition_reward", {.repetition_penalty = 0.8}},
    {"no_unigram_twice", {.no_repeat_ngram_size = 1}},
    {"no_bigram_twice", {.no_repeat_ngram_size = 2}},
    {"no_trigram_twice", {.no_repeat_ngram_size = 3}},
    {"no_unit_twice_in_a_row", {.max_repeat = 1}},
    {"no_unit_three_times_in_a_row", {.max_repeat = 2}},
    {"min_new_tokens", {.min_new_tokens = 3}},
    {"no_unigram_and_no_eos", {.no_repeat_ngram_size = 1, .min_new_tokens = 6}},  // a dead end
    {"everything",
     {.frequency_penalty = 0.3,
      .presence_penalty = 0.4,
      .repetition_penalty = 1.2,
      .no_repeat_ngram_size = 2,
      .min_new_tokens = 2}},
};

class DecodingRules : public ::testing::TestWithParam<Rules> {
 protected:
  static SearchOptions options(int64_t beams, int64_t n_best) {
    SearchOptions options = GetParam().options;
    options.num_beams = beams;
    options.n_best = n_best;
    return options;
  }
};

// 4^4 live histories at most, so no beam is lost and the result is the optimum.
TEST_P(DecodingRules, WideBeamIsExhaustive) {
  const std::vector<int64_t> limits = {5, 1, 4};
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    for (const bool force_eos : {true, false}) {
      const Table table(seed);
      SearchTask task = task_of(limits);
      task.force_eos = force_eos;
      TableModel model(table);
      const auto found = search(model, task, options(350, 10));
      for (int32_t s = 0; s < 3; ++s) {
        SCOPED_TRACE(concat("seed ", seed, ", sentence ", s));
        const Question question{table, s, limits[s], {kBos}, force_eos};
        expect_same(found[s], exhaustive(question, options(350, 10)));
      }
    }
  }
}

TEST_P(DecodingRules, NarrowBeamsFollowThePlainSearch) {
  const std::vector<int64_t> limits = {9, 3, 12, 1, 7};
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const Table table(seed, seed % 2 == 0 ? 3 : 1);
    for (const int64_t beams : {1, 2, 3, 6}) {
      for (const bool force_eos : {true, false}) {
        SearchTask task = task_of(limits);
        task.force_eos = force_eos;
        TableModel model(table);
        const auto found = beam_search(model, task, options(beams, beams));
        for (int32_t s = 0; s < 5; ++s) {
          SCOPED_TRACE(concat("seed ", seed, ", ", beams, " beams, sentence ", s));
          const Question question{table, s, limits[s], {kBos}, force_eos};
          expect_same(found[s], plain_beam_search(question, options(beams, beams)));
        }
      }
    }
  }
}

TEST_P(DecodingRules, GreedySearchFollowsThePlainSearch) {
  const std::vector<int64_t> limits = {12, 1, 5, 20, 3};
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    for (const bool force_eos : {true, false}) {
      const Table table(seed, seed % 2 == 0 ? 3 : 1);
      SearchTask task = task_of(limits);
      task.force_eos = force_eos;
      TableModel model(table);
      const auto found = generate(model, task, options(1, 1));
      for (int32_t s = 0; s < 5; ++s) {
        SCOPED_TRACE(concat("seed ", seed, ", sentence ", s));
        const Question question{table, s, limits[s], {kBos}, force_eos};
        expect_same({found[s]}, {plain_generate(question, options(1, 1))});
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DecodingRules, ::testing::ValuesIn(kRules),
                         [](const auto& info) { return std::string(info.param.name); });

// A model that repeats one word and never ends.
class Stutter : public NextToken {
 public:
  explicit Stutter(double eos_logit = -20) : eos_logit_(eos_logit) {}
  Tensor step(const std::vector<int32_t>& tokens) override {
    const auto rows = static_cast<int64_t>(tokens.size());
    Tensor logits = Tensor::zeros({rows, kTableVocab}, DType::kFloat32);
    for (int64_t r = 0; r < rows; ++r) {
      float* z = logits.data<float>() + r * kTableVocab;
      z[kEos] = static_cast<float>(eos_logit_);
      z[4] = 5;
      z[5] = 1;
    }
    return logits;
  }
  void add(const std::vector<NewSentence>&) override {}
  void select(const std::vector<int32_t>&) override {}

 private:
  double eos_logit_;
};

TEST(NoRepeatNgram, NoNgramStandsTwice) {
  for (const int64_t beams : {1, 4}) {
    for (const bool do_sample : {false, true}) {
      if (do_sample && beams > 1) continue;
      for (const int64_t size : {1, 2, 3}) {
        Stutter model;
        SearchTask task = task_of({30});
        task.prompts = {{kBos}};
        task.force_eos = false;
        const auto found = search(model, task,
                                  {.num_beams = beams,
                                   .n_best = beams,
                                   .do_sample = do_sample,
                                   .no_repeat_ngram_size = size});
        for (const Hypothesis& h : found.at(0)) {
          std::set<Tokens> seen;
          for (size_t i = 0; i + size <= h.tokens.size(); ++i) {
            EXPECT_TRUE(
                seen.insert(Tokens(h.tokens.begin() + i, h.tokens.begin() + i + size)).second)
                << size << "-gram at " << i;
          }
        }
      }
    }
  }
}

TEST(MaxRepeat, NoUnitComesMoreOftenInARow) {
  for (const int64_t beams : {1, 4}) {
    for (const bool do_sample : {false, true}) {
      if (do_sample && beams > 1) continue;
      for (const int64_t most : {1, 2, 3}) {
        Stutter model;
        SearchTask task = task_of({60});
        task.force_eos = false;
        const auto found = search(
            model, task,
            {.num_beams = beams, .n_best = beams, .do_sample = do_sample, .max_repeat = most});
        for (const Hypothesis& h : found.at(0)) {
          Tokens first;
          for (const int32_t token : h.tokens) {
            first.push_back(token);
            EXPECT_LE(most_in_a_row(first), most) << first.size();
          }
        }
      }
    }
  }
}

TEST(MinNewTokens, ComeBeforeEos) {
  for (const int64_t beams : {1, 3}) {
    for (const bool do_sample : {false, true}) {
      if (do_sample && beams > 1) continue;
      for (const int64_t least : {0, 1, 7}) {
        Stutter model(20);  // would end at once
        SearchTask task = task_of({30});
        const auto found = search(
            model, task,
            {.num_beams = beams, .n_best = 1, .do_sample = do_sample, .min_new_tokens = least});
        const Hypothesis& best = found.at(0).at(0);
        EXPECT_EQ(std::ssize(best.tokens), least);
        EXPECT_TRUE(best.has_eos);
      }
    }
  }
}

TEST(OpenEnds, TheLastTokenIsAnyTokenAndEosIsNotForced) {
  for (const int64_t beams : {1, 2}) {
    Stutter model;
    SearchTask task = task_of({4});
    task.force_eos = false;
    const auto open = search(model, task, {.num_beams = beams}).at(0).at(0);
    EXPECT_EQ(open.tokens, (Tokens{4, 4, 4, 4}));
    EXPECT_FALSE(open.has_eos);
    EXPECT_DOUBLE_EQ(open.score, open.log_probability / 4);
    task.force_eos = true;
    const auto forced = search(model, task, {.num_beams = beams}).at(0).at(0);
    EXPECT_EQ(forced.tokens, (Tokens{4, 4, 4}));
    EXPECT_TRUE(forced.has_eos);
  }
}

// With everything forbidden, eos comes, in every strategy, at its own log-probability.
TEST(DeadEnds, AreFollowedByEos) {
  for (const int64_t beams : {1, 3}) {
    for (const bool force_eos : {false, true}) {
      Stutter model(0);
      SearchTask task = task_of({30});
      task.force_eos = force_eos;
      task.banned = {0, 1, 2, kEos, 6};
      const auto found =
          search(model, task, {.num_beams = beams, .no_repeat_ngram_size = 1}).at(0).at(0);
      EXPECT_EQ(found.tokens, (Tokens{4, 5}));
      EXPECT_TRUE(found.has_eos);
      EXPECT_TRUE(std::isfinite(found.log_probability));
    }
  }
}

// Bans do not renormalise: an allowed sequence has the same log-probability with and without them.
TEST(Bans, DoNotRenormalise) {
  Stutter with, without;
  const SearchTask task = task_of({5});
  const auto free = generate(with, task, {}).at(0);
  const auto banned = generate(without, task, {.no_repeat_ngram_size = 20}).at(0);
  EXPECT_EQ(free.tokens, banned.tokens);
  EXPECT_NEAR(free.log_probability, banned.log_probability, 1e-5);
}

TEST(Search, ForbiddenLogitsAreNeverChosen) {
  class Masked : public NextToken {
   public:
    Tensor step(const std::vector<int32_t>& tokens) override {
      const auto rows = static_cast<int64_t>(tokens.size());
      Tensor z = Tensor::full({rows, kTableVocab}, -INFINITY, DType::kFloat64);
      for (int64_t r = 0; r < rows; ++r) z.data<double>()[r * kTableVocab + 5] = 1;
      return z;
    }
    void add(const std::vector<NewSentence>&) override {}
    void select(const std::vector<int32_t>&) override {}
  } model;
  SearchTask task = task_of({3});
  task.force_eos = false;
  for (const auto& options : {SearchOptions{.num_beams = 1}, SearchOptions{.num_beams = 3},
                              SearchOptions{.num_beams = 1, .do_sample = true}}) {
    EXPECT_EQ(search(model, task, options).at(0).at(0).tokens, (Tokens{5, 5, 5}));
  }
}

TEST(Search, LogitsThatAreNotFiniteAreRefused) {
  class Broken : public NextToken {
   public:
    explicit Broken(double value) : value_(value) {}
    Tensor step(const std::vector<int32_t>& tokens) override {
      Tensor z = Tensor::zeros({static_cast<int64_t>(tokens.size()), kTableVocab}, DType::kFloat32);
      if (++steps_ == 3) z.data<float>()[6] = static_cast<float>(value_);
      return z;
    }
    void add(const std::vector<NewSentence>&) override {}
    void select(const std::vector<int32_t>&) override {}

   private:
    double value_;
    int steps_ = 0;
  };
  SearchTask task = task_of({9});
  task.banned.push_back(kEos);
  task.sequence_ids = {41};
  for (const double value : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    for (const auto& options : {SearchOptions{.num_beams = 1}, SearchOptions{.num_beams = 3},
                                SearchOptions{.num_beams = 1, .do_sample = true}}) {
      Broken model(value);
      EXPECT_EQ(error_of([&] { search(model, task, options); }),
                "[search] the logits of sentence 41 after 2 tokens are not finite.");
    }
  }
}

// translate() passes the options on: draws, rules and limits.
TEST(Translate, KnowsAllStrategies) {
  const SmallModel built(post_norm_options());
  const Tensor source = sentences({5, 3}, 5, 7);
  const Tensor lengths = lengths_tensor({5, 3});
  const auto with = [&](const SearchOptions& options, const std::vector<int64_t>& ids = {}) {
    return translate({{&built.model}}, {source, lengths, {}, ids}, options);
  };
  const SearchOptions sampled{.num_beams = 1, .do_sample = true, .seed = 3};
  EXPECT_EQ(with(sampled).at(0).at(0).tokens, with(sampled, {0, 1}).at(0).at(0).tokens);
  EXPECT_NE(with(sampled).at(0).at(0).tokens, with(sampled, {7, 8}).at(0).at(0).tokens);
  for (const int64_t beams : {1, 3}) {
    for (const auto& hypotheses : with({.num_beams = beams, .max_new_tokens = 4})) {
      EXPECT_LE(hypotheses.at(0).tokens.size(), 3u);
      EXPECT_TRUE(hypotheses.at(0).has_eos);
    }
    for (const auto& hypotheses :
         with({.num_beams = beams, .no_repeat_ngram_size = 1, .min_new_tokens = 9})) {
      Tokens tokens = hypotheses.at(0).tokens;
      EXPECT_GE(tokens.size(), 9u);
      std::sort(tokens.begin(), tokens.end());
      EXPECT_EQ(std::adjacent_find(tokens.begin(), tokens.end()), tokens.end());
    }
  }
}

// Llama 3 and others end a text with one token of several: all searches know each of them, and a
// beam never lacks candidates because its best ones end.
TEST_P(DecodingRules, AnyOfSeveralEndsEndsASequence) {
  const std::vector<int64_t> limits = {5, 1, 4};
  const auto expect_like = [](const std::vector<Hypothesis>& found,
                              const std::vector<Hypothesis>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t n = 0; n < found.size(); ++n) {
      EXPECT_EQ(found[n].tokens, expected[n].tokens);
      EXPECT_EQ(found[n].has_eos, expected[n].has_eos);
      EXPECT_NEAR(found[n].score, expected[n].score, 1e-12);
    }
  };
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const Table table(seed);
    SearchTask task = task_of(limits);
    task.more_ends = {4, 6};
    for (size_t i = 0; i < limits.size(); ++i) {
      const Question question{.table = table,
                              .sentence = static_cast<int32_t>(i),
                              .max_length = limits[i],
                              .more_ends = task.more_ends};
      TableModel wide(table), narrow(table), greedy(table);
      expect_like(search(wide, task, options(60, 8))[i], exhaustive(question, options(60, 8)));
      expect_like(search(narrow, task, options(2, 2))[i],
                  plain_beam_search(question, options(2, 2)));
      expect_like(search(greedy, task, options(1, 1))[i],
                  plain_beam_search(question, options(1, 1)));
    }
  }
}

// A table that finds the best token of a row itself.
class TableWithLargest : public TableModel {
 public:
  using TableModel::TableModel;
  Tensor largest(const std::vector<int32_t>& tokens, const std::vector<int32_t>& banned) override {
    const Tensor logits = step(tokens);
    ++found;
    std::vector<int32_t> best;
    for (int64_t r = 0; r < logits.shape()[0]; ++r) {
      const double* z = logits.data<double>() + r * kTableVocab;
      int32_t token = -1;
      for (int32_t v = 0; v < kTableVocab; ++v) {
        if (std::count(banned.begin(), banned.end(), v) > 0) continue;
        if (token < 0 || z[v] > z[token]) token = v;
      }
      best.push_back(token);
    }
    return Tensor::from(best, {std::ssize(best)});
  }
  int found = 0;  ///< steps of which it was asked for the best only
};

// Without log-probabilities the logits are read where rules bind, with the same tokens.
TEST(GreedyWithRules, ReadsLogitsOnlyWhereTheyBind) {
  int found = 0, steps = 0;
  for (const SearchOptions& options :
       {SearchOptions{.num_beams = 1, .no_repeat_ngram_size = 3},
        SearchOptions{.num_beams = 1, .max_repeat = 2},
        SearchOptions{.num_beams = 1, .max_repeat = 1, .min_new_tokens = 4}}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const Table table(seed);
      SearchTask task = task_of({12, 12});
      TableModel plain(table);
      const std::vector<Hypothesis> expected = generate(plain, task, options);
      task.log_probabilities = false;
      TableWithLargest model(table);
      const std::vector<Hypothesis> tokens = generate(model, task, options);
      for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i].tokens, expected[i].tokens);
      found += model.found;
      steps += model.steps;
    }
  }
  EXPECT_GT(found, steps / 4);
  EXPECT_LT(found, steps);
}

}  // namespace
}  // namespace tapestry
