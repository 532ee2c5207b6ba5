// Greedy and beam search against exhaustive search and a plain beam search, on models that are a
// random table over whole histories.
#include "nn/decoding.h"

#include "tests/autograd/support.h"

namespace tapestry {
namespace {

constexpr int32_t kPad = 0, kUnk = 1, kBos = 2, kEos = 3;
constexpr int64_t kVocab = 7;  // and three words

using Tokens = std::vector<int32_t>;

// Logits of the next token after a history: random, the same whenever they are asked for. The
// sentence is part of the key, so that a search which mixes sentences up is seen.
class Table {
 public:
  explicit Table(uint64_t seed, double spread = 2, DType dtype = DType::kFloat64)
      : seed_(seed), spread_(spread), dtype_(dtype) {}

  std::vector<double> logits(int32_t sentence, const Tokens& history) const {
    uint64_t key = seed_ * 1000003 + static_cast<uint64_t>(sentence);
    for (const int32_t token : history) key = key * 0x9E3779B97F4A7C15u + token + 1;
    std::vector<double> z;
    for (int64_t v = 0; v < kVocab; ++v) z.push_back(spread_ * philox_normal({.seed = key}, v));
    if (dtype_ == DType::kFloat32) {
      for (double& value : z) value = static_cast<float>(value);
    }
    return z;
  }
  std::vector<double> log_probabilities(int32_t sentence, const Tokens& history) const {
    std::vector<double> z = logits(sentence, history);
    double total = 0;
    for (const double value : z) total += std::exp(value);
    for (double& value : z) value -= std::log(total);
    return z;
  }
  DType dtype() const { return dtype_; }

 private:
  uint64_t seed_;
  double spread_;
  DType dtype_;
};

// The table as the search sees it; checks that rows and sentences are kept in step.
class TableModel : public NextToken {
 public:
  TableModel(const Table& table, int64_t sentences, int64_t beams)
      : table_(table), beams_(static_cast<size_t>(beams)) {
    for (int32_t s = 0; s < sentences; ++s) {
      sentences_.push_back(s);
      for (int64_t b = 0; b < beams; ++b) rows_.push_back({s, {}});
    }
  }

  Tensor step(const std::vector<int32_t>& tokens) override {
    ++steps;
    EXPECT_EQ(tokens.size(), rows_.size());
    std::vector<double> all;
    for (size_t i = 0; i < rows_.size(); ++i) {
      rows_[i].history.push_back(tokens[i]);
      const auto z = table_.logits(rows_[i].sentence, rows_[i].history);
      all.insert(all.end(), z.begin(), z.end());
    }
    return Tensor::from<double>(all, {static_cast<int64_t>(rows_.size()), kVocab})
        .to(table_.dtype());
  }

  void select(const std::vector<int32_t>& sentences, const std::vector<int32_t>& rows) override {
    EXPECT_EQ(rows.size(), sentences.size() * beams_);
    std::vector<int32_t> kept;
    std::vector<Row> next;
    for (const int32_t s : sentences) kept.push_back(sentences_.at(s));
    for (size_t i = 0; i < rows.size(); ++i) {
      next.push_back(rows_.at(rows[i]));
      EXPECT_EQ(next.back().sentence, kept.at(i / beams_)) << "row " << i << " changed sentence";
    }
    for (size_t i = 1; i < sentences.size(); ++i) EXPECT_LT(sentences[i - 1], sentences[i]);
    sentences_ = std::move(kept);
    rows_ = std::move(next);
  }

  int64_t live_sentences() const { return static_cast<int64_t>(sentences_.size()); }
  int steps = 0;

 private:
  struct Row {
    int32_t sentence;
    Tokens history;
  };
  const Table& table_;
  size_t beams_;
  std::vector<int32_t> sentences_;
  std::vector<Row> rows_;
};

SearchTask task_of(std::vector<int64_t> max_lengths) {
  return {.sentences = static_cast<int64_t>(max_lengths.size()),
          .bos_id = kBos,
          .eos_id = kEos,
          .banned = {kPad, kUnk, kBos},
          .max_lengths = std::move(max_lengths)};
}

const Tokens kWords = {4, 5, 6};

// Every sequence of words and eos within the limit, best score first.
void enumerate(const Table& table, int32_t sentence, int64_t max_length, Tokens& history,
               double log_probability, const SearchOptions& options, std::vector<Hypothesis>& all) {
  const auto length = static_cast<int64_t>(history.size());  // with bos: tokens with eos
  const auto next = table.log_probabilities(sentence, history);
  const double finished = log_probability + next[kEos];
  all.push_back({Tokens(history.begin() + 1, history.end()), finished,
                 normalized_score(finished, length, options)});
  if (length == max_length) return;
  for (const int32_t word : kWords) {
    history.push_back(word);
    enumerate(table, sentence, max_length, history, log_probability + next[word], options, all);
    history.pop_back();
  }
}

std::vector<Hypothesis> exhaustive(const Table& table, int32_t sentence, int64_t max_length,
                                   const SearchOptions& options) {
  std::vector<Hypothesis> all;
  Tokens history = {kBos};
  enumerate(table, sentence, max_length, history, 0, options, all);
  std::sort(all.begin(), all.end(),
            [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  all.resize(std::min(all.size(), static_cast<size_t>(options.n_best)));
  return all;
}

// Beam search as it is told, of one sentence, without any early stop: each round the k most
// probable continuations stay; those that end in eos among the k best of all are finished.
std::vector<Hypothesis> plain_beam_search(const Table& table, int32_t sentence, int64_t max_length,
                                          const SearchOptions& options) {
  struct Beam {
    Tokens history;
    double log_probability;
  };
  struct Extension {
    size_t beam;
    int32_t token;
    double log_probability;
  };
  const auto k = static_cast<size_t>(options.num_beams);
  std::vector<Beam> beams = {{{kBos}, 0}};
  std::vector<Hypothesis> finished;
  for (int64_t length = 1; length <= max_length; ++length) {
    std::vector<Extension> extensions;
    for (size_t b = 0; b < beams.size(); ++b) {
      const auto next = table.log_probabilities(sentence, beams[b].history);
      for (int32_t token = kEos; token < kVocab; ++token) {
        if (length == max_length && token != kEos) continue;
        extensions.push_back({b, token, beams[b].log_probability + next[token]});
      }
    }
    std::stable_sort(extensions.begin(), extensions.end(), [](const auto& x, const auto& y) {
      return x.log_probability > y.log_probability;
    });
    std::vector<Beam> survivors;
    for (size_t rank = 0; rank < extensions.size(); ++rank) {
      const Extension& e = extensions[rank];
      const Tokens& history = beams[e.beam].history;
      if (e.token == kEos) {
        if (rank < k || length == max_length) {
          finished.push_back({Tokens(history.begin() + 1, history.end()), e.log_probability,
                              normalized_score(e.log_probability, length, options)});
        }
      } else if (survivors.size() < k) {
        survivors.push_back({history, e.log_probability});
        survivors.back().history.push_back(e.token);
      }
    }
    beams = std::move(survivors);
  }
  std::stable_sort(finished.begin(), finished.end(),
                   [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  finished.resize(std::min(finished.size(), static_cast<size_t>(options.n_best)));
  return finished;
}

void expect_same(const std::vector<Hypothesis>& actual, const std::vector<Hypothesis>& expected,
                 double tolerance = 1e-12) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].tokens, expected[i].tokens) << "hypothesis " << i;
    EXPECT_NEAR(actual[i].log_probability, expected[i].log_probability, tolerance);
    EXPECT_NEAR(actual[i].score, expected[i].score, tolerance);
  }
}

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
            .length_penalty_type = GetParam().type};
  }
};

// 3^3 live histories at most: 120 beams lose nothing.
TEST_P(BeamSearch, WideBeamIsExhaustive) {
  const std::vector<int64_t> limits = {4, 1, 3, 4, 2};
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Table table(seed);
    const SearchOptions wide = options(120, 12);
    TableModel model(table, 5, wide.num_beams);
    const auto found = beam_search(model, task_of(limits), wide);
    ASSERT_EQ(found.size(), limits.size());
    for (int32_t s = 0; s < 5; ++s) expect_same(found[s], exhaustive(table, s, limits[s], wide));
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
        TableModel model(table, 7, beams);
        const auto found = beam_search(model, task_of(limits), narrow);
        for (int32_t s = 0; s < 7; ++s) {
          SCOPED_TRACE(concat("seed ", seed, ", ", beams, " beams, sentence ", s));
          expect_same(found[s], plain_beam_search(table, s, limits[s], narrow));
        }
      }
    }
  }
}

TEST_P(BeamSearch, Float32LogitsFindTheSame) {
  const Table table(5, 2, DType::kFloat32);
  const SearchOptions narrow = options(4, 4);
  TableModel model(table, 3, 4);
  const auto found = beam_search(model, task_of({8, 8, 8}), narrow);
  for (int32_t s = 0; s < 3; ++s) {
    expect_same(found[s], plain_beam_search(table, s, 8, narrow), 1e-5);
  }
}

TEST_P(BeamSearch, EachSentenceIsSearchedAsIfAlone) {
  const std::vector<int64_t> limits = {10, 2, 6};
  const Table table(8);
  const SearchOptions narrow = options(3, 2);
  TableModel together(table, 3, 3);
  const auto found = beam_search(together, task_of(limits), narrow);
  EXPECT_LE(together.steps, 10);
  for (int32_t s = 0; s < 3; ++s)
    expect_same(found[s], plain_beam_search(table, s, limits[s], narrow));
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
  TableModel model(flat, 1, 3);
  const auto found = beam_search(model, task_of({4}), options).at(0);
  expect_same(found, plain_beam_search(flat, 0, 4, options));
  EXPECT_EQ(found.at(0).tokens, Tokens{});  // eos has the lowest id of those that are not banned
  EXPECT_EQ(found.at(1).tokens, Tokens{4});
}

TEST(BeamSearchLimits, OnlyEosFollowsAtTheLimit) {
  const Table table(3);
  for (const int64_t limit : {1, 2, 5}) {
    const SearchOptions options{.num_beams = 3, .n_best = 3};
    TableModel model(table, 1, 3);
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
      Tensor logits = Tensor::zeros({static_cast<int64_t>(tokens.size()), kVocab}, DType::kFloat64);
      const int32_t likely = steps == 1 ? 4 : kEos;
      for (size_t r = 0; r < tokens.size(); ++r) logits.data<double>()[r * kVocab + likely] = 20;
      return logits;
    }
    void select(const std::vector<int32_t>&, const std::vector<int32_t>&) override {}
    int steps = 0;
  } model;
  const auto found = beam_search(model, task_of({1000}),
                                 {.num_beams = 4, .length_penalty_type = LengthPenalty::kNone});
  EXPECT_EQ(found.at(0).at(0).tokens, Tokens{4});
  EXPECT_EQ(model.steps, 2);
}

TEST(BeamSearchLimits, BannedTokensNeverAppear) {
  const Table table(4, 3);
  const SearchOptions options{.num_beams = 5, .n_best = 5};
  TableModel model(table, 1, 5);
  const auto found = beam_search(model, task_of({10}), options);
  ASSERT_EQ(found.at(0).size(), 5u);
  for (const Hypothesis& h : found[0]) {
    for (const int32_t token : h.tokens) EXPECT_GE(token, 4);
  }
}

TEST(BeamSearchLimits, BadOptionsAreRefused) {
  const Table table(4);
  TableModel model(table, 1, 2);
  EXPECT_EQ(
      test::error_of([&] { beam_search(model, task_of({4}), {.num_beams = 2, .n_best = 3}); }),
      "[search] expected 1 <= n_best <= num_beams, got n_best 3 and num_beams 2.");
}

TEST(GreedySearch, TakesTheMostProbableTokenOfEachStep) {
  const std::vector<int64_t> limits = {12, 1, 5, 12, 3, 12};
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const Table table(seed, seed % 2 == 0 ? 3 : 1);
    TableModel model(table, 6, 1);
    const SearchOptions options{.num_beams = 1, .length_penalty = 0.7};
    const auto found = generate(model, task_of(limits), options);
    for (int32_t s = 0; s < 6; ++s) {
      Tokens history = {kBos};
      Hypothesis expected;
      for (int64_t length = 1;; ++length) {
        const auto next = table.log_probabilities(s, history);
        int32_t best = kEos;
        for (const int32_t word : kWords) {
          if (next[word] > next[best] && length < limits[s]) best = word;
        }
        expected.log_probability += next[best];
        if (best == kEos) {
          expected.score = expected.log_probability / std::pow(length, 0.7);
          break;
        }
        expected.tokens.push_back(best);
        history.push_back(best);
      }
      expect_same({found[s]}, {expected});
    }
  }
}

TEST(GreedySearch, FinishedSentencesLeaveTheBatch) {
  const Table table(2, 3);
  TableModel model(table, 8, 1);
  const auto found = generate(model, task_of({1, 2, 3, 4, 5, 6, 7, 20}), {.num_beams = 1});
  size_t longest = 0;
  for (const Hypothesis& h : found) longest = std::max(longest, h.tokens.size());
  EXPECT_EQ(model.steps, static_cast<int>(longest) + 1);
  EXPECT_LT(model.live_sentences(), 8);
}

TEST(NormalizedScore, FollowsItsFormulas) {
  const auto score = [](LengthPenalty type, double alpha) {
    return normalized_score(-6, 4, {.length_penalty = alpha, .length_penalty_type = type});
  };
  EXPECT_DOUBLE_EQ(score(LengthPenalty::kNone, 1), -6);
  EXPECT_DOUBLE_EQ(score(LengthPenalty::kAverage, 1), -1.5);  // document 001: / t^alpha
  EXPECT_DOUBLE_EQ(score(LengthPenalty::kAverage, 0.5), -3);
  EXPECT_DOUBLE_EQ(score(LengthPenalty::kGnmt, 1), -6 / 1.5);  // ((5 + t) / 6)^alpha
  EXPECT_DOUBLE_EQ(score(LengthPenalty::kGnmt, 2), -6 / 2.25);
}

}  // namespace
}  // namespace tapestry
