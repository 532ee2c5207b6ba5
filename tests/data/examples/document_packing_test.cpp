// Documents in blocks: their bounds, and best-fit packing.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "data/corpora/token_table.h"
#include "data/examples/block_batching.h"
#include "tests/data/files/files.h"
#include "tests/data/walks.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Lengths = std::vector<int32_t>;

// Documents of these lengths, whose ids count on from 100; all but the first have eos in front.
TokenStream stream_of(const std::vector<int64_t>& lengths, StreamFacts facts = {}) {
  TableBuilder table(1);
  int32_t next = 100;
  for (const int64_t length : lengths) {
    std::vector<int32_t> ids;
    if (table.rows() > 0) ids.push_back(kEosId);
    for (int64_t i = 0; i < length; ++i) ids.push_back(next++);
    table.add({ids});
  }
  return TokenStream(table.finish({}), std::move(facts));
}

TEST(DocumentsOfAStream, BeginWithTheEndOfTheOneBefore) {
  const TokenStream stream = stream_of({3, 1, 4});
  EXPECT_EQ(stream.whole_documents(), 3);
  EXPECT_EQ(stream.start_of(0), 0);
  EXPECT_EQ(stream.start_of(1), 3);
  EXPECT_EQ(stream.start_of(2), 5);
  EXPECT_EQ(stream.start_of(3), stream.size());
  EXPECT_EQ(stream.documents_in(0, 10), (Lengths{3, 2, 5}));
  EXPECT_EQ(stream.documents_in(1, 3), (Lengths{2, 1}));
  EXPECT_EQ(stream.documents_in(4, 1), (Lengths{1}));
  EXPECT_EQ(stream.documents_in(6, 4), (Lengths{4}));
}

TEST(DocumentsOfAStream, BeginWithTheirOwnBeginningWhereThereIsOne) {
  TableBuilder table(1);
  for (const auto& ids : std::vector<std::vector<int32_t>>{{2, 7, 8}, {3, 2, 9}, {2, 9}, {3, 2}}) {
    table.add({ids});
  }
  StreamFacts facts;
  facts.end = 3, facts.beginning = {2};
  const TokenStream stream(table.finish({}), facts);
  // The end belongs to the document that it ends.
  EXPECT_EQ(stream.documents_in(0, stream.size()), (Lengths{4, 2, 3, 1}));
}

BlockOptions masked(int64_t block_size, int64_t batch_size, bool best_fit, bool shuffle = false) {
  BlockOptions options{block_size, batch_size, shuffle, 1};
  options.best_fit = best_fit;
  options.document_mask = true;
  return options;
}

TEST(DocumentMask, TellsTheDocumentsOfEachBlock) {
  BlockBatches batches(stream_of({3, 1, 4}), masked(4, 2, false));
  const BlockBatch first = batches.next(), second = batches.next();
  EXPECT_THAT(first.ids.to_vector<int32_t>(), ElementsAre(100, 101, 102, 3, 103, 3, 104, 105));
  EXPECT_THAT(first.documents, ElementsAre(Lengths{3, 1}, Lengths{1, 3}));
  EXPECT_THAT(second.ids.to_vector<int32_t>(), ElementsAre(106, kPadId, kPadId, kPadId));
  EXPECT_THAT(second.documents, ElementsAre(Lengths{1, 3}));  // the padding is one
  EXPECT_THAT(rows_of(first, 1, 2).documents, ElementsAre(Lengths{1, 3}));
}

TEST(BestFit, PutsDocumentsTogether) {
  // With their beginnings 7, 4, 4, 3, 2; the last token of all has nothing behind it. The order in
  // a row is random.
  BlockBatches batches(stream_of({7, 3, 3, 2, 2}), masked(7, 9, true));
  const BlockBatch all = batches.next();
  EXPECT_EQ(all.rows, 3);
  EXPECT_THAT(all.ids.to_vector<int32_t>(), ElementsAre(100, 101, 102, 103, 104, 105, 106,  //
                                                        3, 107, 108, 109, 3, 113, 114,      //
                                                        3, 115, 3, 110, 111, 112, kPadId));
  EXPECT_THAT(all.targets.to_vector<int32_t>(), ElementsAre(101, 102, 103, 104, 105, 106, 3,  //
                                                            107, 108, 109, 3, 113, 114, 3,    //
                                                            115, 116, 110, 111, 112, 3, kNoTarget));
  EXPECT_THAT(all.documents, ElementsAre(Lengths{7}, Lengths{4, 3}, Lengths{2, 4, 1}));
  EXPECT_THAT(all.lengths.to_vector<int32_t>(), ElementsAre(7, 7, 6));
  EXPECT_EQ(batches.summary(), "3 blocks of 7 tokens, 0 of 5 documents cut, padding 4.8 %");
}

TEST(BestFit, CutsOnlyWhatIsLongerThanABlock) {
  BlockBatches batches(stream_of({9, 2, 3}), masked(4, 9, true));
  const BlockBatch all = batches.next();
  EXPECT_THAT(all.documents, ElementsAre(Lengths{4}, Lengths{4}, Lengths{1, 3}, Lengths{3, 1}));
  EXPECT_THAT(batches.summary(), HasSubstr("1 of 3 documents cut"));
  BlockBatches stream(stream_of({7, 3, 4}), masked(4, 9, false));
  EXPECT_THAT(stream.summary(), HasSubstr("3 of 3 documents cut"));
}

TEST(BestFit, ReadsEveryTokenOnceInEveryEpoch) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 200; ++i) lengths.push_back(1 + i * 37 % 23);
  const TokenStream stream = stream_of(lengths);
  BlockBatches batches(stream, masked(16, 3, true, /*shuffle=*/true));
  std::vector<int32_t> expected(stream.tokens().begin(), stream.tokens().end() - 1);
  std::sort(expected.begin(), expected.end());
  std::vector<std::vector<int32_t>> epochs;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int32_t> ids;
    const int64_t count = batches.batches_in_epoch();
    for (int64_t i = 0; i < count; ++i) {
      const BlockBatch batch = batches.next();
      const auto all = batch.ids.to_vector<int32_t>();
      for (int64_t row = 0; row < batch.rows; ++row) {
        const int64_t length = batch.lengths.defined() ? batch.lengths.data<int32_t>()[row] : 16;
        ids.insert(ids.end(), all.begin() + row * 16, all.begin() + row * 16 + length);
      }
    }
    epochs.push_back(ids);
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(ids, expected);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  // Less than a token in a hundred is padding: 200 documents leave few holes.
  EXPECT_THAT(batches.summary(), testing::MatchesRegex(".*padding 0\\.[0-9] %"));
}

TEST(BestFit, Resumes) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 60; ++i) lengths.push_back(1 + i * 7 % 11);
  const TokenStream stream = stream_of(lengths);
  expect_resumes(
      [&](const DataPosition& start) {
        return BlockBatches(stream, masked(16, 4, true, /*shuffle=*/true), start);
      },
      [](const BlockBatch& batch) {
        auto values = batch.ids.to_vector<int32_t>();
        for (const Lengths& row : batch.documents)
          values.insert(values.end(), row.begin(), row.end());
        return values;
      });
}

TEST(BestFit, MasksInTheFrameOfTheTokenizer) {
  const auto tokenizer = character_tokenizer("abcdefgh");
  const TokenStream stream = stream_of({4, 2, 3});
  MaskedBlockBatches batches(stream, *tokenizer, masked(8, 9, true), {});
  const BlockBatch all = batches.next();
  // bos stands in front of each row and belongs to its first document.
  EXPECT_THAT(all.documents, ElementsAre(Lengths{5, 3}, Lengths{5, 3}));
}

TEST(BestFit, HasNoStrideAndNoShares) {
  BlockOptions options = masked(4, 2, true);
  options.stride = 2;
  EXPECT_THAT(error_of(ErrorKind::kConfig,
                       [&] {
                         BlockBatches(stream_of({9, 2}), options);
                       }),
              HasSubstr("must have no stride"));
}

}  // namespace
}  // namespace tapestry
