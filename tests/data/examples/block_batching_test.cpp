#include "data/examples/block_batching.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "tests/data/files/files.h"
#include "tests/data/walks.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Ids 100, 101, ...: each id shows its place.
TokenStream counting_stream(int64_t tokens) {
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  std::iota(ids.begin(), ids.end(), 100);
  return TokenStream(ids);
}

BlockOptions block_options(int64_t block_size, int64_t batch_size, bool shuffle) {
  return {block_size, batch_size, shuffle, 1};
}

std::vector<int32_t> values_of(const BlockBatch& batch) {
  auto values = batch.ids.to_vector<int32_t>();
  const auto targets = batch.targets.to_vector<int32_t>();
  values.insert(values.end(), targets.begin(), targets.end());
  return values;
}

template <class Batches>
std::vector<BlockBatch> epoch_of(Batches& batches) {
  std::vector<BlockBatch> all;
  do {
    all.push_back(batches.next());
  } while (batches.position().batch < batches.batches_in_epoch());
  return all;
}

TEST(Blocks, HaveTheTensorsOfAWorkedExample) {
  BlockBatches batches(counting_stream(9), block_options(3, 2, false));
  EXPECT_EQ(batches.batches_in_epoch(), 2);
  const auto first = batches.next(), second = batches.next();
  EXPECT_EQ(first.ids.shape(), (Shape{2, 3}));
  EXPECT_THAT(first.ids.to_vector<int32_t>(), ElementsAre(100, 101, 102, 103, 104, 105));
  EXPECT_THAT(first.targets.to_vector<int32_t>(), ElementsAre(101, 102, 103, 104, 105, 106));
  EXPECT_FALSE(first.lengths.defined());
  EXPECT_EQ(first.rows, 2);
  EXPECT_EQ(first.tokens, 6);
  EXPECT_EQ(second.ids.shape(), (Shape{1, 3}));
  EXPECT_THAT(second.ids.to_vector<int32_t>(), ElementsAre(106, 107, kPadId));
  EXPECT_THAT(second.targets.to_vector<int32_t>(), ElementsAre(107, 108, kNoTarget));
  EXPECT_THAT(second.lengths.to_vector<int32_t>(), ElementsAre(2));
  EXPECT_EQ(second.tokens, 2);
}

TEST(Blocks, UnshuffledPredictEveryTokenButTheFirstOnce) {
  for (const int64_t tokens : {2, 3, 16, 17, 18, 1000, 1001}) {
    BlockBatches batches(counting_stream(tokens), block_options(16, 5, false));
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::vector<int32_t> targets;
      int64_t counted = 0;
      for (const BlockBatch& batch : epoch_of(batches)) {
        for (const int32_t id : batch.targets.to_vector<int32_t>()) {
          if (id != kNoTarget) targets.push_back(id);
        }
        counted += batch.tokens;
      }
      std::vector<int32_t> expected(static_cast<size_t>(tokens - 1));
      std::iota(expected.begin(), expected.end(), 101);
      EXPECT_EQ(targets, expected);
      EXPECT_EQ(counted, tokens - 1);
    }
  }
}

// Each target comes once, and after the first block with at least block_size - stride tokens
// before.
TEST(Blocks, WithAStridePredictEveryTokenOnceWithMoreBefore) {
  for (const int64_t stride : {1, 2, 5, 7, 16}) {
    for (const int64_t tokens : {2, 3, 16, 17, 18, 19, 100, 101}) {
      BlockOptions options = block_options(16, 3, false);
      options.stride = stride;
      BlockBatches batches(counting_stream(tokens), options);
      std::vector<int32_t> targets;
      for (const BlockBatch& batch : epoch_of(batches)) {
        const auto ids = batch.ids.to_vector<int32_t>();
        const auto next = batch.targets.to_vector<int32_t>();
        for (size_t i = 0; i < next.size(); ++i) {
          if (next[i] == kNoTarget) continue;
          EXPECT_EQ(next[i], ids[i] + 1);
          if (next[i] > 116) {
            EXPECT_GE(static_cast<int64_t>(i % 16), 16 - stride);
          }
          targets.push_back(next[i]);
        }
      }
      std::vector<int32_t> all(static_cast<size_t>(tokens) - 1);
      std::iota(all.begin(), all.end(), 101);
      EXPECT_EQ(targets, all) << stride << ' ' << tokens;
    }
  }
  // A training cuts as ever.
  BlockOptions shuffled = block_options(16, 3, true);
  const auto plain = BlockBatches(counting_stream(100), shuffled).next();
  shuffled.stride = 4;
  EXPECT_EQ(values_of(BlockBatches(counting_stream(100), shuffled).next()), values_of(plain));
}

TEST(Blocks, ShuffledAreWholeAndCutAnewInEveryEpoch) {
  constexpr int64_t kTokens = 1000, kWidth = 16;
  BlockBatches batches(counting_stream(kTokens), block_options(kWidth, 8, true));
  std::set<int32_t> offsets;
  std::vector<std::vector<int32_t>> orders;
  for (int epoch = 0; epoch < 60; ++epoch) {
    std::vector<int32_t> starts;
    for (const BlockBatch& batch : epoch_of(batches)) {
      EXPECT_FALSE(batch.lengths.defined());
      EXPECT_EQ(batch.tokens, batch.rows * kWidth);
      const auto ids = batch.ids.to_vector<int32_t>();
      const auto targets = batch.targets.to_vector<int32_t>();
      for (size_t i = 0; i < ids.size(); ++i) {
        EXPECT_EQ(targets[i], ids[i] + 1);
        EXPECT_EQ(ids[i], ids[i / kWidth * kWidth] + static_cast<int32_t>(i % kWidth));
      }
      for (size_t i = 0; i < ids.size(); i += kWidth) starts.push_back(ids[i] - 100);
    }
    const int32_t offset = *std::min_element(starts.begin(), starts.end());
    EXPECT_LT(offset, kWidth);
    offsets.insert(offset);
    EXPECT_EQ(static_cast<int64_t>(starts.size()), (kTokens - 1 - offset) / kWidth);
    EXPECT_EQ(std::set<int32_t>(starts.begin(), starts.end()).size(), starts.size());
    for (const int32_t start : starts) EXPECT_EQ(start % kWidth, offset % kWidth);
    EXPECT_FALSE(std::is_sorted(starts.begin(), starts.end()));
    orders.push_back(starts);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_GT(offsets.size(), 12u);  // 60 draws of 16 values
}

// Three corpora, each a document: ids 100, 101, ... of 400 tokens, of 200, of 35.
TokenStream stream_of_three() {
  TableBuilder table(1);
  int32_t next = 100;
  for (const size_t tokens : {400, 200, 35}) {
    std::vector<int32_t> ids(tokens);
    std::iota(ids.begin(), ids.end(), next);
    next += static_cast<int32_t>(tokens);
    table.add({ids});
  }
  return TokenStream(table.finish({.counts = {}, .parts = {1, 1, 1}, .numbers = {}, .texts = {}}),
                     {});
}

TEST(Blocks, WithWeightsKeepTheSharesAndStayInTheirCorpus) {
  constexpr int64_t kWidth = 16;
  BlockOptions options = block_options(kWidth, 7, true);
  options.mix.weights = {1, 1, 2};
  // At any offset 24, 11 and 1 blocks fit into 399, 199 and 34 places: 36 in an epoch.
  BlockBatches batches(stream_of_three(), options);
  std::map<size_t, int64_t> of_corpus;
  std::set<int32_t> starts_of_third;
  for (int epoch = 0; epoch < 40; ++epoch) {
    int64_t blocks = 0;
    for (const BlockBatch& batch : epoch_of(batches)) {
      EXPECT_FALSE(batch.lengths.defined());
      const auto ids = batch.ids.to_vector<int32_t>();
      const auto targets = batch.targets.to_vector<int32_t>();
      for (size_t i = 0; i < ids.size(); i += kWidth) {
        const auto corpus_of = [](int32_t id) { return id < 500 ? 0U : id < 700 ? 1U : 2U; };
        EXPECT_EQ(corpus_of(ids[i]), corpus_of(targets[i + kWidth - 1]));
        EXPECT_EQ(targets[i + kWidth - 1], ids[i] + kWidth);
        ++of_corpus[corpus_of(ids[i])];
        if (ids[i] >= 700) starts_of_third.insert(ids[i]);
        ++blocks;
      }
    }
    EXPECT_EQ(blocks, 36);
  }
  EXPECT_EQ(of_corpus[0], 360);
  EXPECT_EQ(of_corpus[1], 360);
  EXPECT_EQ(of_corpus[2], 720);
  EXPECT_EQ(starts_of_third.size(), 16U);  // each pass begins at a place of its own
}

TEST(Blocks, WithWeightsContinueExactly) {
  BlockOptions options = block_options(16, 7, true);
  options.mix.weights = {3, 1, 1};
  expect_resumes(
      [&](DataPosition start) { return BlockBatches(stream_of_three(), options, start); },
      values_of);
  const auto tokenizer = character_tokenizer("abc");
  expect_resumes(
      [&](DataPosition start) {
        return MaskedBlockBatches(stream_of_three(), *tokenizer, options, {}, start);
      },
      values_of);
}

TEST(Blocks, WithWeightsNeedRoomInEachCorpus) {
  BlockOptions options = block_options(64, 4, true);
  options.mix.temperature = 5;
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { BlockBatches(stream_of_three(), options); }),
              HasSubstr("a text to cut into blocks must have at least 65 tokens, got 35."));
}

TEST(Blocks, DependOnTheSeed) {
  auto options = block_options(16, 8, true);
  BlockBatches one(counting_stream(1000), options);
  options.seed = 2;
  BlockBatches two(counting_stream(1000), options);
  EXPECT_NE(values_of(one.next()), values_of(two.next()));
}

TEST(Blocks, OfAShortStreamAreWholeToo) {
  for (int64_t tokens = 17; tokens < 40; ++tokens) {
    BlockBatches batches(counting_stream(tokens), block_options(16, 8, true));
    for (int i = 0; i < 10; ++i) EXPECT_GE(batches.next().rows, 1);
  }
  EXPECT_THAT(error_of(ErrorKind::kData,
                       [] { BlockBatches(counting_stream(16), block_options(16, 8, true)); }),
              HasSubstr("must have at least 17 tokens, got 16."));
  EXPECT_THAT(error_of(ErrorKind::kData,
                       [] { BlockBatches(counting_stream(1), block_options(16, 8, false)); }),
              HasSubstr("must have at least 2 tokens, got 1."));
}

TEST(Blocks, AStrideIsNoLongerThanABlock) {
  BlockOptions options = block_options(16, 3, false);
  options.stride = 17;
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { options.validate(); }),
              HasSubstr("stride must be in [0, block_size], got 17."));
}

TEST(Blocks, ContinueExactlyFromEveryPosition) {
  for (const bool shuffle : {true, false}) {
    expect_resumes(
        [&](DataPosition start) {
          return BlockBatches(counting_stream(300), block_options(16, 3, shuffle), start);
        },
        values_of);
  }
  EXPECT_THAT(error_of(ErrorKind::kData,
                       [] {
                         BlockBatches(counting_stream(300), block_options(16, 3, true), {0, 99});
                       }),
              HasSubstr("the saved position is batch 99"));
}

TEST(Blocks, OptionsAreChecked) {
  const auto message = [](BlockOptions options) {
    return error_of(ErrorKind::kConfig, [&] { BlockBatches(counting_stream(9), options); });
  };
  EXPECT_THAT(message(block_options(0, 1, false)), HasSubstr("block_size must be in [1"));
  EXPECT_THAT(message(block_options(1, 0, false)),
              HasSubstr("batch_size must be at least 1, got 0."));
}

class MaskedBlocks : public testing::Test {
 protected:
  MaskedBlocks() : tokenizer_(character_tokenizer("abcdefghijklmnopqrstuvwxyz")) {
    std::vector<int32_t> ids;
    for (int i = 0; i < 1003; ++i) {
      ids.push_back(i % 50 == 49 ? kEosId : first_ + static_cast<int32_t>(i % 26));
    }
    stream_ = TokenStream(ids);
  }
  MaskedBlockBatches batches(bool shuffle, DataPosition start = {}) {
    return {stream_, *tokenizer_, block_options(32, 4, shuffle), {}, start};
  }
  // The stream of an epoch's batches: rows in the order of the batches, unmasked.
  std::vector<int32_t> original(const std::vector<BlockBatch>& epoch) {
    std::vector<int32_t> out;
    for (const BlockBatch& batch : epoch) {
      const auto ids = batch.ids.to_vector<int32_t>(), targets = batch.targets.to_vector<int32_t>();
      for (size_t i = 0; i < ids.size(); ++i) {
        if (i % 32 == 0) {
          EXPECT_EQ(ids[i], kBosId);
          EXPECT_EQ(targets[i], kNoTarget);
        } else if (ids[i] != kPadId) {
          out.push_back(targets[i] != kNoTarget ? targets[i] : ids[i]);
        }
      }
    }
    return out;
  }

  static constexpr int32_t first_ = 4 + 1 + 10;
  std::shared_ptr<const Tokenizer> tokenizer_;
  TokenStream stream_;
};

TEST_F(MaskedBlocks, UnshuffledHoldTheWholeStream) {
  auto walk = batches(false);
  const auto epoch = epoch_of(walk);
  EXPECT_EQ(original(epoch),
            std::vector<int32_t>(stream_.tokens().begin(), stream_.tokens().end()));
  for (const BlockBatch& batch : epoch) {
    const auto targets = batch.targets.to_vector<int32_t>();
    EXPECT_EQ(batch.tokens, static_cast<int64_t>(targets.size()) -
                                std::count(targets.begin(), targets.end(), kNoTarget));
    EXPECT_GE(batch.tokens, batch.rows);  // no row without a target
  }
  const auto lengths = epoch.back().lengths.to_vector<int32_t>();
  EXPECT_EQ(lengths.back(), 1003 % 31 + 1);
  EXPECT_FALSE(epoch.front().lengths.defined());
}

TEST_F(MaskedBlocks, MasksAreNewInEveryShuffledEpochOnly) {
  auto still = batches(false);
  const auto first = epoch_of(still), second = epoch_of(still);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(values_of(first[i]), values_of(second[i]));

  // The masks of one text differ: the share of tokens hidden in both epochs is as expected by
  // chance.
  auto moving = batches(true);
  std::set<std::vector<int32_t>> seen;
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const BlockBatch& batch : epoch_of(moving)) {
      EXPECT_TRUE(seen.insert(values_of(batch)).second);
    }
  }
}

TEST_F(MaskedBlocks, ContinueExactlyFromEveryPosition) {
  for (const bool shuffle : {true, false}) {
    expect_resumes([&](DataPosition start) { return batches(shuffle, start); }, values_of);
  }
}

TEST_F(MaskedBlocks, OptionsAreChecked) {
  EXPECT_THAT(
      error_of(ErrorKind::kConfig,
               [&] { MaskedBlockBatches(stream_, *tokenizer_, block_options(1, 1, true), {}); }),
      HasSubstr("room for bos and a token, got 1."));
  EXPECT_THAT(
      error_of(ErrorKind::kConfig,
               [&] { MaskedBlockBatches(stream_, *character_tokenizer("a", false), {}, {}); }),
      HasSubstr("with the piece <mask>, got one without."));
}

}  // namespace
}  // namespace tapestry
