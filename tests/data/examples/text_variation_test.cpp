// Batches of pairs whose texts vary: within their limits, the same for the same epoch and row.
#include "data/corpora/text_variation.h"

#include <gmock/gmock.h>

#include "core/base/draws.h"
#include "data/batches/batching.h"

namespace tapestry {
namespace {

constexpr const char* kMergesFile =
    "tapestry bpe 1\nnormalization identity\nbyte_fallback false\nmask false\nsentinels 0\n"
    "characters 4\nU+0061\nU+0062\nU+0063\nU+2581\n"
    "merges 4\n\u2581 a\n\u2581a b\n\u2581ab c\na b\n";

// Pairs of 1 to 6 words "abc" and of half as many, in one token each.
struct VariedPairs {
  explicit VariedPairs(const VariationOptions& options, int64_t most = 100) {
    const auto tokenizer = load_tokenizer(kMergesFile, "file");
    for (uint64_t i = 0; i < 200; ++i) {
      std::string text = "abc";
      for (uint64_t words = philox_below({1, 0, 0}, i, 6); words > 0; --words) text += " abc";
      corpus.source.push_back(tokenizer->encode(text));
      corpus.target.push_back(tokenizer->encode(text.substr(0, text.size() / 8 * 4 + 3)));
    }
    corpus.variation = std::make_shared<const TextVariation>(
        options, TokenizerPair{tokenizer, tokenizer}, SideLimits{most, most}, 1);
  }
  ParallelCorpus corpus;
};

std::vector<int32_t> ids_of(const TranslationBatch& batch) {
  std::vector<int32_t> ids = batch.source.to_vector<int32_t>();
  const std::vector<int32_t> target = batch.target_out.to_vector<int32_t>();
  ids.insert(ids.end(), target.begin(), target.end());
  return ids;
}

TEST(TextVariationTest, BatchesOfSampledTextsKeepTheirLimit) {
  const VariedPairs pairs({.source = {.dropout = 0.5}, .target = {.dropout = 0.2}});
  const BatchOptions options{.batch_size = 64};
  TranslationBatches batches(pairs.corpus, options);
  int64_t tokens[2] = {};
  for (int epoch = 0; epoch < 2; ++epoch) {
    while (batches.position().epoch <= epoch) {
      if (batches.position().epoch == epoch &&
          batches.position().batch == batches.batches_in_epoch()) {
        break;
      }
      const TranslationBatch batch = batches.next();
      EXPECT_LE(batch.source.numel(), 64);
      EXPECT_LE(batch.target_in.numel(), 64);
      int64_t longest = 0;
      for (const int32_t length : batch.source_lengths.to_vector<int32_t>()) {
        longest = std::max<int64_t>(longest, length);
      }
      EXPECT_EQ(longest, batch.source.shape()[1]);
      tokens[epoch] += batch.source_tokens;
    }
  }
  int64_t encoded = 0;
  for (int64_t i = 0; i < pairs.corpus.size(); ++i) encoded += pairs.corpus.source.length(i) + 1;
  EXPECT_GT(tokens[0], encoded);
  EXPECT_NE(tokens[0], tokens[1]);
}

TEST(TextVariationTest, AWalkThatStartsInTheMiddleReadsTheSame) {
  const VariedPairs pairs({.source = {.dropout = 0.3}, .target = {}, .word_dropout = 0.2});
  const BatchOptions options{.batch_size = 64};
  TranslationBatches whole(pairs.corpus, options);
  const int64_t in_epoch = whole.batches_in_epoch();
  for (int64_t i = 0; i < in_epoch + 3; ++i) whole.next();
  TranslationBatches rest(pairs.corpus, options, whole.position());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(ids_of(whole.next()), ids_of(rest.next()));
}

TEST(TextVariationTest, ALongerTextThanTheLimitStaysAsItWas) {
  const VariedPairs pairs({.source = {.dropout = 1}, .target = {}}, /*most=*/9);
  for (int64_t i = 0; i < pairs.corpus.size(); ++i) {
    const TranslationBatch batch = make_translation_batch(pairs.corpus, std::vector<int64_t>{i}, 3);
    // All characters of a word are four tokens with its mark.
    const int64_t words = pairs.corpus.source.length(i);
    EXPECT_EQ(batch.source_tokens, (4 * words <= 9 ? 4 * words : words) + 1);
    EXPECT_EQ(batch.target_tokens, pairs.corpus.target.length(i) + 1);
  }
}

TEST(TextVariationTest, WordDropoutMakesSourceTokensUnknown) {
  const VariedPairs pairs({.source = {}, .target = {}, .word_dropout = 0.25});
  int64_t unknown = 0, all = 0;
  for (int64_t i = 0; i < pairs.corpus.size(); ++i) {
    for (const int64_t epoch : {0, 1, 2}) {
      const auto batch = make_translation_batch(pairs.corpus, std::vector<int64_t>{i}, epoch);
      const std::vector<int32_t> source = batch.source.to_vector<int32_t>();
      EXPECT_EQ(source.back(), kEosId);
      unknown += std::ranges::count(source, kUnkId);
      all += std::ssize(source) - 1;
      EXPECT_EQ(std::ranges::count(batch.target_in.to_vector<int32_t>(), kUnkId), 0);
    }
  }
  EXPECT_NEAR(static_cast<double>(unknown) / static_cast<double>(all), 0.25, 0.04);
}

// Two words that users made one piece each stand among pieces of text.
TEST(TextVariationTest, WordDropoutKeepsSymbols) {
  TokenizerOptions trained;
  trained.type = "bpe";
  trained.vocab_size = 24;
  trained.mask_piece = true;
  trained.user_symbols = {"<BT>", "{NUM}"};
  const std::shared_ptr<const Tokenizer> tokenizer = train_tokenizer(
      trained,
      [left = 50](std::string& line) mutable {
        line = "low lower lowest <BT> newer {NUM}";
        return left-- > 0;
      },
      1);
  const std::vector<int32_t> marks = tokenizer->symbols();
  ASSERT_EQ(marks.size(), 2U);
  std::vector<int32_t> ids = tokenizer->encode("<BT> low {NUM} lower");
  ids.push_back(*tokenizer->mask_id());
  const TextVariation variation({.source = {}, .target = {}, .word_dropout = 0.9},
                                {tokenizer, tokenizer}, {100, 100}, 1);
  std::vector<int32_t> varied;
  int64_t unknown = 0;
  for (int64_t row = 0; row < 100; ++row) {
    variation.source(0, row, ids, varied);
    ASSERT_EQ(varied.size(), ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool mark = std::ranges::count(marks, ids[i]) > 0 || ids[i] == tokenizer->mask_id();
      if (mark) {
        EXPECT_EQ(varied[i], ids[i]);
      }
      unknown += varied[i] == kUnkId ? 1 : 0;
    }
  }
  EXPECT_GT(unknown, 100);
}

}  // namespace
}  // namespace tapestry
