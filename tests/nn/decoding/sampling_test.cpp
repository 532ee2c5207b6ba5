// Top-k, top-p and draws against sorting, and the distributions of the draws against the exact ones
// by chi-square tests.
#include "nn/decoding/sampling.h"

#include <map>
#include <numeric>

#include "tests/nn/models/table_model.h"

namespace tapestry {
namespace {

using namespace test;  // NOLINT: the table and the plain searches

std::vector<double> random_logits(int64_t size, uint64_t seed, double spread = 2) {
  std::vector<double> z;
  for (int64_t v = 0; v < size; ++v) z.push_back(spread * philox_normal({.seed = seed}, v));
  return z;
}

// Rounded to halves: many ties.
std::vector<double> tied_logits(int64_t size, uint64_t seed) {
  std::vector<double> z = random_logits(size, seed, 1);
  for (double& value : z) value = std::round(2 * value) / 2;
  return z;
}

std::vector<double> softmax_of(const std::vector<double>& z) {
  std::vector<double> p;
  double total = 0;
  for (const double value : z) p.push_back(std::exp(value));
  for (const double value : p) total += value;
  for (double& value : p) value /= total;
  return p;
}

// Ids from the most probable on, ties by id.
Tokens sorted_ids(const std::vector<double>& z) {
  Tokens ids(z.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return z[a] > z[b]; });
  return ids;
}

// z where only the first `count` of the sorted ids are left.
std::vector<double> cut_after(const std::vector<double>& z, size_t count) {
  const Tokens ids = sorted_ids(z);
  std::vector<double> kept(z.size(), -INFINITY);
  for (size_t i = 0; i < std::min(count, ids.size()); ++i) kept[ids[i]] = z[ids[i]];
  return kept;
}

TEST(TopK, LeavesTheFirstKOfTheSortedTokens) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    for (const int64_t size : {1, 2, 31, 257}) {
      for (const auto& z : {random_logits(size, seed), tied_logits(size, seed)}) {
        for (const int64_t k : {1, 2, 5, 31, 256, 257, 1000}) {
          std::vector<double> cut = z;
          keep_top_k(cut, k);
          ASSERT_EQ(cut, cut_after(z, k)) << "k " << k << ", " << size << " tokens";
        }
      }
    }
  }
}

TEST(TopK, ForbiddenTokensStayForbidden) {
  std::vector<double> z = {-INFINITY, 1, -INFINITY, 2};
  keep_top_k(z, 3);
  EXPECT_EQ(z, (std::vector<double>{-INFINITY, 1, -INFINITY, 2}));
}

TEST(TopP, LeavesTheSmallestSetThatReachesP) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    for (const int64_t size : {1, 2, 31, 257}) {
      for (const auto& z : {random_logits(size, seed), tied_logits(size, seed)}) {
        for (const double p : {1e-9, 0.1, 0.501, 0.9, 0.99, 0.999999}) {
          const std::vector<double> probability = softmax_of(z);
          size_t nucleus = 0;
          for (double mass = 0; mass < p; ++nucleus) mass += probability[sorted_ids(z)[nucleus]];
          std::vector<double> cut = z;
          keep_top_p(cut, p);
          ASSERT_EQ(cut, cut_after(z, nucleus)) << "p " << p << ", " << size << " tokens";
        }
      }
    }
  }
}

TEST(TopP, HoldsTheTokenThatCrossesP) {
  const std::vector<double> z = {std::log(0.2), std::log(0.5), std::log(0.3)};
  const auto left = [&](double p) {
    std::vector<double> cut = z;
    keep_top_p(cut, p);
    return std::count_if(cut.begin(), cut.end(), [](double v) { return v > -INFINITY; });
  };
  EXPECT_EQ(left(0.49), 1);
  EXPECT_EQ(left(0.51), 2);  // 0.5 is too little, 0.3 crosses
  EXPECT_EQ(left(0.79), 2);
  EXPECT_EQ(left(0.81), 3);
  std::vector<double> flat = {0, 0, 0, 0};
  keep_top_p(flat, 0.5);  // exactly reached by two; ties go to lower ids
  EXPECT_EQ(flat, (std::vector<double>{0, 0, -INFINITY, -INFINITY}));
}

TEST(TopP, ForbiddenTokensHaveNoMass) {
  std::vector<double> z = {-INFINITY, 0, -INFINITY, 0, 0, 0};
  keep_top_p(z, 0.75);
  EXPECT_EQ(z, (std::vector<double>{-INFINITY, 0, -INFINITY, 0, 0, -INFINITY}));
}

TEST(MinP, LeavesWhatHasAShareOfTheMostProbable) {
  const std::vector<double> z = {std::log(0.2), std::log(0.5), std::log(0.26), std::log(0.04)};
  const auto left = [&](double p) {
    std::vector<double> cut = z;
    keep_min_p(cut, p);
    return std::count_if(cut.begin(), cut.end(), [](double v) { return v > -INFINITY; });
  };
  EXPECT_EQ(left(0.079), 4);
  EXPECT_EQ(left(0.081), 3);
  EXPECT_EQ(left(0.41), 2);
  EXPECT_EQ(left(0.53), 1);
  EXPECT_EQ(left(0.999), 1);
  std::vector<double> forbidden = {-INFINITY, 0, 0, -INFINITY};
  keep_min_p(forbidden, 1e-300);
  EXPECT_EQ(forbidden, (std::vector<double>{-INFINITY, 0, 0, -INFINITY}));
}

TEST(Epsilon, LeavesWhatHasTheProbability) {
  const std::vector<double> z = {std::log(0.2), std::log(0.5), std::log(0.26), std::log(0.04)};
  const auto left = [&](double epsilon) {
    std::vector<double> cut = z;
    for (double& value : cut) value += 3;  // only the differences count
    keep_epsilon(cut, epsilon);
    return std::count_if(cut.begin(), cut.end(), [](double v) { return v > -INFINITY; });
  };
  EXPECT_EQ(left(0.039), 4);
  EXPECT_EQ(left(0.041), 3);
  EXPECT_EQ(left(0.21), 2);
  EXPECT_EQ(left(0.27), 1);
  EXPECT_EQ(left(0.99), 1);  // the most probable one stays
  std::vector<double> equal = {-INFINITY, 0, 0};
  keep_epsilon(equal, 0.6);
  EXPECT_EQ(equal, (std::vector<double>{-INFINITY, 0, -INFINITY}));
}

TEST(TokenAt, InvertsTheCumulativeDistribution) {
  const std::vector<double> z = {-INFINITY, 0, 0, -INFINITY, std::log(2), -INFINITY};
  EXPECT_EQ(token_at(z, 0), 1);
  EXPECT_EQ(token_at(z, 0.2499), 1);
  EXPECT_EQ(token_at(z, 0.25), 2);
  EXPECT_EQ(token_at(z, 0.4999), 2);
  EXPECT_EQ(token_at(z, 0.5), 4);
  EXPECT_EQ(token_at(z, 1 - 0x1p-53), 4);
  EXPECT_EQ(error_of([] { token_at(std::vector<double>(3, -INFINITY), 0.5); }),
            "[sampling] expected a logit above -inf, got 3 times -inf.");
}

TEST(SampleToken, ExtremeTemperaturesAreSafe) {
  const std::vector<double> z = {1, 3, 2, -INFINITY};
  for (const double u : {0.0, 0.3, 0.999}) {
    std::vector<double> cold = z;
    EXPECT_EQ(sample_token(cold, {.temperature = 1e-300}, u), 1);
    std::vector<double> hot = z;  // uniform over the possible tokens
    EXPECT_EQ(sample_token(hot, {.temperature = 1e300}, u), static_cast<int32_t>(3 * u));
  }
}

TEST(SamplingUniform, DiffersInSeedSequenceAndPosition) {
  const double u = sampling_uniform(1, 2, 3);
  EXPECT_EQ(u, sampling_uniform(1, 2, 3));
  EXPECT_NE(u, sampling_uniform(2, 2, 3));
  EXPECT_NE(u, sampling_uniform(1, 3, 3));
  EXPECT_NE(u, sampling_uniform(1, 2, 4));
  EXPECT_NE(sampling_uniform(1, 2, 3), sampling_uniform(1, 3, 2));
}

// The value that a chi-square variable exceeds with probability 1e-4 (Wilson and Hilferty 1931).
double chi_square_limit(double degrees) {
  const double normal = 3.719, a = 2 / (9 * degrees);
  return degrees * std::pow(1 - a + normal * std::sqrt(a), 3);
}

// Whether the counts look drawn from the probabilities. Outcomes that are expected less than five
// times are counted together.
void expect_drawn_from(const std::vector<double>& probabilities,
                       const std::vector<int64_t>& counts) {
  const auto draws = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  double chi_square = 0, rare_expected = 0, rare_seen = 0;
  int outcomes = 0;
  const auto add = [&](double expected, double seen) {
    chi_square += (seen - expected) * (seen - expected) / expected;
    ++outcomes;
  };
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = draws * probabilities[i];
    if (probabilities[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "outcome " << i << " is impossible";
    } else if (expected < 5) {
      rare_expected += expected;
      rare_seen += static_cast<double>(counts[i]);
    } else {
      add(expected, static_cast<double>(counts[i]));
    }
  }
  if (rare_expected > 0) add(rare_expected, rare_seen);
  ASSERT_GT(outcomes, 1);
  EXPECT_LT(chi_square, chi_square_limit(outcomes - 1)) << outcomes << " outcomes";
}

struct Strategy {
  const char* name;
  SearchOptions options;
};

void PrintTo(const Strategy& strategy, std::ostream* out) { *out << strategy.name; }

const Strategy kStrategies[] = {
    {"plain", {.num_beams = 1, .do_sample = true}},
    {"cold", {.num_beams = 1, .do_sample = true, .temperature = 0.6}},
    {"hot", {.num_beams = 1, .do_sample = true, .temperature = 1.7}},
    {"top_k", {.num_beams = 1, .do_sample = true, .top_k = 2}},
    {"top_p", {.num_beams = 1, .do_sample = true, .top_p = 0.7}},
    {"min_p", {.num_beams = 1, .do_sample = true, .min_p = 0.4}},
    {"epsilon", {.num_beams = 1, .do_sample = true, .epsilon_cutoff = 0.15}},
    {"min_p_and_epsilon",
     {.num_beams = 1, .do_sample = true, .temperature = 2, .min_p = 0.2, .epsilon_cutoff = 0.2}},
    {"top_p_and_min_p", {.num_beams = 1, .do_sample = true, .top_p = 0.9, .min_p = 0.3}},
    {"top_k_and_p",
     {.num_beams = 1, .do_sample = true, .temperature = 1.5, .top_k = 3, .top_p = 0.8}},
    {"frequency", {.num_beams = 1, .do_sample = true, .frequency_penalty = 0.8}},
    {"presence", {.num_beams = 1, .do_sample = true, .presence_penalty = 0.9}},
    {"repetition", {.num_beams = 1, .do_sample = true, .repetition_penalty = 1.8}},
    {"no_repeats", {.num_beams = 1, .do_sample = true, .no_repeat_ngram_size = 1}},
    {"min_new_tokens", {.num_beams = 1, .do_sample = true, .min_new_tokens = 2}},
    {"everything",
     {.num_beams = 1,
      .do_sample = true,
      .temperature = 1.3,
      .top_k = 3,
      .top_p = 0.9,
      .frequency_penalty = 0.3,
      .presence_penalty = 0.2,
      .repetition_penalty = 1.3,
      .no_repeat_ngram_size = 2,
      .min_new_tokens = 1}},
};

// Probabilities of all sequences of at most max_length tokens; eos counts as one.
void enumerate_drawn(const Question& q, const Tokens& sequence, double probability,
                     const SearchOptions& options, std::map<Tokens, double>& all) {
  const std::vector<double> p = distribution(choices(q, sequence, options), options);
  for (int32_t token = 0; token < kTableVocab; ++token) {
    if (p[token] == 0) continue;
    Tokens longer = sequence;
    longer.push_back(token);
    if (token == kEos || std::ssize(longer) == q.max_length) {
      all[longer] += probability * p[token];
    } else {
      enumerate_drawn(q, longer, probability * p[token], options, all);
    }
  }
}

class Sampling : public ::testing::TestWithParam<Strategy> {};

// Whole sequences, so that rules which depend on the history are tested.
TEST_P(Sampling, SequencesFollowTheExactDistribution) {
  const int64_t draws = 20000;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const Table table(seed, 1);
    SearchTask task = task_of(std::vector<int64_t>(draws, 3));
    task.prompts.assign(draws, {kBos, 5});
    task.force_eos = false;
    SearchOptions options = GetParam().options;
    options.seed = 100 + seed;
    TableModel model(table, /*alike=*/true);
    const auto found = generate(model, task, options);

    const Question question{table, 0, 3, {kBos, 5}, false};
    std::map<Tokens, double> expected;
    enumerate_drawn(question, {}, 1, options, expected);
    std::map<Tokens, int64_t> seen;
    for (Hypothesis h : found) {
      if (h.has_eos) h.tokens.push_back(kEos);
      ++seen[h.tokens];
    }
    std::vector<double> probabilities;
    std::vector<int64_t> counts;
    for (const auto& [sequence, probability] : expected) {
      probabilities.push_back(probability);
      counts.push_back(seen[sequence]);
    }
    EXPECT_EQ(seen.size(), expected.size()) << "a sequence that cannot be drawn, or none that can";
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), draws);
    expect_drawn_from(probabilities, counts);
  }
}

// Token for token, with the same uniform numbers; the log-probability is the model's.
TEST_P(Sampling, EqualsPlainSampling) {
  const std::vector<int64_t> limits = {12, 1, 5, 12, 3, 12};
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (const bool force_eos : {true, false}) {
      const Table table(seed, seed % 2 == 0 ? 3 : 1);
      SearchOptions options = GetParam().options;
      options.seed = seed;
      SearchTask task = task_of(limits);
      task.force_eos = force_eos;
      TableModel model(table);
      const auto found = generate(model, task, options);
      for (int32_t s = 0; s < 6; ++s) {
        SCOPED_TRACE(concat("seed ", seed, ", sentence ", s));
        const Question question{table, s, limits[s], {kBos}, force_eos};
        expect_same({found[s]}, {plain_generate(question, options, s)});
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, Sampling, ::testing::ValuesIn(kStrategies),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(TokenAt, ManyTokensFollowTheExactDistribution) {
  const std::vector<double> z = random_logits(300, 9, 1.5);
  std::vector<int64_t> counts(z.size());
  for (int64_t i = 0; i < 50000; ++i) ++counts[token_at(z, sampling_uniform(7, i, 0))];
  expect_drawn_from(softmax_of(z), counts);
}

}  // namespace
}  // namespace tapestry
