// IBM model 1 against hand-computed cases and a loop in double, shortlists, and their files.
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <sstream>
#include <utility>

#include "core/base/philox.h"
#include "core/cpu/parallel.h"
#include "data/files/files.h"
#include "data/lexicon/lexicon_file.h"
#include "tests/data/files/files.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Lists = std::vector<std::vector<int32_t>>;

TokenLists lists_of(const Lists& lists) {
  TokenLists tokens;
  for (const auto& list : lists) tokens.push_back(list);
  return tokens;
}

double probability(const Lexicon& lexicon, int32_t source, int32_t target) {
  for (const auto& one : lexicon.translations.at(static_cast<size_t>(source))) {
    if (one.target == target) return one.probability;
  }
  return 0;
}

// das Haus: the house; das Buch: the book; ein Buch: a book.
constexpr int32_t kDas = 0, kHaus = 1, kBuch = 2, kEin = 3;
constexpr int32_t kThe = 0, kHouse = 1, kBook = 2, kA = 3;
const Lists kGerman = {{kDas, kHaus}, {kDas, kBuch}, {kEin, kBuch}};
const Lists kEnglish = {{kThe, kHouse}, {kThe, kBook}, {kA, kBook}};

Lexicon learn(const Lists& sources, const Lists& targets, const LexiconOptions& options) {
  return learn_lexicon(lists_of(sources), lists_of(targets), 30, 30, options);
}

// After one iteration each token shares its sentences' tokens evenly:
//   t(the | das) = 2/4, t(house | das) = t(book | das) = 1/4, t(the | Haus) = t(house | Haus) =
//   1/2.
// In the second "the" of the first sentence belongs to das by 1/2 / (1/2 + 1/2), "house" by
// 1/4 / (1/4 + 1/2) = 1/3; in the second sentence "the" belongs to das by 1/2 / (1/2 + 1/4) = 2/3
// and "book" by 1/4 / (1/4 + 1/2) = 1/3. So das has 7/6, 1/3 and 1/3, of 11/6 together.
TEST(LexiconTest, TwoIterationsByHand) {
  const Lexicon first = learn(kGerman, kEnglish, {.iterations = 1});
  EXPECT_NEAR(probability(first, kDas, kThe), 0.5, 1e-6);
  EXPECT_NEAR(probability(first, kDas, kHouse), 0.25, 1e-6);
  EXPECT_NEAR(probability(first, kHaus, kHouse), 0.5, 1e-6);
  const Lexicon second = learn(kGerman, kEnglish, {.iterations = 2});
  EXPECT_NEAR(probability(second, kDas, kThe), 7.0 / 11, 1e-6);
  EXPECT_NEAR(probability(second, kDas, kHouse), 2.0 / 11, 1e-6);
  EXPECT_NEAR(probability(second, kDas, kBook), 2.0 / 11, 1e-6);
  // Haus: 1/2 of "the" and 2/3 of "house".
  EXPECT_NEAR(probability(second, kHaus, kHouse), 4.0 / 7, 1e-6);
  EXPECT_THAT(second.translations[kHaus][0].target, kHouse);
}

TEST(LexiconTest, ManyIterationsFindTheTranslations) {
  const Lexicon lexicon = learn(kGerman, kEnglish, {.iterations = 50, .least_probability = 0.1});
  EXPECT_EQ(lexicon.translations[kHaus][0].target, kHouse);
  EXPECT_EQ(lexicon.translations[kBuch][0].target, kBook);
  EXPECT_EQ(lexicon.translations[kEin][0].target, kA);
  EXPECT_GT(lexicon.translations[kDas][0].probability, 0.95);
  EXPECT_EQ(lexicon.translations[kDas].size(), 1U) << "improbable ones are left out";
}

TEST(LexiconTest, CountsFrequentTargets) {
  const Lexicon lexicon = learn(kGerman, kEnglish, {.frequent = 3});
  ASSERT_EQ(lexicon.frequent.size(), 3U);  // the lower id of equally frequent ones first
  EXPECT_EQ(lexicon.frequent[0].target, kThe);
  EXPECT_EQ(lexicon.frequent[1].target, kBook);
  EXPECT_EQ(lexicon.frequent[2].target, kHouse);
  EXPECT_NEAR(lexicon.frequent[0].probability, 2.0 / 6, 1e-6);
}

Lists random_lists(int count, uint64_t seed) {
  Lists lists;
  for (int i = 0; i < count; ++i) {
    const PhiloxKey key{seed, static_cast<uint32_t>(i), 0};
    std::vector<int32_t>& list = lists.emplace_back();
    const uint64_t length = philox_below(key, 100, 8);  // may be empty
    for (uint64_t k = 0; k < length; ++k) {
      list.push_back(static_cast<int32_t>(philox_below(key, k, 30)));
    }
  }
  return lists;
}

TEST(LexiconTest, EqualsALoopInDouble) {
  const Lists sources = random_lists(300, 1), targets = random_lists(300, 2);
  std::map<std::pair<int32_t, int32_t>, double> t;
  for (int iteration = 0; iteration < 4; ++iteration) {
    std::map<std::pair<int32_t, int32_t>, double> counts;
    std::map<int32_t, double> totals;
    for (size_t i = 0; i < sources.size(); ++i) {
      for (const int32_t y : targets[i]) {
        double sum = 0;
        for (const int32_t x : sources[i]) sum += iteration == 0 ? 1 : t[{x, y}];
        for (const int32_t x : sources[i]) {
          const double share = (iteration == 0 ? 1 : t[{x, y}]) / sum;
          counts[{x, y}] += share, totals[x] += share;
        }
      }
    }
    for (auto& [pair, count] : counts) t[pair] = count / totals[pair.first];
  }
  const Lexicon lexicon = learn(sources, targets, {.iterations = 4, .least_probability = 0});
  size_t compared = 0;
  for (const auto& [pair, value] : t) {
    EXPECT_NEAR(probability(lexicon, pair.first, pair.second), value, 1e-6);
    ++compared;
  }
  EXPECT_GT(compared, 500U);
}

TEST(LexiconTest, ThreadsChangeNoBit) {
  const Lists sources = random_lists(3000, 3), targets = random_lists(3000, 4);
  const int before = num_threads();
  std::vector<Lexicon> found;
  for (const int threads : {1, 2, 5}) {
    set_num_threads(threads);
    found.push_back(learn(sources, targets, {}));
  }
  set_num_threads(before);
  EXPECT_EQ(found[0].translations, found[1].translations);
  EXPECT_EQ(found[0].translations, found[2].translations);
  EXPECT_EQ(found[0].frequent, found[2].frequent);
}

// Shortlists

Lexicon small_lexicon() {
  Lexicon lexicon;
  lexicon.translations = {{}, {{5, 0.6F}, {6, 0.3F}, {7, 0.1F}}, {{7, 1.0F}}};
  lexicon.frequent = {{9, 0.5F}, {8, 0.3F}, {5, 0.2F}};
  return lexicon;
}

TEST(ShortlistTest, IsTheUnionOfTheBestOnes) {
  const Shortlist shortlist(small_lexicon(), {.size = 2, .target_tokens = 12, .always = {3, 0}});
  EXPECT_THAT(shortlist.common(), ElementsAre(0, 3, 8, 9));
  EXPECT_THAT(shortlist.of({}), ElementsAre(0, 3, 8, 9));
  EXPECT_THAT(shortlist.of(std::vector<int32_t>{1, 0, 1}), ElementsAre(0, 3, 5, 6, 8, 9));
  EXPECT_THAT(shortlist.of(std::vector<int32_t>{2, 11}, std::vector<int32_t>{10}),
              ElementsAre(0, 3, 7, 8, 9, 10));
}

TEST(ShortlistTest, TokensMayBeCopiedInOneVocabulary) {
  const Shortlist shortlist(
      small_lexicon(), {.size = 1, .target_tokens = 12, .always = {3}, .one_vocabulary = true});
  EXPECT_THAT(shortlist.of(std::vector<int32_t>{1, 4}), ElementsAre(1, 3, 4, 5, 9));
}

// Files

class LexiconFileTest : public testing::Test {
 protected:
  static TokenizerPair tokenizers() {
    static const auto made = [] {
      std::vector<std::string> lines = {"red green blue red", "red green", "house red"};
      size_t at = 0;
      const auto next = [&](std::string& line) {
        if (at == lines.size()) return false;
        line = lines[at++];
        return true;
      };
      TokenizerOptions options;
      options.type = "word", options.vocab_size = 9;
      return train_tokenizer(options, next, 1);
    }();
    return {made, made};
  }
  static int32_t id(const std::string& word) { return tokenizers().source->encode(word).at(0); }

  // Words as pieces: "@red".
  static std::string marked(std::string text) {
    for (size_t at = 0; (at = text.find('@', at)) != std::string::npos;) text.replace(at, 1, "▁");
    return text;
  }
  LexiconFile read(const std::string& text) const {
    write_file(folder_.path("lex.s2t"), marked(text));
    return read_lexicon(folder_.path("lex.s2t"), tokenizers());
  }
  std::string error(const std::string& text) const {
    try {
      read(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      return error.what();
    }
    return "";
  }

  TempFolder folder_;
};

TEST_F(LexiconFileTest, ReadsMariansLines) {
  const LexiconFile file = read(
      "@green @red 0.25\n@blue @red 0.75\n@red NULL 0.5\nNULL @red 0.1\nnone @red 1\n@red none "
      "1e-3\n");
  EXPECT_EQ(file.lines, 6);
  EXPECT_EQ(file.unknown, 2);
  EXPECT_THAT(file.first_unknown, HasSubstr("lex.s2t:5: 'none'"));
  const auto& red = file.lexicon.translations.at(static_cast<size_t>(id("red")));
  ASSERT_EQ(red.size(), 2U);
  EXPECT_EQ(red[0], (Lexicon::Translation{id("blue"), 0.75F}));
  EXPECT_EQ(red[1], (Lexicon::Translation{id("green"), 0.25F}));
  ASSERT_EQ(file.lexicon.frequent.size(), 1U);
  EXPECT_EQ(file.lexicon.frequent[0].target, id("red"));
}

TEST_F(LexiconFileTest, TheFirstTokensAreFrequentWhereNoLineSaysSo) {
  const LexiconFile file = read("@green @red 0.25\n");
  EXPECT_EQ(file.lexicon.frequent.at(0).target, 4);  // behind pad, unk, bos and eos
  EXPECT_EQ(file.lexicon.frequent.size() + 4,
            static_cast<size_t>(tokenizers().target->vocab_size()));
}

TEST_F(LexiconFileTest, FilesAndLexiconsAreTheSame) {
  Lexicon lexicon;
  lexicon.translations.resize(static_cast<size_t>(tokenizers().source->vocab_size()));
  lexicon.translations[static_cast<size_t>(id("red"))] = {{id("red"), 0.1F + 0.6F},
                                                          {id("blue"), 1.0F / 3}};
  lexicon.translations[static_cast<size_t>(id("house"))] = {{id("green"), 1e-5F}};
  lexicon.frequent = {{id("house"), 0.7F}, {id("red"), 0.3F}};
  std::ostringstream out;
  EXPECT_EQ(write_lexicon(lexicon, tokenizers(), out), 0);
  EXPECT_THAT(out.str(), HasSubstr(marked("@blue @red 0.3333333")));
  const LexiconFile file = read(out.str());
  EXPECT_EQ(file.unknown, 0);
  EXPECT_EQ(file.lexicon.translations, lexicon.translations);
  EXPECT_EQ(file.lexicon.frequent, lexicon.frequent);
}

TEST_F(LexiconFileTest, WhatTheFormatCannotHoldIsCounted) {
  bool more = true;
  const auto next = [&](std::string& line) {
    line = "a b";
    return std::exchange(more, false);
  };
  TokenizerOptions options;
  options.type = "char";
  const auto characters = train_tokenizer(options, next, 1);
  const int32_t a = characters->encode("a").at(0), space = characters->encode(" ").at(0);
  Lexicon lexicon;
  lexicon.translations.resize(static_cast<size_t>(characters->vocab_size()));
  lexicon.translations[static_cast<size_t>(space)] = {{a, 1}};
  lexicon.translations[static_cast<size_t>(a)] = {{space, 0.5F}, {a, 0.5F}};
  std::ostringstream out;
  EXPECT_EQ(write_lexicon(lexicon, {characters, characters}, out), 2);  // source and target
  EXPECT_EQ(out.str(), "a a 0.5\n");
}

TEST_F(LexiconFileTest, WrongLinesHaveAPlace) {
  EXPECT_THAT(
      error("@green @red 0.25\n@green @red\n"),
      HasSubstr(marked("lex.s2t:2: expected a target token, a source token and a probability in "
                       "[0, 1], got '@green @red'")));
  EXPECT_THAT(error("@green @red 0.25 x\n"), HasSubstr("lex.s2t:1: expected a target token"));
  EXPECT_THAT(error("@green @red 1.25\n"), HasSubstr("lex.s2t:1: expected a target token"));
  EXPECT_THAT(error("@green @red nan\n"), HasSubstr("lex.s2t:1: expected a target token"));
  EXPECT_THAT(error("@green @red 0.25\n@blue @red .1\n@green @red 0.5\n"),
              HasSubstr(marked("lex.s2t:3: '@green' and '@red' came before")));
  EXPECT_THAT(error("a b 0.25\nb c 1\n"), HasSubstr("none of 2 lines has tokens of this model's "
                                                    "vocabulary, the first is"));
}

TEST_F(LexiconFileTest, WritesVocabularyMaps) {
  Lexicon lexicon;
  lexicon.translations.resize(static_cast<size_t>(id("red")) + 1);
  lexicon.translations[static_cast<size_t>(id("red"))] = {{id("blue"), 0.75F},
                                                          {id("green"), 0.25F}};
  lexicon.frequent = {{id("red"), 1}};
  const Shortlist shortlist(lexicon, {.size = 2, .target_tokens = 9, .always = {3}});
  std::ostringstream out;
  EXPECT_EQ(write_vmap(shortlist, tokenizers(), /*one_vocabulary=*/false, out), 0);
  EXPECT_EQ(out.str(), marked("\t</s> @red\n@red\t@blue @green\n"));
  std::ostringstream copied;
  write_vmap(shortlist, tokenizers(), /*one_vocabulary=*/true, copied);
  EXPECT_THAT(copied.str(), HasSubstr(marked("@red\t@blue @green @red\n")));
}

}  // namespace
}  // namespace tapestry
