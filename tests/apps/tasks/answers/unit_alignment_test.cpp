// Words that are aligned by attention, and unknown ones that are copied by it.
#include "apps/tasks/answers/unit_alignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/tasks/answers/unknown_words.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr int32_t kUnknown = 1;

// A sentence of words, a token each, whose id is `unknown` where the word has a ?.
PlacedText placed_words(const std::string& text) {
  PlacedText placed{.text = text};
  for (const auto& [begin, end] : word_places(text)) {
    const bool unknown = text.substr(begin, end - begin).find('?') != std::string::npos;
    const auto from = static_cast<int64_t>(begin > 0 ? begin - 1 : 0);  // with the space before it
    placed.tokens.push_back({unknown ? kUnknown : 7, from, static_cast<int64_t>(end)});
  }
  return placed;
}

struct Aligned {
  AlignedText text;
  UnitAttention attention;
};

// The rows of weights are tokens of the translation; the last column is the end's.
Aligned align(const MarkedText& marked, const PlacedText& source, const std::string& translation,
              const std::vector<std::vector<double>>& weights, size_t begin = 0) {
  const PlacedText to = placed_words(translation);
  const int64_t width = std::ssize(source.tokens) + 1;
  const Tensor table = Tensor::zeros({std::ssize(to.tokens) + 1, width}, DType::kFloat64);
  for (size_t t = 0; t < weights.size(); ++t) {
    std::ranges::copy(weights[t], table.data<double>() + static_cast<int64_t>(t) * width);
  }
  const PartToAlign part{&marked, begin, &source};
  UnitAttention attention = unit_attention(part, to, table);
  AlignedText aligned = aligned_text(attention, translation);
  copy_unknown_words(part, attention, kUnknown, aligned);
  return {std::move(aligned), std::move(attention)};
}

TEST(UnitAlignment, TakesMostAttentionOfEachUnit) {
  const MarkedText marked = without_markup("a b, c");
  // "b," is one token and two units.
  const Aligned found = align(marked, placed_words("a b, c"), "x y z",
                              {{.1, .2, .5, .2}, {.2, .7, 0, .1}, {.2, .2, .2, .4}});
  EXPECT_THAT(found.text.pairs, ElementsAre(Pair(3, 0), Pair(1, 1)));  // z is the end's
  EXPECT_THAT(found.text.guesses, ElementsAre(Pair(0, 1), Pair(2, 1)));
  EXPECT_DOUBLE_EQ(found.attention.at(1, 1), .7);
  EXPECT_DOUBLE_EQ(found.attention.at(1, 2), .7);
}

TEST(UnitAlignment, CountsTheUnitsOfTheWholeSource) {
  const MarkedText marked = without_markup("a b. c d");
  const Aligned found = align(marked, placed_words("c d"), "y x", {{.1, .8, .1}, {.9, .1, 0}}, 5);
  EXPECT_THAT(found.text.pairs, ElementsAre(Pair(4, 0), Pair(3, 1)));
}

// A source that was cut has words without tokens.
TEST(UnitAlignment, WordsWithoutTokensHaveNoPair) {
  const MarkedText marked = without_markup("a b c");
  PlacedText cut = placed_words("a b c");
  cut.tokens.resize(1);
  const Aligned found = align(marked, cut, "x", {{1, 0}});
  EXPECT_THAT(found.text.pairs, ElementsAre(Pair(0, 0)));
  EXPECT_THAT(found.text.guesses, ElementsAre());
}

std::string copied(const std::string& source, const std::string& translation,
                   const std::vector<std::vector<double>>& weights) {
  return align(without_markup(source), placed_words(source), translation, weights).text.text;
}

TEST(CopyUnknown, StandsInThePlaceOfTheWordThatIsAlignedWithIt) {
  EXPECT_EQ(copied("a b?c d", "x y z", {{.8, .1, .1, 0}, {.1, .1, .8, 0}, {.1, .8, .1, 0}}),
            "x y b?c");
  EXPECT_EQ(copied("a bc d", "x y z", {{.8, .1, .1, 0}, {.1, .1, .8, 0}, {.1, .8, .1, 0}}),
            "x y z");
  // Of several the one with most attention.
  EXPECT_EQ(copied("a b?", "x y z", {{.1, .6, 0}, {.1, .8, 0}, {.7, .1, 0}}), "x b? z");
  // Of none: before what follows it, or at the end.
  EXPECT_EQ(copied("b? c", "x y", {{0, .4, .6}, {.1, .9, 0}}), "x b? y");
  EXPECT_EQ(copied("c b?", "x y", {{.9, 0, .1}, {0, 0, 1}}), "x y b?");
  EXPECT_EQ(copied("b?", "", {}), "b?");
  // Two in the place of one.
  EXPECT_EQ(copied("b? c? d", "x y", {{.6, .4, 0, 0}, {0, .1, .9, 0}}), "b? c? y");
  // Without the signs around it that are known.
  const MarkedText marked = without_markup("(b?c), d");
  const PlacedText source{"(b?c), d", {{7, 0, 1}, {kUnknown, 1, 4}, {7, 4, 6}, {7, 6, 8}}};
  EXPECT_EQ(align(marked, source, "x y", {{0, .9, 0, 0, .1}, {0, 0, 0, 1, 0}}).text.text, "b?c y");
}

TEST(CopyUnknown, KeepsTheAlignment) {
  const Aligned found =
      align(without_markup("b? c"), placed_words("b? c"), "x y", {{0, .4, .6}, {.1, .9, 0}});
  EXPECT_EQ(found.text.text, "x b? y");
  EXPECT_THAT(found.text.pairs,
              testing::UnorderedElementsAre(Pair(0, 1), Pair(1, 1), Pair(2, 2)));  // b and ?
  ASSERT_EQ(found.text.units.size(), 3u);
  EXPECT_EQ(found.text.units[1], (TextUnit{2, 4, true}));
  EXPECT_EQ(found.text.units[2], (TextUnit{5, 6, true}));
}

}  // namespace
}  // namespace tapestry
