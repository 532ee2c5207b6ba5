#include "data/examples/document_batching.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "tests/data/files/files.h"
#include "tests/data/tokenizers/word_tokenizer.h"
#include "tests/data/walks.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int32_t> ids_of(const BlockBatch& batch) {
  auto values = batch.ids.to_vector<int32_t>();
  const auto targets = batch.targets.to_vector<int32_t>();
  values.insert(values.end(), targets.begin(), targets.end());
  if (batch.lengths.defined()) {
    const auto lengths = batch.lengths.to_vector<int32_t>();
    values.insert(values.end(), lengths.begin(), lengths.end());
  }
  return values;
}

class DocumentRows : public testing::Test {
 protected:
  TextCorpus load(const std::string& text, int64_t specials, CorpusOptions options = {}) {
    CorpusSpec spec;
    spec.text = folder_.write("a.txt", text);
    return load_text({spec}, *tokenizer_, options, specials);
  }
  static BatchOptions by_rows(int64_t rows, bool shuffle) {
    return {.batch_type = "sentences", .batch_size = rows, .shuffle = shuffle};
  }
  int32_t id(const char* character) const { return tokenizer_->encode(character).back(); }

  TempFolder folder_;
  std::shared_ptr<const Tokenizer> tokenizer_ = character_tokenizer("abcdefgh");
};

TEST_F(DocumentRows, OfACausalModelPredictATextAndItsEnd) {
  const TextCorpus corpus = load("ab\nc\n", DocumentBatches::specials(*tokenizer_));
  DocumentBatches batches(corpus, *tokenizer_, by_rows(2, false));
  EXPECT_EQ(batches.batches_in_epoch(), 1);
  const BlockBatch batch = batches.next();
  const int32_t a = id("a"), b = id("b"), c = id("c");
  // Sorted by length.
  EXPECT_THAT(batch.indices, ElementsAre(1, 0));
  EXPECT_THAT(batch.ids.to_vector<int32_t>(), ElementsAre(kEosId, c, kPadId, kEosId, a, b));
  EXPECT_THAT(batch.targets.to_vector<int32_t>(), ElementsAre(c, kEosId, kNoTarget, a, b, kEosId));
  EXPECT_THAT(batch.lengths.to_vector<int32_t>(), ElementsAre(2, 3));
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.tokens, 5);
}

// A tokenizer from elsewhere puts bos in front of a text that lacks it. A word "s" is bos.
class FramingTokenizer : public WordTokenizer {
 public:
  FramingTokenizer() {
    special_.one_text = TextFrame{{kBosId}, {}};
    special_.frames_once = true;
  }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids = WordTokenizer::encode(text);
    if (text.starts_with("s ")) ids.front() = kBosId;
    if (text.ends_with(" e")) ids.back() = kEosId;
    return ids;
  }
};

TEST_F(DocumentRows, HaveABeginningAndAnEndOnce) {
  const FramingTokenizer tokenizer;
  CorpusSpec spec;
  spec.text = folder_.write("a.txt", "aa bbb\ns aa bbb\naa bbb e\ns aa bbb e\n");
  const TextCorpus corpus = load_text({spec}, tokenizer, {}, DocumentBatches::specials(tokenizer));
  DocumentBatches batches(corpus, tokenizer, by_rows(4, false));
  const BlockBatch batch = batches.next();
  const std::vector<int32_t> read = {kBosId, 6, 7}, written = {6, 7, kEosId};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(batch.ids.slice(i, i + 1).to_vector<int32_t>(), read) << i;
    EXPECT_EQ(batch.targets.slice(i, i + 1).to_vector<int32_t>(), written) << i;
  }
}

TEST_F(DocumentRows, OfAMaskedModelStandInItsFrame) {
  const TextCorpus corpus =
      load("abcdefgh\nab\nabcd\n", MaskedDocumentBatches::specials(*tokenizer_));
  MaskedDocumentBatches batches(corpus, *tokenizer_, by_rows(3, false), {});
  const BlockBatch batch = batches.next();
  EXPECT_THAT(batch.indices, ElementsAre(1, 2, 0));
  EXPECT_EQ(batch.ids.shape(), (Shape{3, 9}));
  EXPECT_THAT(batch.lengths.to_vector<int32_t>(), ElementsAre(3, 5, 9));
  const auto ids = batch.ids.to_vector<int32_t>(), targets = batch.targets.to_vector<int32_t>();
  for (size_t row = 0; row < 3; ++row) {
    const auto text = corpus.tokens[batch.indices.at(row)];
    EXPECT_EQ(ids[row * 9], kBosId);
    EXPECT_EQ(targets[row * 9], kNoTarget);
    int64_t predicted = 0;
    for (size_t i = 0; i < 8; ++i) {
      const int32_t read = ids[row * 9 + 1 + i], target = targets[row * 9 + 1 + i];
      if (i >= text.size()) {
        EXPECT_EQ(read, kPadId);
        EXPECT_EQ(target, kNoTarget);
      } else {
        EXPECT_EQ(target == kNoTarget ? read : target, text[i]);
        predicted += target != kNoTarget;
      }
    }
    EXPECT_GE(predicted, 1);
  }
}

TEST_F(DocumentRows, HaveAnotherMaskInEachShuffledEpoch) {
  const TextCorpus corpus =
      load("abcdefghabcdefgh\nhgfedcbahgfedcba\n", MaskedDocumentBatches::specials(*tokenizer_));
  std::set<std::vector<int32_t>> still, moving;
  MaskedDocumentBatches in_order(corpus, *tokenizer_, by_rows(2, false), {});
  MaskedDocumentBatches shuffled(corpus, *tokenizer_, by_rows(1, true), {});
  for (int epoch = 0; epoch < 8; ++epoch) {
    still.insert(ids_of(in_order.next()));
    for (int i = 0; i < 2; ++i) moving.insert(ids_of(shuffled.next()));
  }
  EXPECT_EQ(still.size(), 1U);
  EXPECT_GT(moving.size(), 12U);
}

TEST_F(DocumentRows, FitMaxLengthOrAreCutOrLeftOut) {
  const int64_t specials = MaskedDocumentBatches::specials(*tokenizer_);
  CorpusOptions options;
  options.max_length = 4;
  EXPECT_EQ(load("abc\nabcd\n", specials, options).size(), 1);
  options.overlong = "truncate";
  const TextCorpus cut = load("abc\nabcd\n", specials, options);
  EXPECT_EQ(cut.tokens.length(1), 3);
  EXPECT_EQ(cut.counts.truncated, 1);
  MaskedDocumentBatches batches(cut, *tokenizer_, by_rows(2, false), {});
  EXPECT_EQ(batches.next().ids.shape(), (Shape{2, 4}));
}

TEST_F(DocumentRows, ContinueExactlyFromEveryPosition) {
  std::string text;
  for (size_t i = 0; i < 40; ++i) text += std::string(1 + i % 7, "abcdefgh"[i % 8]) + "\n";
  const TextCorpus causal = load(text, DocumentBatches::specials(*tokenizer_));
  const TextCorpus masked = load(text, MaskedDocumentBatches::specials(*tokenizer_));
  for (const bool shuffle : {true, false}) {
    const BatchOptions options{.batch_size = 32, .shuffle = shuffle};
    expect_resumes(
        [&](const DataPosition& start) {
          return DocumentBatches(causal, *tokenizer_, options, start);
        },
        ids_of);
    expect_resumes(
        [&](const DataPosition& start) {
          return MaskedDocumentBatches(masked, *tokenizer_, options, {}, start);
        },
        ids_of);
  }
}

TEST_F(DocumentRows, AMaskedModelNeedsAMaskPiece) {
  const auto without = character_tokenizer("ab", false);
  const TextCorpus corpus = load("ab\n", 0);
  EXPECT_THAT(error_of(ErrorKind::kConfig,
                       [&] { MaskedDocumentBatches(corpus, *without, by_rows(1, false), {}); }),
              HasSubstr("masking needs a tokenizer with the piece"));
}

}  // namespace
}  // namespace tapestry
