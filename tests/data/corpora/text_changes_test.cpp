#include "data/corpora/text_changes.h"

#include <gmock/gmock.h>

#include "data/corpora/text_variation.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

RowDraws draws_of(int64_t row) { return RowDraws({7, 0, 3}, row); }

std::string changed(const TextChanges& shares, const std::string& text, bool source = true,
                    int64_t row = 0) {
  RowDraws draws = draws_of(row);
  const DrawnChanges drawn(shares, draws);
  return changed_text(text, drawn, source, draws);
}

TEST(TextChangesTest, EachDoesWhatItsNameSays) {
  EXPECT_EQ(changed({.upper_case = 1}, "Die Straße, élan."), "DIE STRASSE, ÉLAN.");
  EXPECT_EQ(changed({.title_case = 1}, "the NATO's way to éire."), "The NATO's Way To Éire.");
  EXPECT_EQ(changed({.no_end_mark = 1}, "Why? So ... he said!? "), "Why? So ... he said");
  EXPECT_EQ(changed({.no_end_mark = 1}, "これは文です。"), "これは文です");
  EXPECT_EQ(changed({.no_end_mark = 1}, "..."), "...") << "nothing would be left";
  EXPECT_EQ(changed({.upper_case = 1, .no_end_mark = 1}, "so it is."), "SO IT IS");
  EXPECT_EQ(changed({}, "As it was."), "As it was.");
}

TEST(TextChangesTest, SlipsAreOfLongerWordsInTheSource) {
  const std::string text = "somebody wrote a few words without looking; somewhere, yesterday.";
  int64_t differ = 0, words = 0;
  for (int64_t row = 0; row < 400; ++row) {
    const std::string now = changed({.typos = 1}, text, true, row);
    EXPECT_EQ(changed({.typos = 1}, text, false, row), text);
    EXPECT_EQ(now, changed({.typos = 1}, text, true, row)) << "the same draws";
    std::istringstream before(text), after(now);
    for (std::string a, b; before >> a && after >> b; ++words) {
      differ += a != b ? 1 : 0;
      EXPECT_EQ(a[0], b[0]);
      EXPECT_LE(std::abs(std::ssize(a) - std::ssize(b)), 1);
      if (a.size() <= 3) {
        EXPECT_EQ(a, b);
      }
    }
  }
  // Of eight of eleven words 15 % slip, and some swap equal letters.
  EXPECT_NEAR(static_cast<double>(differ) / static_cast<double>(words), 0.15 * 7 / 10, 0.025);
}

TEST(TextChangesTest, SharesAreOfPairsAndTheSameOnBothSides) {
  const TextChanges shares{.upper_case = 0.2, .no_end_mark = 0.5};
  int64_t upper = 0, unmarked = 0;
  for (int64_t row = 0; row < 2000; ++row) {
    const std::string source = changed(shares, "one.", true, row);
    const std::string target = changed(shares, "eins.", false, row);
    EXPECT_EQ(source.starts_with('O'), target.starts_with('E'));
    EXPECT_EQ(source.ends_with('.'), target.ends_with('.'));
    upper += source.starts_with('O') ? 1 : 0;
    unmarked += source.ends_with('.') ? 0 : 1;
  }
  EXPECT_NEAR(static_cast<double>(upper) / 2000, 0.2, 0.03);
  EXPECT_NEAR(static_cast<double>(unmarked) / 2000, 0.5, 0.04);
}

TEST(TextChangesTest, VaryTokensByEpochAndRowButNoTextWithSymbols) {
  TokenizerOptions trained;
  trained.type = "bpe";
  trained.vocab_size = 40;
  trained.user_symbols = {"<BT>"};
  const std::shared_ptr<const Tokenizer> tokenizer = train_tokenizer(
      trained,
      [left = 50](std::string& line) mutable {
        line = "low lower lowest <BT> newer. LOWEST NEWER";
        return left-- > 0;
      },
      1);
  const auto texts = [&](const std::string& text, int64_t epoch, int64_t most) {
    const TextVariation variation({.source = {}, .target = {}, .changes = {.upper_case = 0.5}},
                                  {tokenizer, tokenizer}, {most, most}, 1);
    EXPECT_TRUE(variation.changes_lengths());
    std::string all;
    std::vector<int32_t> varied;
    for (int64_t row = 0; row < 40; ++row) {
      variation.source(epoch, row, tokenizer->encode(text), varied);
      all += tokenizer->decode(varied);
      variation.target(epoch, row, tokenizer->encode(text), varied);
      all += tokenizer->decode(varied) + ' ';
    }
    return all;
  };
  const std::string first = texts("low", 0, 9);
  EXPECT_NE(first.find("LOWLOW"), std::string::npos);
  EXPECT_NE(first.find("lowlow"), std::string::npos);
  EXPECT_EQ(first.find("lowLOW"), std::string::npos) << "both sides change together";
  EXPECT_EQ(first, texts("low", 0, 9));
  EXPECT_NE(first, texts("low", 1, 9));
  EXPECT_EQ(texts("low", 0, 1).find("LOW"), std::string::npos) << "longer than the limit";
  EXPECT_EQ(texts("low <BT>", 0, 9).find("LOW"), std::string::npos);
}

}  // namespace
}  // namespace tapestry
