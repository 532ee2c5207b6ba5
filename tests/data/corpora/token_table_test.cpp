// What is kept of encoded corpora: the same rows again, whatever happened to the file.
#include "data/corpora/token_table.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/base/progress.h"
#include "core/cpu/parallel.h"
#include "data/corpora/encode_corpus.h"
#include "data/examples/labelled.h"
#include "data/examples/prompts.h"
#include "data/examples/questions.h"
#include "data/files/mapped_file.h"
#include "tests/data/files/files.h"
#include "tests/data/tokenizers/word_tokenizer.h"
#include "tests/data/walks.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::vector<int32_t>> rows_of(const TokenLists& lists) {
  std::vector<std::vector<int32_t>> rows;
  for (int64_t i = 0; i < lists.size(); ++i) rows.emplace_back(lists[i].begin(), lists[i].end());
  return rows;
}

TEST(TextIds, GiveEveryTextBack) {
  for (size_t length = 0; length < 10; ++length) {
    const std::string text = std::string("a\0b\x04\x01xyzw\x01", 10).substr(0, length);
    EXPECT_EQ(text_of_ids(ids_of_text(text)), text) << length;
  }
}

class Tables : public testing::Test {
 protected:
  Tables() {
    spec_.source = folder_.write("a.en", "x yy\n\nzzz x\nx x x\n");
    spec_.target = folder_.write("a.de", "yy\nx\nx\nzzz zzz\n");
  }
  ParallelCorpus load(bool text = false) {
    CorpusOptions options;
    options.keep_text = text;
    LoadContext context{.cache = cache_, .cache_is_shared = shared_};
    context.warn = [this](const std::string& what) { warnings_ += what + "\n"; };
    return load_parallel({spec_}, {words_, words_}, options, context);
  }
  static void expect_right(const ParallelCorpus& corpus) {
    EXPECT_THAT(rows_of(corpus.source),
                ElementsAre(ElementsAre(5, 6), ElementsAre(7, 5), ElementsAre(5, 5, 5)));
    EXPECT_THAT(rows_of(corpus.target),
                ElementsAre(ElementsAre(6), ElementsAre(5), ElementsAre(7, 7)));
    EXPECT_EQ(corpus.counts.summary().substr(0, 38), "4 read, 3 kept; dropped: 1 empty (firs");
    EXPECT_THAT(corpus.parts, ElementsAre(3));
  }
  std::vector<std::string> files_in(const std::string& name) const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path(name))) {
      files.push_back(entry.path().filename().string());
    }
    return files;
  }

  TempFolder folder_;
  std::shared_ptr<const WordTokenizer> words_ = std::make_shared<WordTokenizer>();
  CorpusSpec spec_;
  std::string cache_ = folder_.path("run/tokens-train.bin");
  bool shared_ = false;
  std::string warnings_;
};

TEST_F(Tables, OfPairsAreMadeOnceAndThenMapped) {
  const ParallelCorpus made = load();
  expect_right(made);
  EXPECT_FALSE(made.from_cache);
  const ParallelCorpus again = load();
  expect_right(again);
  EXPECT_TRUE(again.from_cache);
  EXPECT_THAT(files_in("run"), ElementsAre("tokens-train.bin"));
  const ParallelCorpus with_text = load(/*text=*/true);
  EXPECT_FALSE(with_text.from_cache);
  EXPECT_TRUE(load(/*text=*/true).from_cache);
  EXPECT_THAT(load(/*text=*/true).source_text.to_strings(), ElementsAre("x yy", "zzz x", "x x x"));
  EXPECT_THAT(load(/*text=*/true).target_text.to_strings(), ElementsAre("yy", "x", "zzz zzz"));
}

TEST_F(Tables, DoNotOutliveAChangeOfTheFiles) {
  load();
  folder_.write("a.de", "yy\nx\nx\nzzz xxx\n");  // of the same size, within the same second
  const ParallelCorpus changed = load();
  EXPECT_FALSE(changed.from_cache);
  EXPECT_THAT(rows_of(changed.target).back(), ElementsAre(7, 7));
  folder_.write("a.de", "yy\nx\nx\nzzz yy\n");
  EXPECT_THAT(rows_of(load().target).back(), ElementsAre(7, 6));
}

TEST_F(Tables, ThatAreDamagedOrForeignAreMadeAgain) {
  load();
  std::ifstream in(cache_, std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::string> bad = {"",
                                  "x",
                                  good.substr(0, 64),
                                  good.substr(0, good.size() / 2),
                                  good + "x",
                                  std::string(good.size(), '\0')};
  for (size_t i = 0; i < good.size(); i += 7) {
    bad.push_back(good);
    bad.back()[i] = static_cast<char>(bad.back()[i] ^ 1);
  }
  for (const std::string& bytes : bad) {
    std::ofstream(cache_, std::ios::binary | std::ios::trunc) << bytes;
    const ParallelCorpus again = load();
    EXPECT_FALSE(again.from_cache);
    expect_right(again);
  }
  EXPECT_TRUE(load().from_cache);
  EXPECT_EQ(warnings_, "");
}

// Such a file was written by somebody: no damage of a disk makes new checksums.
TEST_F(Tables, ThatMakeNoSenseAreMadeAgainWhateverTheirChecksum) {
  load();
  std::ifstream in(cache_, std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  constexpr size_t kHeader = 64, kSums = kHeader - 16, kWord = 8;
  const auto put = [](std::string& bytes, size_t at, uint64_t value) {
    std::memcpy(bytes.data() + at, &value, sizeof value);
  };
  int refused = 0;
  for (size_t at = kHeader; at + 2 * kWord <= good.size(); at += kWord) {
    for (const uint64_t value : {uint64_t{1} << 62, ~uint64_t{0}}) {
      std::string bytes = good;
      put(bytes, at, value);
      const size_t end = bytes.size() - kWord;  // the checksum of the only block
      put(bytes, end, XXH3_64bits(bytes.data() + kHeader, end - kHeader));
      put(bytes, kSums, XXH3_64bits(bytes.data() + end, kWord));
      put(bytes, kSums + kWord, XXH3_64bits(bytes.data(), kSums + kWord));
      std::ofstream(cache_, std::ios::binary | std::ios::trunc) << bytes;
      refused += load().from_cache ? 0 : 1;
    }
  }
  EXPECT_GE(refused, 14);  // but ids and counts may be anything
}

// Each of them would end in memory that is not the table's, or in an embedding that is not there.
TEST_F(Tables, OfOtherIdsThanTheVocabularyHasAreMadeAgain) {
  load(/*text=*/true);
  std::ifstream in(cache_, std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  constexpr size_t kHeader = 64, kSums = kHeader - 16, kWord = 8;
  int refused = 0, taken = 0;
  const auto ids = static_cast<int64_t>(good.size()) / 4;
  int64_t all = 0;
  std::memcpy(&all, good.data() + 32, sizeof all);  // the header's number of ids
  ASSERT_LT(all, ids);
  for (int64_t i = 0; i < all; ++i) {
    for (const int32_t value : {-1, 1000000, 5}) {
      std::string bytes = good;
      std::memcpy(bytes.data() + kHeader + static_cast<size_t>(4 * i), &value, sizeof value);
      const size_t end = bytes.size() - kWord;
      const auto put = [&bytes](size_t at, uint64_t sum) {
        std::memcpy(bytes.data() + at, &sum, sizeof sum);
      };
      put(end, XXH3_64bits(bytes.data() + kHeader, end - kHeader));
      put(kSums, XXH3_64bits(bytes.data() + end, kWord));
      put(kSums + kWord, XXH3_64bits(bytes.data(), kSums + kWord));
      std::ofstream(cache_, std::ios::binary | std::ios::trunc) << bytes;
      const ParallelCorpus corpus = load(/*text=*/true);
      ++(corpus.from_cache ? taken : refused);
      for (int64_t row = 0; row < corpus.size(); ++row) {
        for (const auto& list : {corpus.source[row], corpus.target[row]}) {
          for (const int32_t id : list) ASSERT_LT(static_cast<uint32_t>(id), 8u);
        }
        ASSERT_LE(corpus.source_text[row].size(), 20u);
      }
    }
  }
  EXPECT_EQ(refused, 2 * 11);  // the ids of both sides at two values; texts are what they are
  EXPECT_EQ(taken, 3 * all - refused);
}

TEST_F(Tables, InASharedFolderHaveTheirKeysForNames) {
  cache_ = folder_.path("shared");
  shared_ = true;
  load();
  load(/*text=*/true);
  EXPECT_EQ(files_in("shared").size(), 2U);
  EXPECT_TRUE(load().from_cache);
  EXPECT_TRUE(load(/*text=*/true).from_cache);
  spec_.limit = 2;
  EXPECT_FALSE(load().from_cache);
  EXPECT_EQ(files_in("shared").size(), 3U);
  spec_.weight = 3;  // changes how often a row comes, not what it is
  EXPECT_TRUE(load().from_cache);
}

TEST_F(Tables, AreWrittenByManyAtOnce) {
  cache_ = folder_.path("shared");
  shared_ = true;
  for (int round = 0; round < 5; ++round) {
    std::filesystem::remove_all(cache_);
    std::vector<std::thread> writers;
    for (int i = 0; i < 4; ++i) {
      writers.emplace_back([&] {
        expect_right(load_parallel({spec_}, {words_, words_}, {},
                                   {.cache = cache_,
                                    .cache_is_shared = true,
                                    .warn = [](const std::string& what) { FAIL() << what; }}));
      });
    }
    for (std::thread& writer : writers) writer.join();
    EXPECT_EQ(files_in("shared").size(), 1U);
    EXPECT_TRUE(load().from_cache);
  }
}

TEST_F(Tables, LeaveTheFileOfAWriterThatLivesAndRemoveThatOfADeadOne) {
  std::filesystem::create_directories(folder_.path("run"));
  const std::string lives = folder_.write("run/tokens-train.bin.tmp-1-0", "");
  folder_.write("run/tokens-train.bin.tmp-2-0", "of a process that was killed");
  const int file = open(lives.c_str(), O_RDONLY);
  ASSERT_EQ(flock(file, LOCK_EX | LOCK_NB), 0);
  load();
  close(file);
  EXPECT_THAT(files_in("run"),
              testing::UnorderedElementsAre("tokens-train.bin", "tokens-train.bin.tmp-1-0"));
}

TEST_F(Tables, WithoutRoomOnTheDiskStayInMemory) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit tiny{100, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tiny);
  const ParallelCorpus corpus = load();
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_DFL);
  expect_right(corpus);
  EXPECT_THAT(warnings_,
              testing::MatchesRegex("the encoded data cannot be kept \\(.*: File too large\\): it "
                                    "stays in memory, and the next start encodes it again\n"));
  EXPECT_THAT(files_in("run"), testing::IsEmpty());
  EXPECT_FALSE(load().from_cache);
}

TEST_F(Tables, AreTheSameOnAnyNumberOfThreads) {
  std::string text;
  for (int i = 0; i < 50000; ++i) text += i % 7 == 0 ? "x\n" : i % 3 == 0 ? "yy zzz x\n" : "zzz\n";
  spec_.source = spec_.target = folder_.write("many", text);
  const auto bytes_of = [&](int threads) {
    set_num_threads(threads);
    std::filesystem::remove(cache_);
    load();
    std::ifstream in(cache_, std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  const std::string one = bytes_of(1);
  EXPECT_EQ(one, bytes_of(2));
  EXPECT_EQ(one, bytes_of(5));
  set_num_threads(0);
}

TEST_F(Tables, TellHowFarTheReadingIs) {
  const auto percent = [] { return ProgressNow::look()->done; };
  spec_.source = folder_.write("half", std::string(100, 'x'));
  spec_.target = folder_.write("other half", std::string(100, 'x'));
  {
    ProgressMeter meter({spec_});
    EXPECT_EQ(ProgressNow::look()->what, "reading half and others");
    meter.tell(7, 50);
    EXPECT_EQ(percent(), 25);
    meter.tell(14, 1000);  // the files grow meanwhile
    EXPECT_EQ(percent(), 100);
  }
  spec_.limit = 20;  // less than half of the files will be read
  ProgressMeter meter({spec_});
  meter.tell(10, 50);
  EXPECT_EQ(percent(), 50);
}

TEST_F(Tables, OfLabelledTextsKeepTheirClasses) {
  CorpusSpec spec;
  spec.records = {folder_.write("labelled", "b\tx\na\tyy x\nb\tzzz\n"), &kTsv};
  spec.label_column = "1";
  spec.text_column = "2";
  const auto load = [&](const std::vector<std::string>& names = {}) {
    return load_labelled({spec}, *words_, {}, names, {.cache = cache_});
  };
  for (const bool cached : {false, true}) {
    const LabelledCorpus corpus = load();
    EXPECT_EQ(corpus.from_cache, cached);
    EXPECT_THAT(rows_of(corpus.tokens),
                ElementsAre(ElementsAre(5), ElementsAre(6, 5), ElementsAre(7)));
    EXPECT_THAT((std::vector{corpus.label(0), corpus.label(1), corpus.label(2)}),
                ElementsAre(1, 0, 1));
  }
  EXPECT_EQ(load({"b", "c", "a"}).label(1), 2);
  EXPECT_THAT(error_of(ErrorKind::kData,
                       [&] {
                         load({"b", "c"});
                       }),
              HasSubstr("labelled:2 must have one of the labels b, c, got 'a'."));
}

TEST_F(Tables, OfPromptsKeepTheirAnswers) {
  CorpusSpec spec;
  spec.records = {folder_.write("prompts", "x\tyy\nzzz\tx x\n"), &kTsv};
  spec.prompt = "{1}";
  spec.answer = " {2}";
  CorpusOptions options;
  options.keep_text = true;
  for (const bool cached : {false, true}) {
    const PromptCorpus corpus = load_prompts({spec}, *words_, options, {.cache = cache_});
    EXPECT_EQ(corpus.from_cache, cached);
    EXPECT_THAT(rows_of(corpus.prompts), ElementsAre(ElementsAre(5), ElementsAre(7)));
    EXPECT_THAT(rows_of(corpus.answers), ElementsAre(ElementsAre(6), ElementsAre(5, 5)));
    EXPECT_THAT(corpus.answer_text.to_strings(), ElementsAre(" yy", " x x"));
  }
}

TEST_F(Tables, KeepTokenizersToo) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "the cat sat on the mat\na dog ate the bone\n";
  spec_.source = spec_.target = folder_.write("text", text);
  TokenizerOptions options;
  options.vocab_size = 40;
  for (const bool share : {true, false}) {
    options.share = share;
    const LoadContext context{.cache = cache_};
    const TokenizerPair made = train_tokenizers(options, {spec_}, 1, context);
    const auto written = std::filesystem::last_write_time(cache_);
    const TokenizerPair again = train_tokenizers(options, {spec_}, 1, context);
    EXPECT_EQ(std::filesystem::last_write_time(cache_), written);
    EXPECT_EQ(again.shared(), share);
    EXPECT_EQ(again.source->serialized(), made.source->serialized());
    EXPECT_EQ(again.target->serialized(), made.target->serialized());
  }
  train_tokenizers(options, {spec_}, 1, {.cache = cache_});
  const auto written = std::filesystem::last_write_time(cache_);
  options.vocab_size = 41;
  EXPECT_EQ(train_tokenizers(options, {spec_}, 1, {.cache = cache_}).source->vocab_size(), 41);
  EXPECT_NE(std::filesystem::last_write_time(cache_), written);
}

// A signal handler asks.
TEST(MappedFiles, AreKnownByTheirAddresses) {
  const TempFolder folder;
  const std::string path = folder.write("mapped", std::string(10000, 'x'));
  const int file = ::open(path.c_str(), O_RDONLY);
  ASSERT_GE(file, 0);
  const char* begin = nullptr;
  {
    const MappedFile mapped(file, 10000, path);
    begin = mapped.data();
    ASSERT_NE(begin, nullptr);
    EXPECT_STREQ(mapped_file_of(begin), path.c_str());
    EXPECT_STREQ(mapped_file_of(begin + 9999), path.c_str());
    EXPECT_EQ(mapped_file_of(begin + 10000), nullptr);
    mapped.release(begin + 100, begin + 9000);
    EXPECT_EQ(begin[500], 'x');
  }
  EXPECT_EQ(mapped_file_of(begin), nullptr);
  ::close(file);
}

}  // namespace
}  // namespace tapestry
