// "<mask>" and "<extra_id_0>" in text.
#include "data/tokenizers/special_words.h"

#include <gmock/gmock.h>

#include "tests/data/files/files.h"

namespace tapestry {
namespace {

using Ids = std::vector<int32_t>;

std::shared_ptr<const Tokenizer> trained(const std::string& type, bool mask, int64_t sentinels,
                                         int64_t vocab_size = 60) {
  const std::vector<std::string> lines = {"the cat sat on the mat", "the dog ran to the cat",
                                          "a cat and a dog sat there <then> and ran"};
  TokenizerOptions options;
  options.type = type;
  options.vocab_size = vocab_size;
  options.mask_piece = mask;
  options.sentinels = sentinels;
  size_t next = 0;
  return train_tokenizer(
      options,
      [&](std::string& line) {
        if (next == lines.size()) return false;
        line = lines[next++];
        return true;
      },
      1);
}

Ids joined(std::initializer_list<Ids> parts) {
  Ids all;
  for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(SpecialWords, BecomeTheirIds) {
  const auto plain = trained("sentencepiece", true, 12);
  const auto words = with_special_words(plain);
  const Ids mask = {*plain->mask_id()}, zero = {*plain->sentinel_id(0)},
            eleven = {*plain->sentinel_id(11)};
  EXPECT_EQ(words->encode("the <mask> sat"),
            joined({plain->encode("the"), mask, plain->encode("sat")}));
  EXPECT_EQ(words->encode("the c<mask>t"),
            joined({plain->encode("the c"), mask, plain->encode_continuation("t")}));
  EXPECT_EQ(words->encode("<extra_id_0>the cat <extra_id_11><mask>"),
            joined({zero, plain->encode_continuation("the cat"), eleven, mask}));
  EXPECT_EQ(words->encode_continuation("t <mask>"),
            joined({plain->encode_continuation("t"), mask}));
  // What is no such word of this vocabulary stays text.
  for (const char* text :
       {"the cat", "", "<then> sat", "<mask", "<extra_id_12> <extra_id_> <", "<"}) {
    EXPECT_EQ(words->encode(text), plain->encode(text)) << text;
  }
}

TEST(SpecialWords, AreWritten) {
  const auto plain = trained("sentencepiece", true, 2);
  const auto words = with_special_words(plain);
  for (const char* text : {"<extra_id_0> the cat <extra_id_1> sat", "<mask>", "the <mask>",
                           "the c <mask>t sat", "the cat", ""}) {
    EXPECT_EQ(words->decode(words->encode(text)), text);
  }
  // bos and eos have no text, as without special words.
  EXPECT_EQ(words->decode({kBosId, *plain->mask_id(), kEosId}), "<mask>");
}

TEST(SpecialWords, OfCharactersKeepEverySpace) {
  const auto plain = trained("char", true, 2);
  const auto words = with_special_words(plain);
  for (const char* text : {"the <mask> sat", "the<mask>sat", " <extra_id_0>  the <extra_id_1>"}) {
    EXPECT_EQ(words->decode(words->encode(text)), text);
  }
  EXPECT_EQ(words->encode("t<mask>"), (Ids{plain->encode("t")[0], *plain->mask_id()}));
}

TEST(SpecialWords, LeaveTheVocabularyAsItIs) {
  const auto plain = trained("sentencepiece", false, 0);
  const TokenizerPair pair = with_special_words({plain, plain});
  EXPECT_TRUE(pair.shared());
  EXPECT_EQ(pair.source->vocab_size(), plain->vocab_size());
  EXPECT_EQ(pair.source->serialized(), plain->serialized());
  EXPECT_EQ(pair.source->encode("the <mask>"), plain->encode("the <mask>"));
  EXPECT_EQ(pair.source->mask_id(), plain->mask_id());
  EXPECT_FALSE(with_special_words({plain, trained("sentencepiece", false, 0)}).shared());
}

TEST(Marks, PartATextIntoTextsOfTheirOwn) {
  for (const char* type : {"sentencepiece", "bpe", "word", "char"}) {
    SCOPED_TRACE(type);
    const auto plain = trained(type, false, 0, 34);
    const auto marked = with_marks(plain, {{"</s>", kEosId}, {"<then>", 17}});
    const Ids end = {kEosId}, then = {17};
    EXPECT_EQ(marked->encode("the cat</s> sat<then>"),
              joined({plain->encode("the cat"), end, plain->encode(" sat"), then}));
    EXPECT_EQ(marked->encode_continuation("t</s>the"),
              joined({plain->encode_continuation("t"), end, plain->encode("the")}));
    EXPECT_EQ(marked->encode("the cat"), plain->encode("the cat"));
    // Each token lies where it stands.
    const std::string text = "the cat</s>sat";
    Ids ids;
    int64_t end_before = 0;
    for (const PlacedToken& token : marked->encode_with_places(text)) {
      ids.push_back(token.id);
      EXPECT_EQ(token.id == kEosId, token.begin == 7 && token.end == 11);
      EXPECT_TRUE(token.end <= 7 || token.begin >= 7);
      EXPECT_GE(token.begin, end_before);
      end_before = token.end;
    }
    EXPECT_EQ(ids, marked->encode(text));
  }
}

TEST(Marks, EndTexts) {
  const auto plain = trained("char", false, 0);
  const auto marked = with_marks(plain, {{"</s>", kEosId}}, {9, kEosId});
  EXPECT_EQ(marked->special().more_ends, (Ids{9}));
  EXPECT_TRUE(marked->special().has_end(Ids{5, 9}));
  // A text that begins like a document gets no second beginning.
  EXPECT_EQ(marked->special().beginning_of(Ids{kEosId, 5}), (Ids{}));
  EXPECT_EQ(marked->special().beginning_of(Ids{5}), (Ids{kEosId}));
}

}  // namespace
}  // namespace tapestry
