#include "apps/tasks/answers/alignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/tasks/answers/alignment_error.h"
#include "core/base/error.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

// Ids from 4 on are pieces as SentencePiece writes them.
class Pieces : public Tokenizer {
 public:
  explicit Pieces(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
  std::vector<int32_t> all() const {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < pieces_.size(); ++i) ids.push_back(static_cast<int32_t>(i) + 4);
    return ids;
  }
  std::vector<int32_t> encode(std::string_view) const override { return {}; }
  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      const std::string piece = this->piece(id);
      text += piece.starts_with("▁") ? " " + piece.substr(3) : piece;
    }
    text.erase(0, text.starts_with(' ') ? 1 : 0);
    while (text.ends_with(' ')) text.pop_back();
    return text;
  }
  int64_t vocab_size() const override { return std::ssize(pieces_) + 4; }
  std::string piece(int32_t id) const override { return pieces_.at(static_cast<size_t>(id) - 4); }
  const std::string& serialized() const override { return bytes_; }

 private:
  std::vector<std::string> pieces_;
  std::string bytes_;
};

std::vector<int32_t> numbers_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  return word_numbers(tokenizer, placed_output(tokenizer, ids));
}

TEST(WordNumbers, CountWordsBetweenSpacesAndTabs) {
  const Pieces pieces({"▁the", "▁ca", "t", "▁", "é", "!", "▁x", "▁"});
  EXPECT_THAT(numbers_of(pieces, pieces.all()), ElementsAre(0, 1, 1, -1, 2, 2, 3, -1));
  // The first piece begins a word in any case.
  EXPECT_THAT(numbers_of(pieces, {6, 6, 4}), ElementsAre(0, 0, 1));
  EXPECT_THAT(numbers_of(pieces, {}), IsEmpty());
  // Characters have their spaces as they are. A line end is no space: it is written inside a word.
  const Pieces characters({"a", "b", " ", "c", "\n", "d", "\t", "e"});
  EXPECT_THAT(numbers_of(characters, characters.all()), ElementsAre(0, 0, -1, 1, -1, 1, -1, 2));
}

// What SentencePiece's normalisation makes of "the´house is" begins three words, of which the user
// wrote two.
TEST(WordNumbers, AreThoseOfTheTextAsGiven) {
  const Pieces pieces({"▁the", "▁́", "house", "▁is"});
  const PlacedText text{"the\u00B4house is", {{4, 0, 3}, {5, 3, 5}, {6, 5, 10}, {7, 10, 13}}};
  EXPECT_THAT(word_numbers(pieces, text), ElementsAre(0, 0, 0, 1));
  // Bytes of a character have no place of their own until the last.
  const Pieces bytes({"▁", "<0xC3>", "<0xA9>", "▁b"});
  EXPECT_THAT(word_numbers(bytes, {"a \u00E9 b", {{5, 1, 1}, {6, 1, 4}, {7, 4, 6}}}),
              ElementsAre(1, 1, 2));
  // White space behind a word, as some models of SentencePiece have it.
  const Pieces suffixes({"the▁", "house▁", "is▁"});
  EXPECT_THAT(word_numbers(suffixes, {"the house is", {{4, 0, 4}, {5, 4, 10}, {6, 10, 12}}}),
              ElementsAre(0, 1, 2));
}

TEST(WordScores, AreSumsOverTheirTokens) {
  const Pieces pieces({"▁", "the", "▁ca", "t", "▁", "é", "▁"});
  const auto words = word_scores(pieces, pieces.all(), {-1, -2, -4, -8, -16, -32, -64, -128});
  ASSERT_EQ(words.size(), 3u);
  EXPECT_EQ(words[0].text, "the");
  EXPECT_EQ(words[0].log_probability, -3);
  EXPECT_EQ(words[1].text, "cat");
  EXPECT_EQ(words[1].log_probability, -12);
  EXPECT_EQ(words[2].text, "é");
  EXPECT_EQ(words[2].log_probability, -112);  // with the space behind it; -128 is eos
  EXPECT_TRUE(word_scores(pieces, {}, {-1}).empty());
}

TEST(HardAlignment, IsWhereEachTokenLooksMost) {
  // Four tokens and eos look at three tokens and eos.
  const Tensor weights = Tensor::from<double>({.1, .6, .2, .1,   //
                                               .4, .1, .4, .1,   // a tie: the first
                                               .1, .2, .3, .4,   // eos
                                               .0, .1, .8, .1,   //
                                               .9, .0, .0, .1},  //
                                              {5, 4});
  EXPECT_THAT(hard_alignment(weights, {0, 1, 2}, {0, 1, 2, 3}),
              ElementsAre(Pair(0, 1), Pair(1, 0), Pair(2, 3)));
  // Words: tokens 0 and 1 of the source are one, tokens 1 and 3 of the target have none or the
  // same.
  EXPECT_THAT(hard_alignment(weights, {0, 0, 1}, {0, 0, 1, 1}),
              ElementsAre(Pair(0, 0), Pair(1, 1)));
  EXPECT_THAT(hard_alignment(weights, {0, 1, -1}, {0, -1, 1, 2}), ElementsAre(Pair(1, 0)));
  EXPECT_EQ(pharaoh(hard_alignment(weights, {0, 1, 2}, {0, 1, 2, 3})), "0-1 1-0 2-3");
  EXPECT_EQ(pharaoh({}), "");
  EXPECT_THAT(hard_alignment(Tensor::from<double>({1}, {1, 1}), {}, {}), IsEmpty());
  EXPECT_THROW(hard_alignment(weights, {0, 1}, {0, 1, 2, 3}), Error);
}

// Och and Ney's example of the definition: S within P.
TEST(AlignmentErrorTest, CountsSureAndPossibleLinks) {
  AlignmentError error;
  EXPECT_EQ(error.rate(), 0);
  error.add({{0, 0}, {1, 1}, {2, 2}, {3, 3}},
            parse_word_links("0-0 1-1 1-2 2?2 4?4", "a b c d e", "a b c d e", "gold:1"));
  // Found 4: two of 3 sure ones, and one possible one.
  EXPECT_DOUBLE_EQ(error.rate(), 1 - (2 + 3) / (4 + 3.));
  EXPECT_DOUBLE_EQ(error.precision(), 3 / 4.);
  EXPECT_DOUBLE_EQ(error.recall(), 2 / 3.);
  error.add({{0, 0}}, {{0, 0, false}, {0, 0, true}});  // sure
  EXPECT_DOUBLE_EQ(error.rate(), 1 - (3 + 4) / (5 + 4.));
}

}  // namespace
}  // namespace tapestry
