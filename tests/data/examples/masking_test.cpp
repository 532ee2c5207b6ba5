#include "data/examples/masking.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/data/files/files.h"
#include "tests/data/walks.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A vocabulary of 26 letters; only "a" starts a word.
class LetterTokenizer : public Tokenizer {
 public:
  static constexpr int32_t kFirst = 6;

  LetterTokenizer() {
    mask_id_ = 4;
    sentinel_ids_ = {5};
  }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(kFirst + (c - 'a'));
    return ids;
  }
  std::string decode(const std::vector<int32_t>&) const override { return ""; }
  int64_t vocab_size() const override { return kFirst + 26; }
  std::string piece(int32_t) const override { return ""; }
  const std::string& serialized() const override { return bytes_; }
  bool starts_word(int32_t id) const override { return id == kFirst; }

 private:
  std::string bytes_;
};

class Masking : public testing::Test {
 protected:
  std::vector<int32_t> row(int64_t tokens) {
    std::vector<int32_t> ids = {kBosId};
    for (int64_t i = 1; i < tokens; ++i) {
      ids.push_back(i % 40 == 0 ? kEosId : LetterTokenizer::kFirst + static_cast<int32_t>(i % 26));
    }
    return ids;
  }
  MaskedTokens mask(const std::vector<int32_t>& tokens, int64_t row_number = 0) {
    return mask_tokens(tokens, vocabulary_, options_, key_, row_number);
  }

  LetterTokenizer tokenizer_;
  MaskingVocabulary vocabulary_{tokenizer_};
  MaskingOptions options_;
  PhiloxKey key_{1, 2, 3};
};

TEST_F(Masking, SharesAreThoseAskedFor) {
  int64_t candidates = 0, chosen = 0, masked = 0, kept = 0, random = 0;
  std::vector<int64_t> positions(64, 0);
  const auto tokens = row(64);
  for (int64_t r = 0; r < 2000; ++r) {
    const auto out = mask(tokens, r);
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] == kBosId || tokens[i] == kEosId) {
        ASSERT_EQ(out.targets[i], kNoTarget);
        ASSERT_EQ(out.ids[i], tokens[i]);
        continue;
      }
      ++candidates;
      if (out.targets[i] == kNoTarget) {
        ASSERT_EQ(out.ids[i], tokens[i]);
        continue;
      }
      ASSERT_EQ(out.targets[i], tokens[i]);
      ++chosen;
      ++positions[i];
      masked += out.ids[i] == 4;
      kept += out.ids[i] == tokens[i];
      random += out.ids[i] >= LetterTokenizer::kFirst && out.ids[i] != tokens[i];
      ASSERT_GE(out.ids[i], 4);
      ASSERT_NE(out.ids[i], 5);
    }
  }
  EXPECT_GT(chance_of(chosen, candidates, 0.15), 1e-6);
  EXPECT_GT(chance_of(masked, chosen, 0.8), 1e-6);
  // A random piece is the old one in one case of 26.
  EXPECT_GT(chance_of(kept, chosen, 0.1 + 0.1 / 26), 1e-6);
  EXPECT_EQ(masked + kept + random, chosen);
  for (size_t i = 1; i < positions.size(); ++i) {
    if (tokens[i] == kEosId) continue;
    EXPECT_GT(chance_of(positions[i], 2000, 0.15), 1e-7) << i;
  }
}

TEST_F(Masking, RandomPiecesAreUniform) {
  options_ = {1.0, 0.0, 1.0, false};
  std::vector<int64_t> counts(26, 0);
  int64_t all = 0;
  for (int64_t r = 0; r < 500; ++r) {
    for (const int32_t id : mask(tokenizer_.encode("qqqqqqqqqqqqqqqqqqqq"), r).ids) {
      ASSERT_GE(id, LetterTokenizer::kFirst);
      ++counts[static_cast<size_t>(id - LetterTokenizer::kFirst)];
      ++all;
    }
  }
  for (const int64_t count : counts) EXPECT_GT(chance_of(count, all, 1.0 / 26), 1e-6);
}

TEST_F(Masking, IsAFunctionOfKeyAndRow) {
  const auto tokens = row(100);
  const auto one = mask(tokens, 7);
  EXPECT_EQ(one.ids, mask(tokens, 7).ids);
  EXPECT_NE(one.targets, mask(tokens, 8).targets);
  // Later tokens of a row do not change the masking of earlier ones.
  const std::vector<int32_t> head(tokens.begin(), tokens.begin() + 60);
  const auto part = mask(head, 7);
  EXPECT_TRUE(std::equal(part.ids.begin(), part.ids.end(), one.ids.begin()));
  key_.step = 3;
  EXPECT_NE(one.targets, mask(tokens, 7).targets);
}

TEST_F(Masking, NoRowIsEmpty) {
  options_.probability = 1e-6;
  const auto tokens = tokenizer_.encode("abcde");
  std::vector<int64_t> counts(5, 0);
  for (int64_t r = 0; r < 1000; ++r) {
    const auto out = mask(tokens, r);
    ASSERT_EQ(std::count(out.targets.begin(), out.targets.end(), kNoTarget), 4);
    for (size_t i = 0; i < 5; ++i) counts[i] += out.targets[i] != kNoTarget;
  }
  for (const int64_t count : counts) EXPECT_GT(chance_of(count, 1000, 0.2), 1e-6);
  const std::vector<int32_t> specials = {kBosId, kEosId, kPadId};
  EXPECT_EQ(mask(specials).ids, specials);
  EXPECT_THAT(mask(specials).targets, testing::Each(kNoTarget));
  EXPECT_TRUE(mask({}).ids.empty());
}

TEST_F(Masking, WholeWordsAreChosenAsOne) {
  options_.whole_word = true;
  options_.probability = 0.3;
  // Words: b c | a b | a | (eos) | b b | a d; a row and an eos begin one.
  auto tokens = tokenizer_.encode("bcaba");
  tokens.insert(tokens.begin(), kBosId);
  tokens.push_back(kEosId);
  for (const int32_t id : tokenizer_.encode("bbad")) tokens.push_back(id);
  const std::vector<std::vector<size_t>> words = {{1, 2}, {3, 4}, {5}, {7, 8}, {9, 10}};
  std::vector<int64_t> counts(words.size(), 0);
  for (int64_t r = 0; r < 3000; ++r) {
    const auto out = mask(tokens, r);
    int64_t chosen = 0;
    for (size_t w = 0; w < words.size(); ++w) {
      const bool first = out.targets[words[w].front()] != kNoTarget;
      ASSERT_EQ(first, out.targets[words[w].back()] != kNoTarget);
      counts[w] += first;
      chosen += first;
    }
    ASSERT_GE(chosen, 1);
  }
  // Chosen by its own draw, or as the single word of a row without a drawn one.
  const double p = 0.3 + std::pow(0.7, 5) / 5;
  for (const int64_t count : counts) EXPECT_GT(chance_of(count, 3000, p), 1e-6);
}

// Each id is a piece of the alphabet, none begins a word.
class NoSpacesTokenizer : public LetterTokenizer {
 public:
  explicit NoSpacesTokenizer(std::string alphabet) : alphabet_(std::move(alphabet)) {}
  std::string decode(const std::vector<int32_t>&) const override { return alphabet_; }
  std::string piece(int32_t) const override { return alphabet_; }
  bool starts_word(int32_t) const override { return false; }

 private:
  std::string alphabet_;
};

// Of rows of 40 tokens whose script has no spaces, Thai and Japanese, or that are one long word:
// the share that is predicted is the probability, give or take the rounding of a draw.
TEST_F(Masking, WholeWordsWithoutSpacesAreAsManyTokens) {
  options_.whole_word = true;
  options_.probability = 0.15;
  const std::vector<int32_t> tokens(40, LetterTokenizer::kFirst + 2);
  for (const char* piece : {"\u65E5\u672C", "\u306E", "\u30AB", "\u0E44\u0E17", "acgt"}) {
    const MaskingVocabulary vocabulary{NoSpacesTokenizer(piece)};
    EXPECT_EQ(vocabulary.word_share(), std::string(piece) == "acgt" ? 0 : 1) << piece;
    int64_t chosen = 0;
    constexpr int64_t kRows = 2000;
    for (int64_t r = 0; r < kRows; ++r) {
      const auto targets = mask_tokens(tokens, vocabulary, options_, key_, r).targets;
      chosen += std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; });
    }
    EXPECT_NEAR(static_cast<double>(chosen) / (40.0 * kRows), 0.15, 0.01) << piece;
  }
}

// A row of a single word of ten tokens: a quarter of the rows draw it; in the others the part of it
// that is the probability's share is chosen, not all of it.
TEST_F(Masking, TheWordOfARowWithoutADrawnOneIsNoMoreThanTheShare) {
  options_.whole_word = true;
  options_.probability = 0.25;
  const std::vector<int32_t> tokens(10, LetterTokenizer::kFirst + 2);
  int64_t whole = 0;
  for (int64_t r = 0; r < 1000; ++r) {
    const auto targets = mask(tokens, r).targets;
    const auto chosen = 10 - std::count(targets.begin(), targets.end(), kNoTarget);
    ASSERT_TRUE(chosen == 10 || chosen == 2) << chosen;
    whole += chosen == 10;
  }
  EXPECT_GT(chance_of(whole, 1000, 0.25), 1e-6);
}

TEST_F(Masking, OptionsAreChecked) {
  const auto message = [](MaskingOptions options) {
    return error_of(ErrorKind::kConfig, [&] { options.validate(); });
  };
  EXPECT_EQ(message({0, 0.8, 0.1, false}), "[data] probability must be in (0, 1], got 0.");
  EXPECT_THAT(message({0.1, 1.5, 0.1, false}), HasSubstr("mask_share"));
  EXPECT_THAT(message({0.1, 0.5, -0.1, false}), HasSubstr("random_share"));
  EXPECT_THAT(message({0.1, 0.8, 0.3, false}),
              HasSubstr("at most 1 together with mask_share, got 0.3 and 0.8."));
  MaskingOptions{1, 0.8, 0.2, true}.validate();
  EXPECT_THAT(vocabulary_.ordinary_ids(), testing::SizeIs(26));
  EXPECT_THAT(error_of(ErrorKind::kRuntime, [&] { vocabulary_.starts_word(32); }),
              HasSubstr("[0, 32), got 32."));
}

}  // namespace
}  // namespace tapestry
