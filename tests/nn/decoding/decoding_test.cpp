// Greedy and beam search against exhaustive search and a plain beam search, on models that are a
// random table over whole histories.
#include "nn/decoding/decoding.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "core/cpu/parallel.h"
#include "core/kernels/top_logits.h"
#include "nn/layers/weight_matrix.h"
#include "tests/nn/models/table_model.h"

namespace tapestry {
namespace {

using namespace test;  // NOLINT: the table and the plain searches

struct Penalty {
  const char* name;
  LengthPenalty type;
  double alpha;
};

void PrintTo(const Penalty& penalty, std::ostream* out) { *out << penalty.name; }

class BeamSearch : public ::testing::TestWithParam<Penalty> {
 protected:
  static SearchOptions options(int64_t beams, int64_t n_best) {
    return {.num_beams = beams,
            .n_best = n_best,
            .length_penalty = GetParam().alpha,
            .length_penalty_type = GetParam().type,
            .early_stopping = EarlyStopping::kNever};
  }
};

// At most 3^3 histories are live, so 120 beams lose none.
TEST_P(BeamSearch, WideBeamIsExhaustive) {
  const std::vector<int64_t> limits = {4, 1, 3, 4, 2};
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Table table(seed);
    const SearchOptions wide = options(120, 12);
    TableModel model(table);
    const auto found = beam_search(model, task_of(limits), wide);
    ASSERT_EQ(found.size(), limits.size());
    for (int32_t s = 0; s < 5; ++s) expect_same(found[s], exhaustive({table, s, limits[s]}, wide));
  }
}

TEST_P(BeamSearch, NarrowBeamsFollowThePlainSearch) {
  const std::vector<int64_t> limits = {9, 3, 12, 1, 7, 12, 5};
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    // Sharp and flat models: early and late ends.
    const Table table(seed, seed % 2 == 0 ? 3 : 1);
    for (const int64_t beams : {1, 2, 3, 5, 8}) {
      for (const int64_t n_best : {int64_t{1}, beams}) {
        const SearchOptions narrow = options(beams, n_best);
        TableModel model(table);
        const auto found = beam_search(model, task_of(limits), narrow);
        for (int32_t s = 0; s < 7; ++s) {
          SCOPED_TRACE(concat("seed ", seed, ", ", beams, " beams, sentence ", s));
          expect_same(found[s], plain_beam_search({table, s, limits[s]}, narrow));
        }
      }
    }
  }
}

TEST_P(BeamSearch, Float32LogitsFindTheSame) {
  const Table table(5, 2, DType::kFloat32);
  const SearchOptions narrow = options(4, 4);
  TableModel model(table);
  const auto found = beam_search(model, task_of({8, 8, 8}), narrow);
  for (int32_t s = 0; s < 3; ++s) {
    expect_same(found[s], plain_beam_search({table, s, 8}, narrow), 1e-5);
  }
}

TEST_P(BeamSearch, EachSentenceIsSearchedAsIfAlone) {
  const std::vector<int64_t> limits = {10, 2, 6};
  const Table table(8);
  const SearchOptions narrow = options(3, 2);
  TableModel together(table);
  const auto found = beam_search(together, task_of(limits), narrow);
  EXPECT_LE(together.steps, 10);
  for (int32_t s = 0; s < 3; ++s)
    expect_same(found[s], plain_beam_search({table, s, limits[s]}, narrow));
}

// Each rule of stopping finds what the plain search with that rule finds, and true saves steps.
TEST_P(BeamSearch, StopsEarlyAsTheOptionSays) {
  const std::vector<int64_t> limits = {9, 3, 12, 1, 7, 30, 30};
  int steps_true = 0, steps_never = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Table table(seed, seed % 2 == 0 ? 3 : 1);
    for (const int64_t beams : {2, 3, 5}) {
      for (const EarlyStopping stopping : {EarlyStopping::kTrue, EarlyStopping::kFalse}) {
        SearchOptions narrow = options(beams, beams);
        narrow.early_stopping = stopping;
        TableModel model(table);
        const auto found = beam_search(model, task_of(limits), narrow);
        for (int32_t s = 0; s < 7; ++s) {
          SCOPED_TRACE(concat("seed ", seed, ", ", beams, " beams, sentence ", s));
          expect_same(found[s], plain_beam_search({table, s, limits[s]}, narrow));
        }
        if (stopping == EarlyStopping::kTrue) steps_true += model.steps;
      }
      TableModel patient(table);
      beam_search(patient, task_of(limits), options(beams, beams));
      steps_never += patient.steps;
    }
  }
  EXPECT_LE(steps_true, steps_never);
}

INSTANTIATE_TEST_SUITE_P(Penalties, BeamSearch,
                         ::testing::Values(Penalty{"none", LengthPenalty::kNone, 1},
                                           Penalty{"average", LengthPenalty::kAverage, 1},
                                           Penalty{"average_weak", LengthPenalty::kAverage, 0.6},
                                           Penalty{"average_zero", LengthPenalty::kAverage, 0},
                                           Penalty{"average_strong", LengthPenalty::kAverage, 2},
                                           Penalty{"average_negative", LengthPenalty::kAverage,
                                                   -0.5},
                                           Penalty{"gnmt", LengthPenalty::kGnmt, 0.6},
                                           Penalty{"gnmt_strong", LengthPenalty::kGnmt, 2}),
                         [](const auto& info) { return std::string(info.param.name); });

// Logits that are all equal: every choice is a tie, which goes to the lower beam, then the lower
// id.
TEST(BeamSearchTies, GoToTheLowerBeamThenTheLowerId) {
  const Table flat(1, 0);
  const SearchOptions options{
      .num_beams = 3, .n_best = 3, .length_penalty_type = LengthPenalty::kNone};
  TableModel model(flat);
  const auto found = beam_search(model, task_of({4}), options).at(0);
  expect_same(found, plain_beam_search({flat, 0, 4}, options));
  EXPECT_EQ(found.at(0).tokens, Tokens{});  // eos has the lowest id of those that are not banned
  EXPECT_EQ(found.at(1).tokens, Tokens{4});
}

TEST(BeamSearchLimits, OnlyEosFollowsAtTheLimit) {
  const Table table(3);
  for (const int64_t limit : {1, 2, 5}) {
    const SearchOptions options{.num_beams = 3, .n_best = 3};
    TableModel model(table);
    const auto found = beam_search(model, task_of({limit}), options).at(0);
    ASSERT_FALSE(found.empty());
    EXPECT_LE(model.steps, limit);
    for (const Hypothesis& h : found) EXPECT_LT(static_cast<int64_t>(h.tokens.size()), limit);
  }
}

// The search ends when nothing live can win, not when all beams have ended.
TEST(BeamSearchLimits, StopsWhenDecided) {
  class Sure : public NextToken {
   public:
    Tensor step(const std::vector<int32_t>& tokens) override {
      ++steps;
      Tensor logits =
          Tensor::zeros({static_cast<int64_t>(tokens.size()), kTableVocab}, DType::kFloat64);
      const int32_t likely = steps == 1 ? 4 : kEos;
      for (size_t r = 0; r < tokens.size(); ++r)
        logits.data<double>()[r * kTableVocab + likely] = 20;
      return logits;
    }
    void add(const std::vector<NewSentence>&) override {}
    void select(const std::vector<int32_t>&) override {}
    int steps = 0;
  } model;
  const auto found = beam_search(model, task_of({1000}),
                                 {.num_beams = 4,
                                  .length_penalty_type = LengthPenalty::kNone,
                                  .early_stopping = EarlyStopping::kNever});
  EXPECT_EQ(found.at(0).at(0).tokens, Tokens{4});
  EXPECT_EQ(model.steps, 2);
}

TEST(BeamSearchLimits, BannedTokensNeverAppear) {
  const Table table(4, 3);
  const SearchOptions options{.num_beams = 5, .n_best = 5};
  TableModel model(table);
  const auto found = beam_search(model, task_of({10}), options);
  ASSERT_EQ(found.at(0).size(), 5u);
  for (const Hypothesis& h : found[0]) {
    for (const int32_t token : h.tokens) EXPECT_GE(token, 4);
  }
}

TEST(BeamSearchLimits, BadOptionsAreRefused) {
  const Table table(4);
  TableModel model(table);
  EXPECT_EQ(
      test::error_of([&] { beam_search(model, task_of({4}), {.num_beams = 2, .n_best = 3}); }),
      "[search] n_best must be in [1, num_beams], got 3 and num_beams 2.");
}

TEST(GreedySearch, TakesTheMostProbableTokenOfEachStep) {
  const std::vector<int64_t> limits = {12, 1, 5, 12, 3, 12};
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const Table table(seed, seed % 2 == 0 ? 3 : 1);
    TableModel model(table);
    const SearchOptions options{.num_beams = 1, .length_penalty = 0.7};
    const auto found = generate(model, task_of(limits), options);
    for (int32_t s = 0; s < 6; ++s) {
      expect_same({found[s]}, {plain_generate({table, s, limits[s]}, options)});
    }
  }
}

TEST(GreedySearch, FinishedSentencesLeaveTheBatch) {
  const Table table(2, 3);
  TableModel model(table);
  const auto found = generate(model, task_of({1, 2, 3, 4, 5, 6, 7, 20}), {.num_beams = 1});
  size_t longest = 0;
  for (const Hypothesis& h : found) longest = std::max(longest, h.tokens.size());
  EXPECT_EQ(model.steps, static_cast<int>(longest) + 1);
  EXPECT_EQ(model.rows(), 0);
}

// A sentence joins when another leaves, and what it finds is what it finds alone.
TEST(SentencesAtOnce, JoinWhenOthersAreDone) {
  const std::vector<int64_t> limits = {12, 1, 5, 12, 3, 12, 7, 2, 9, 12, 1};
  const auto count = static_cast<int32_t>(limits.size());
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Table table(seed, seed % 2 == 0 ? 3 : 1);
    for (const int64_t beams : {1, 3}) {
      const SearchOptions options{.num_beams = beams, .n_best = beams};
      for (const int64_t most : {1, 2, 4, 11, 20}) {
        SCOPED_TRACE(concat("seed ", seed, ", ", beams, " beams, ", most, " at once"));
        SearchTask task = task_of(limits);
        task.sentences_at_once = most;
        TableModel model(table);
        const auto found = search(model, task, options);
        EXPECT_EQ(model.joined, count);
        EXPECT_LE(model.most_rows, static_cast<size_t>(most * beams));
        EXPECT_EQ(model.rows(), 0);
        for (int32_t s = 0; s < count; ++s) {
          if (beams > 1) {
            expect_same(found[s], plain_beam_search({table, s, limits[s]}, options));
          } else {
            expect_same({found[s]}, {plain_generate({table, s, limits[s]}, options)});
          }
        }
      }
    }
  }
}

// Full places save steps: one sentence after the other would take the sum of their lengths.
TEST(SentencesAtOnce, KeepThePlacesFull) {
  const Table flat(1, 0);
  SearchTask task = task_of({8, 2, 2, 2, 2, 8, 2, 2, 2, 2});
  task.banned.push_back(kEos);
  task.force_eos = false;
  task.sentences_at_once = 2;
  TableModel model(flat);
  generate(model, task, {});
  EXPECT_EQ(model.steps, 16);  // half of 32 tokens
}

// A model that finds the best tokens by itself.
class BestOfTable : public TableModel {
 public:
  using TableModel::TableModel;
  Tensor best(const Tokens& tokens, int64_t count, const Tokens& banned) override {
    ++found;
    const Tensor logits = TableModel::step(tokens), set = token_set(banned, kTableVocab);
    const Tensor top = Tensor::empty({logits.shape()[0], 1 + 2 * count}, DType::kFloat64);
    kernels::top_logits(Cpu{}, {logits.shape()[0], kTableVocab, count}, logits.data<double>(),
                        set.data<int32_t>(), top.data<double>());
    return top;
  }
  int found = 0;
};

TEST(BestTokens, AreThoseOfTheLogits) {
  const std::vector<int64_t> limits = {12, 1, 5, 12, 3, 12, 7, 2, 9, 12, 1};
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Table table(seed, seed % 2 == 0 ? 3 : 1);
    for (const int64_t beams : {1, 3, 6}) {
      const SearchOptions options{.num_beams = beams, .n_best = beams};
      for (const bool eos_is_banned : {false, true}) {
        SearchTask task = task_of(limits);
        task.sentences_at_once = 4;
        task.force_eos = !eos_is_banned;
        if (eos_is_banned) task.banned.push_back(kEos);
        TableModel plain(table);
        BestOfTable model(table);
        const auto expected = search(plain, task, options), found = search(model, task, options);
        for (size_t s = 0; s < limits.size(); ++s) expect_same(found[s], expected[s], 0);
        // Where eos is forced, its logit is needed.
        EXPECT_GT(model.found, 0);
        EXPECT_EQ(model.found == model.steps, eos_is_banned);
      }
      BestOfTable model(table);
      SearchOptions rules = options;
      rules.repetition_penalty = 1.5;
      search(model, task_of(limits), rules);
      EXPECT_EQ(model.found, 0);
    }
  }
}

TEST(BestTokens, OnlyEosIsLeftWhereAllAreBanned) {
  const Table table(4);
  SearchTask task = task_of({5});
  task.force_eos = false;
  for (int32_t token = 0; token < kTableVocab; ++token) task.banned.push_back(token);
  BestOfTable model(table);
  const auto found = generate(model, task, {}).at(0);
  EXPECT_EQ(model.found, 1);
  EXPECT_TRUE(found.has_eos);
  EXPECT_EQ(found.tokens, Tokens{});
}

TEST(SearchTogether, FindsWhatOneSearchFindsAndTellsEachSentenceOnce) {
  const std::vector<int64_t> limits = {12, 1, 5, 12, 3, 12, 7, 2, 9, 12, 1};
  const Table table(4, 1);
  const int threads = num_threads();
  for (const int64_t beams : {1, 3}) {
    const SearchOptions options{.num_beams = beams};
    TableModel alone(table);
    const auto expected = search(alone, task_of(limits), options);
    for (const int count : {1, 2, 3, 16}) {
      set_num_threads(count);
      SearchTask task = task_of(limits);
      task.sentences_at_once = 2;
      std::vector<std::vector<Hypothesis>> found(limits.size());
      search_together([&] { return std::make_unique<TableModel>(table); }, task, options, {},
                      [&](int64_t sentence, std::vector<Hypothesis> hypotheses) {
                        EXPECT_TRUE(found.at(sentence).empty());
                        found.at(sentence) = std::move(hypotheses);
                      });
      for (size_t s = 0; s < limits.size(); ++s) expect_same(found[s], expected[s], 0);
    }
  }
  set_num_threads(threads);
}

TEST(SearchTogether, AFailureEndsAll) {
  class Broken : public NextToken {
   public:
    void add(const std::vector<NewSentence>&) override {}
    Tensor step(const std::vector<int32_t>&) override { fail(ErrorKind::kRuntime, "broken"); }
    void select(const std::vector<int32_t>&) override {}
  };
  EXPECT_EQ(test::error_of([] {
              search_together([] { return std::make_unique<Broken>(); }, task_of({3, 3, 3}), {}, {},
                              [](int64_t, const std::vector<Hypothesis>&) { FAIL(); });
            }),
            "broken");
}

// The others do not go on with what is left.
TEST(SearchTogether, AFailureIsToldSoon) {
  static std::atomic<bool> failed, two;  // there are two searches
  failed = two = false;
  class FailsAtTheFirst : public TableModel {
   public:
    using TableModel::TableModel;
    void add(const std::vector<NewSentence>& sentences) override {
      TableModel::add(sentences);
      if (sentences[0].index == 0) {
        while (!two) std::this_thread::yield();
        failed = true;
        fail(ErrorKind::kRuntime, "broken");
      }
      two = true;
      while (!failed) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  const Table table(4);
  const int threads = num_threads();
  set_num_threads(2);
  SearchTask task = task_of(std::vector<int64_t>(3000, 1));
  task.sentences_at_once = 1;
  std::atomic<int> done = 0;
  EXPECT_EQ(test::error_of([&] {
              search_together([&] { return std::make_unique<FailsAtTheFirst>(table); }, task, {},
                              {}, [&](int64_t, const std::vector<Hypothesis>&) { ++done; });
            }),
            "broken");
  EXPECT_LT(done, 1000);
  set_num_threads(threads);
}

TEST(NormalizedScore, FollowsItsFormulas) {
  const auto score = [](LengthPenalty type, double alpha) {
    return normalized_score(-6, 4, {.length_penalty = alpha, .length_penalty_type = type});
  };
  EXPECT_DOUBLE_EQ(score(LengthPenalty::kNone, 1), -6);
  EXPECT_DOUBLE_EQ(score(LengthPenalty::kAverage, 1), -1.5);  // / t^alpha
  EXPECT_DOUBLE_EQ(score(LengthPenalty::kAverage, 0.5), -3);
  EXPECT_DOUBLE_EQ(score(LengthPenalty::kGnmt, 1), -6 / 1.5);  // ((5 + t) / 6)^alpha
  EXPECT_DOUBLE_EQ(score(LengthPenalty::kGnmt, 2), -6 / 2.25);
}

}  // namespace
}  // namespace tapestry
