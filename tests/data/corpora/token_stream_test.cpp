#include "data/corpora/token_stream.h"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/data/files/files.h"
#include "tests/data/tokenizers/word_tokenizer.h"
#include "tests/data/walks.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int32_t> ids_of(const TokenStream& stream) {
  return {stream.tokens().begin(), stream.tokens().end()};
}

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Stream : public testing::Test {
 protected:
  CorpusSpec spec(const std::string& name, const std::string& bytes,
                  const std::string& documents = "lines") {
    CorpusSpec spec;
    spec.text = folder_.write(name, bytes);
    spec.documents = documents;
    return spec;
  }
  TokenStream load(const std::vector<CorpusSpec>& specs) {
    return load_token_stream(specs, words_, {.cache = cache_});
  }
  TempFolder folder_;
  WordTokenizer words_;
  std::string cache_;
};

TEST_F(Stream, JoinsDocumentsByEos) {
  const auto stream = load({spec("a", "x yy\n\nzzz ä\n"), spec("b", "x\n")});
  EXPECT_THAT(ids_of(stream), ElementsAre(5, 6, 3, 7, 6, 3, 5));
  EXPECT_EQ(stream.size(), 7);
  EXPECT_EQ(stream.documents(), 3);
  EXPECT_EQ(stream.characters(), 4 + 5 + 1);  // ä is one
  EXPECT_EQ(stream.counts().kept, 3);
  EXPECT_EQ(stream.counts().of(Drop::kEmpty), 1);
  EXPECT_FALSE(stream.from_cache());
}

TEST_F(Stream, AFileHasNoEosAndIsReadWhole) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "line ä " + std::to_string(i) + "\n";
  const auto characters = character_tokenizer(text);
  const auto stream = load_token_stream({spec("a", text, "file")}, *characters);
  EXPECT_EQ(characters->decode(ids_of(stream)), text);
  EXPECT_THAT(ids_of(stream), testing::Not(testing::Contains(kEosId)));
  EXPECT_EQ(stream.characters(), stream.size());
}

TEST_F(Stream, NothingLeftIsAnError) {
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { load({spec("a", " \n")}); }),
              HasSubstr("1 read, 0 kept; dropped: 1 empty"));
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { load({}); }), HasSubstr("got none"));
}

class Cache : public Stream {
 protected:
  Cache() { cache_ = folder_.path("deep/folder/tokens.bin"); }
};

TEST_F(Cache, IsMadeOnceAndThenTaken) {
  const std::vector<CorpusSpec> specs = {spec("a", "x yy\n\nzzz ä\n"), spec("b", "x\n")};
  const auto made = load(specs);
  EXPECT_FALSE(made.from_cache());
  const auto taken = load(specs);
  EXPECT_TRUE(taken.from_cache());
  for (const TokenStream& stream : {made, taken}) {
    EXPECT_THAT(ids_of(stream), ElementsAre(5, 6, 3, 7, 6, 3, 5));
    EXPECT_EQ(stream.documents(), 3);
    EXPECT_EQ(stream.characters(), 10);
    EXPECT_EQ(stream.counts().summary(), load_token_stream(specs, words_).counts().summary());
  }
  // Only the file itself is left.
  const auto folder = std::filesystem::path(cache_).parent_path();
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST_F(Cache, OutlivesItsFileAndTheStreamItCameFrom) {
  TokenStream copy;
  {
    const auto stream = load({spec("a", "x yy\n")});
    copy = stream;
  }
  std::filesystem::remove(cache_);
  EXPECT_THAT(ids_of(copy), ElementsAre(5, 6));
}

TEST_F(Cache, IsMadeAnewWhenTheTextChanges) {
  load({spec("a", "x yy\n")});
  const auto changed = load({spec("a", "x zzz\n")});
  EXPECT_FALSE(changed.from_cache());
  EXPECT_THAT(ids_of(changed), ElementsAre(5, 7));
  EXPECT_TRUE(load({spec("a", "x zzz\n")}).from_cache());
  // The same bytes, split into files in another way, are another text.
  EXPECT_FALSE(load({spec("a", "x\n"), spec("b", "zzz\n")}).from_cache());
}

TEST_F(Cache, IsMadeAnewWhenTheTokenizerChanges) {
  const auto text = spec("a", "abc\n");
  const auto with = [&](const std::string& characters) {
    return load_token_stream({text}, *character_tokenizer(characters, false, 0), {.cache = cache_});
  };
  EXPECT_THAT(ids_of(with("abc")), ElementsAre(4, 5, 6));
  const auto other = with("abcA");
  EXPECT_FALSE(other.from_cache());
  EXPECT_THAT(ids_of(other), ElementsAre(5, 6, 7));
}

TEST_F(Cache, IsMadeAnewWhenTheSpecChanges) {
  auto text = spec("a", "x yy\nzzz\n", "file");
  std::vector<CorpusSpec> variants;
  variants.push_back(text);
  text.range_end = 0.5;
  variants.push_back(text);
  text.range_end = std::nextafter(0.5, 0);
  variants.push_back(text);
  text.range_end = 1;
  for (const char* const documents : {"lines", "paragraphs", "fortunes"}) {
    text.documents = documents;
    variants.push_back(text);
  }
  text.limit = 1;
  variants.push_back(text);
  for (const CorpusSpec& variant : variants) {
    EXPECT_FALSE(load({variant}).from_cache());
    EXPECT_TRUE(load({variant}).from_cache());
  }
}

TEST_F(Cache, IsMadeAnewWhenAnyByteIsDamaged) {
  const auto text = spec("a", "x yy\n\nzzz\n");
  load({text});
  const std::string good = read_bytes(cache_);
  const auto expect_rebuilt = [&](const std::string& bytes, const std::string& what) {
    std::ofstream(cache_, std::ios::binary) << bytes;
    const auto stream = load({text});
    EXPECT_FALSE(stream.from_cache()) << what;
    EXPECT_THAT(ids_of(stream), ElementsAre(5, 6, 3, 7));
    EXPECT_EQ(read_bytes(cache_), good);
  };
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    expect_rebuilt(bad, "byte " + std::to_string(i));
  }
  expect_rebuilt("", "empty");
  expect_rebuilt(good.substr(0, 63), "header cut");
  expect_rebuilt(good.substr(0, good.size() - 1), "ids cut");
  expect_rebuilt(good + "x", "longer");
}

TEST_F(Cache, ThatCannotBeWrittenIsAWarning) {
  const auto text = spec("a", "x yy\n");
  for (const std::string& path : {folder_.write("file", "x") + "/tokens.bin", folder_.path("")}) {
    std::string warning;
    const auto stream = load_token_stream(
        {text}, words_, {.cache = path, .warn = [&](const std::string& what) { warning += what; }});
    EXPECT_THAT(ids_of(stream), ElementsAre(5, 6));
    EXPECT_THAT(warning, testing::MatchesRegex("the encoded data cannot be kept \\(.* cannot be "
                                               "created: .*\\): it stays in memory, .*"));
  }
  CorpusSpec missing;
  missing.text = folder_.path("no");
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { load({missing}); }),
              HasSubstr("no cannot be opened: "));
}

}  // namespace
}  // namespace tapestry
