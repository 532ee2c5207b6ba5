// Penalties and bans on one row of logits, against the formulas of nn/decoding/logits_rules.h by
// hand.
#include "nn/decoding/logits_rules.h"

#include "tests/autograd/support.h"

namespace tapestry {
namespace {

using Tokens = std::vector<int32_t>;
using Row = std::vector<double>;

constexpr double kForbidden = -INFINITY;

// X = 5 1, Y = 2 1 2.
const Tokens kPrompt = {5, 1};
const Tokens kGenerated = {2, 1, 2};
const Context kContext{kPrompt, kGenerated};

TEST(FrequencyPenalty, SubtractsAlphaForEachTimeATokenWasGenerated) {
  Row z = {1, 1.5, -0.5, 2, 0, 4};
  apply_frequency_penalty(z, kGenerated, 0.75);
  EXPECT_EQ(z, (Row{1, 0.75, -2, 2, 0, 4}));
  apply_frequency_penalty(z, kGenerated, -0.5);  // a reward
  EXPECT_EQ(z, (Row{1, 1.25, -1, 2, 0, 4}));
}

TEST(PresencePenalty, SubtractsBetaOnceFromEachGeneratedToken) {
  Row z = {1, 1.5, -0.5, 2, 0, 4};
  apply_presence_penalty(z, kGenerated, 0.75);
  EXPECT_EQ(z, (Row{1, 0.75, -1.25, 2, 0, 4}));
}

TEST(RepetitionPenalty, ShrinksWhatWasSaidInThePromptOrTheOutput) {
  Row z = {1, 1.5, -0.5, 2, 0, 4};
  apply_repetition_penalty(z, kContext, 2);
  EXPECT_EQ(z, (Row{1, 0.75, -1, 2, 0, 2}));  // once for each token, however often it came
  Row zero = {0, 0, 0, 0, 0, 0};
  apply_repetition_penalty(zero, kContext, 2);
  EXPECT_EQ(zero, (Row{0, 0, 0, 0, 0, 0}));
}

// An encoder's input of the same vocabulary is part of X.
TEST(RepetitionPenalty, CountsTheSource) {
  Row z = {1, 1.5, -0.5, 2, 0, 4};
  const Tokens source = {0, 1, 900};
  apply_repetition_penalty(z, {kPrompt, kGenerated, source}, 2);
  EXPECT_EQ(z, (Row{0.5, 0.75, -1, 2, 0, 2}));
  // Only that penalty: it is no output, and its n-grams may come again.
  Row other = {1, 1.5, -0.5, 2, 0, 4};
  const Context context{{}, {}, source};
  apply_penalties(other, context, {.frequency_penalty = 1, .presence_penalty = 1});
  ban_repeated_ngrams(other, context, 1);
  EXPECT_EQ(other, (Row{1, 1.5, -0.5, 2, 0, 4}));
}

TEST(Penalties, ComeInTheOrderOfTheDocumentsTable) {
  Row z = {1, 1.5, -0.5, 2, 0, 4};
  apply_penalties(z, kContext,
                  {.frequency_penalty = 0.5, .presence_penalty = 0.25, .repetition_penalty = 2});
  // 1: (1.5 - 0.5 - 0.25) / 2; 2: (-0.5 - 2 * 0.5 - 0.25) * 2; 5: 4 / 2, of the prompt alone.
  EXPECT_EQ(z, (Row{1, 0.375, -3.5, 2, 0, 2}));
}

TEST(Penalties, NeutralValuesChangeNothing) {
  const Row before = {1, 1.5, -0.5, 2, 0, 4};
  Row z = before;
  apply_penalties(z, kContext, {});
  apply_frequency_penalty(z, kGenerated, 0);
  apply_presence_penalty(z, kGenerated, 0);
  apply_repetition_penalty(z, kContext, 1);
  EXPECT_EQ(z, before);
  EXPECT_FALSE(has_rules({}));
}

TEST(Penalties, PassOverPromptTokensWithoutALogit) {
  const Tokens prompt = {9, -1, 0};
  Row z = {1, 2};
  apply_repetition_penalty(z, {prompt, {}}, 2);
  ban_repeated_ngrams(z, {prompt, {}}, 1);
  EXPECT_EQ(z, (Row{kForbidden, 2}));
}

TEST(RepeatedNgrams, AreBannedAcrossPromptAndOutput) {
  const auto banned = [](const Tokens& prompt, const Tokens& generated, int64_t size) {
    Row z(6, 0.0);
    ban_repeated_ngrams(z, {prompt, generated}, size);
    Tokens ids;
    for (int32_t v = 0; v < 6; ++v) {
      if (z[v] == kForbidden) ids.push_back(v);
    }
    return ids;
  };
  EXPECT_EQ(banned({5, 1}, {2, 1, 2}, 1), (Tokens{1, 2, 5}));
  EXPECT_EQ(banned({5, 1}, {2, 1, 2}, 2), Tokens{1});  // 2 1 occurred
  EXPECT_EQ(banned({5, 1}, {2, 1}, 2), Tokens{2});     // 1 2, half of it in the prompt
  EXPECT_EQ(banned({5, 1}, {2, 5, 1}, 3), Tokens{2});  // 5 1 2
  EXPECT_EQ(banned({5, 1}, {2, 3, 4}, 3), Tokens{});   // 3 4 occurs only at the end
  EXPECT_EQ(banned({5, 1}, {2, 1, 2}, 3), Tokens{1});  // 1 2 1
  EXPECT_EQ(banned({1, 2, 3, 1, 2, 4}, {1, 2}, 3), (Tokens{3, 4}));
  EXPECT_EQ(banned({1, 1}, {1}, 2), Tokens{1});  // overlaps itself
  EXPECT_EQ(banned({1}, {}, 2), Tokens{});       // shorter than an n-gram
  EXPECT_EQ(banned({1}, {}, 100), Tokens{});
  EXPECT_EQ(banned({}, {}, 1), Tokens{});
}

TEST(LongRepeats, AreBannedWhereAUnitWouldComeOnceTooOften) {
  const auto banned = [](const Tokens& generated, int64_t most) {
    Row z(6, 0.0);
    ban_long_repeats(z, generated, most);
    Tokens ids;
    for (int32_t v = 0; v < 6; ++v) {
      if (z[v] == kForbidden) ids.push_back(v);
    }
    return ids;
  };
  EXPECT_EQ(banned({}, 1), Tokens{});
  EXPECT_EQ(banned({4}, 1), Tokens{4});
  EXPECT_EQ(banned({4}, 2), Tokens{});
  EXPECT_EQ(banned({1, 4, 4}, 2), Tokens{4});
  EXPECT_EQ(banned({1, 4, 4, 4}, 4), Tokens{});
  EXPECT_EQ(banned({1, 2, 1}, 1), (Tokens{1, 2}));            // 1 1, 1 2 1 2
  EXPECT_EQ(banned({1, 2, 1, 2, 1}, 2), Tokens{2});           // 1 2 three times
  EXPECT_EQ(banned({5, 2, 1, 2, 1, 2}, 2), Tokens{1});        // 2 1 three times
  EXPECT_EQ(banned({0, 1, 2, 0, 1, 2, 0, 1}, 2), Tokens{2});  // 0 1 2 three times
  EXPECT_EQ(banned({0, 1, 2, 0, 1, 2, 0}, 2), Tokens{});
  EXPECT_EQ(banned({1, 1, 2, 1, 1, 2}, 3), Tokens{});
  Tokens eight = {0, 1, 2, 3, 4, 5, 0, 2};
  for (int i = 0; i < 7; ++i) eight.push_back(eight[i]);
  EXPECT_EQ(banned(eight, 1), (Tokens{0, 2}));  // 0 0, and the unit of eight
  Tokens nine = {0, 1, 2, 3, 4, 5, 0, 2, 5};
  for (int i = 0; i < 8; ++i) nine.push_back(nine[i]);
  EXPECT_EQ(banned(nine, 1), Tokens{2});  // 2 2; a unit of nine may come twice
}

TEST(Bans, HoldBannedTokensNgramsAndAnEarlyEos) {
  const SearchTask task{.eos_id = 3, .banned = {0, 4}};
  Row z(6, 1.0);
  apply_bans(z, kContext, task, {.no_repeat_ngram_size = 2, .min_new_tokens = 4});
  EXPECT_EQ(z, (Row{kForbidden, kForbidden, 1, kForbidden, kForbidden, 1}));
  Row later(6, 1.0);
  apply_bans(later, kContext, task, {.min_new_tokens = 3});  // three tokens are there
  EXPECT_EQ(later, (Row{kForbidden, 1, 1, 1, kForbidden, 1}));
}

TEST(HasRules, SeesEachRuleAlone) {
  EXPECT_TRUE(has_rules({.frequency_penalty = 0.1}));
  EXPECT_TRUE(has_rules({.presence_penalty = -0.1}));
  EXPECT_TRUE(has_rules({.repetition_penalty = 1.1}));
  EXPECT_TRUE(has_rules({.no_repeat_ngram_size = 3}));
  EXPECT_TRUE(has_rules({.max_repeat = 1}));
  EXPECT_TRUE(has_rules({.min_new_tokens = 1}));
}

// They bind where a row of logits changes.
TEST(RulesBind, AgreesWithWhatTheRulesDo) {
  const SearchOptions rules[] = {{.no_repeat_ngram_size = 2},
                                 {.no_repeat_ngram_size = 3, .max_repeat = 1},
                                 {.max_repeat = 1},
                                 {.max_repeat = 2},
                                 {.min_new_tokens = 3}};
  const SearchTask task{.eos_id = 3};
  int binding = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Tokens generated;
    const uint64_t length = philox_below({seed, 0, 0}, 100, 9);
    for (uint64_t i = 0; i < length; ++i) {
      generated.push_back(static_cast<int32_t>(philox_below({seed, 0, 0}, i, 3)));
    }
    const Context context{.prompt = {}, .generated = generated};
    for (const SearchOptions& options : rules) {
      Row z(6, 1.0);
      apply_bans(z, context, task, options);
      const bool changes = z != Row(6, 1.0);
      EXPECT_EQ(rules_bind(context, options), changes) << "seed " << seed;
      binding += changes ? 1 : 0;
    }
  }
  EXPECT_GT(binding, 500);
  EXPECT_LT(binding, 1900);
  EXPECT_TRUE(rules_bind({}, {.repetition_penalty = 1.1}));
  EXPECT_FALSE(rules_bind({}, {}));
}

}  // namespace
}  // namespace tapestry
