// Tokenizers of scores that sacrebleu_test.cpp's golden words do not reach.
#include "data/scores/words.h"

#include <gmock/gmock.h>

#include "data/scores/bleu.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/data/files/files.h"

namespace tapestry {
namespace {

TEST(Words, OfASentencePieceModel) {
  const TempFolder folder;
  std::vector<std::string> lines;
  for (int i = 0; i < 200; ++i) lines.push_back(concat("the cat number ", i, " sat on a mat"));
  TokenizerOptions options;
  options.vocab_size = 60;
  size_t next = 0;
  const auto tokenizer = train_tokenizer(
      options,
      [&](std::string& line) {
        if (next == lines.size()) return false;
        line = lines[next++];
        return true;
      },
      1);
  const std::string model = folder.write("spm.model", tokenizer->serialized());
  const WordRule::Split split = word_rule("spm", model).make(model);
  for (const std::string line : {"the mat sat on cat 199", "", "unknown \xE4\xBD\xA0 mat"}) {
    std::string pieces;
    for (const int32_t id : tokenizer->encode(line)) {
      if (id == kUnkId) continue;
      pieces += (pieces.empty() ? "" : " ") + tokenizer->piece(id);
    }
    if (line.starts_with("unknown")) {  // its piece is the text itself
      EXPECT_THAT(words_of_line(split, line), testing::HasSubstr("\xE4\xBD\xA0"));
    } else {
      EXPECT_EQ(words_of_line(split, line), pieces);
    }
  }
  const BleuOptions bleu{.tokenize = "flores200", .spm_model = model};
  EXPECT_THAT(corpus_bleu({lines[0]}, {lines[0]}, bleu).signature,
              testing::HasSubstr("|tok:flores200|"));
  EXPECT_THAT(error_of(ErrorKind::kData,
                       [&] {
                         const std::string wrong = folder.write("wrong", "no model");
                         word_rule("spm", wrong).make(wrong);
                       }),
              testing::HasSubstr("is not a SentencePiece model"));
}

}  // namespace
}  // namespace tapestry
