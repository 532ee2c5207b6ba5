// Our normalisation against SentencePiece's, from which its names come.
#include "data/tokenizers/normalization.h"

#include <gmock/gmock.h>
#include <unicode/uchar.h>

#include "data/files/utf8.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry::tokenizers {
namespace {

// A SentencePiece model that writes every character as bytes, so that decoding gives back what its
// normalisation made of a text.
std::shared_ptr<const Tokenizer> byte_model(const std::string& normalization) {
  TokenizerOptions options;
  options.byte_fallback = true;
  options.vocab_size = 4 + 256 + 3;
  options.normalization = normalization;
  return train_tokenizer(
      options,
      [next = 0](std::string& line) mutable {
        line = "a";
        return next++ == 0;
      },
      1);
}

// Without space at the ends, and with one space between words: what both do after normalisation.
std::string trimmed(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ' && (out.empty() || out.back() == ' ')) continue;
    out.push_back(c);
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

class Normalization : public testing::TestWithParam<const char*> {
 protected:
  Normalization() : theirs_(byte_model(GetParam())), ours_(GetParam()) {}

  std::string theirs(const std::string& text) const {
    return theirs_->decode(theirs_->encode(text));
  }
  std::string ours(const std::string& text) const {
    std::string buffer;
    return trimmed(ours_(text, buffer));
  }

  std::shared_ptr<const Tokenizer> theirs_;
  Normalizer ours_;
};
INSTANTIATE_TEST_SUITE_P(All, Normalization, testing::ValuesIn(TokenizerOptions::kNormalizations));

// SentencePiece 0.1.97 has the tables of Unicode 13. It leaves U+0344, two accents, apart from the
// letter before them, with which Unicode composes the first.
bool is_newer_or_known_to_differ(char32_t c) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] > 13 || c == 0x344;
}

TEST_P(Normalization, EqualsSentencePieceOnEveryCharacter) {
  int differences = 0;
  for (char32_t c = 1; c <= 0x10FFFF; ++c) {
    const int type = u_charType(static_cast<UChar32>(c));
    if (type == U_SURROGATE || type == U_UNASSIGNED || type == U_PRIVATE_USE_CHAR) continue;
    if (is_newer_or_known_to_differ(c)) continue;
    std::string text = "a";
    append_utf8(text, c);
    text += 'b';
    if (ours(text) != theirs(text) && ++differences <= 20) {
      ADD_FAILURE() << "U+" << std::hex << static_cast<uint32_t>(c) << ": '" << ours(text)
                    << "', SentencePiece has '" << theirs(text) << "'";
    }
  }
  EXPECT_EQ(differences, 0);
}

TEST_P(Normalization, EqualsSentencePieceOnText) {
  for (const std::string text :
       {"Ein Mann fährt Rad.", "  zwei\u00A0Wörter\t und\u3000mehr ", "e\u0301te\u0301 cafe\u0301",
        "\uFB01nal \u2026 \u00BD \u2460", "STRASSE Straße ΣΊΣΥΦΟΣ", "\uFF21\uFF22\uFF5E\uFF11",
        "\u1100\u1161\u11A8 \uD55C\uAE00", "a\u0001b\u200Bc\uFEFFd", "x\u2581y", "\u30AB\u3099",
        "bad \xFF byte", ""}) {
    EXPECT_EQ(ours(text), theirs(text)) << text;
  }
}

}  // namespace
}  // namespace tapestry::tokenizers
