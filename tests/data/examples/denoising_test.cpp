#include "data/examples/denoising.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <numeric>

#include "tests/data/files/files.h"
#include "tests/data/walks.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

std::vector<int32_t> counting_text(int64_t tokens) {
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  std::iota(ids.begin(), ids.end(), 1000);
  return ids;
}

class Denoising : public testing::Test {
 protected:
  // The mask has id 4, the sentinels have 5 and up.
  DenoisingVocabulary vocabulary() const {
    std::vector<int32_t> ids(static_cast<size_t>(sentinels_));
    std::iota(ids.begin(), ids.end(), 5);
    return {4, ids};
  }
  NoisedText span_corrupted(const std::vector<int32_t>& tokens, int64_t text = 0) {
    return span_corrupt(tokens, vocabulary(), options_, {1, 2, 3}, text);
  }
  NoisedText infilled(const std::vector<int32_t>& tokens, int64_t text = 0) {
    return infill(tokens, vocabulary(), options_, {1, 2, 3}, text);
  }
  bool is_sentinel(int32_t id) const { return id >= 5 && id < 5 + sentinels_; }

  // The text that source and target came from; also checks the order of the sentinels.
  std::vector<int32_t> reconstruct(const NoisedText& noised) {
    std::map<int32_t, std::vector<int32_t>> spans;
    int32_t next = 5;
    for (const int32_t id : noised.target) {
      if (is_sentinel(id)) {
        EXPECT_EQ(id, next++);
      } else {
        spans[next - 1].push_back(id);
      }
    }
    EXPECT_TRUE(is_sentinel(noised.target.back()));
    std::vector<int32_t> text;
    int32_t expected = 5;
    for (const int32_t id : noised.source) {
      if (!is_sentinel(id)) {
        text.push_back(id);
        continue;
      }
      EXPECT_EQ(id, expected++);
      EXPECT_FALSE(spans[id].empty());
      text.insert(text.end(), spans[id].begin(), spans[id].end());
    }
    EXPECT_EQ(expected, noised.target.back());  // the final sentinel is in no source
    return text;
  }
  int64_t hidden(const NoisedText& noised) {
    return std::count_if(noised.target.begin(), noised.target.end(),
                         [&](int32_t id) { return !is_sentinel(id); });
  }

  DenoisingOptions options_{"span_corruption", 0, 3, 512};
  int64_t sentinels_ = 100;
};

TEST_F(Denoising, SourceAndTargetGiveTheTextBack) {
  for (const int64_t tokens : {1, 2, 3, 5, 10, 64, 511}) {
    for (int64_t text = 0; text < 50; ++text) {
      const auto original = counting_text(tokens);
      const auto noised = span_corrupted(original, text);
      ASSERT_EQ(reconstruct(noised), original);
      ASSERT_EQ(fill_spans(noised.source, noised.target, vocabulary()), original);
      const auto expected = std::max<int64_t>(1, std::llround(0.15 * static_cast<double>(tokens)));
      ASSERT_EQ(hidden(noised), expected);
      const auto spans = static_cast<int64_t>(noised.target.size()) - expected - 1;
      ASSERT_EQ(spans, std::max<int64_t>(1, std::llround(static_cast<double>(expected) / 3.0)));
      // No span touches another.
      for (size_t i = 1; i < noised.source.size(); ++i) {
        ASSERT_FALSE(is_sentinel(noised.source[i]) && is_sentinel(noised.source[i - 1]));
      }
    }
  }
  const auto none = span_corrupted({});
  EXPECT_TRUE(none.source.empty());
  EXPECT_THAT(none.target, testing::ElementsAre(5));
}

TEST_F(Denoising, SpansAreFilledWithWhatAModelWrote) {
  const auto filled = [&](const std::vector<int32_t>& source, const std::vector<int32_t>& target) {
    return fill_spans(source, target, vocabulary());
  };
  using testing::ElementsAre;
  EXPECT_THAT(filled({1000, 5, 1001, 6}, {5, 7, 8, 2000}), ElementsAre(1000, 1001));
  EXPECT_THAT(filled({1000, 5, 1001, 6}, {6, 2000, 2001, 5, 2002}),
              ElementsAre(1000, 2002, 1001, 2000, 2001));
  EXPECT_THAT(filled({5, 5}, {1999, 5, 2000, 5, 2001, 7}), ElementsAre(2000, 2000));
  EXPECT_THAT(filled({1000, 4}, {5, 2000}), ElementsAre(1000, 4));
  EXPECT_TRUE(filled({}, {5, 2000}).empty());
}

TEST_F(Denoising, SpansAreAnywhere) {
  // One span of one token in a text of seven: each place is as likely as the others.
  std::vector<int64_t> counts(7, 0);
  for (int64_t text = 0; text < 3000; ++text) {
    const auto noised = span_corrupted(counting_text(7), text);
    ASSERT_EQ(noised.target.size(), 3u);
    ++counts[static_cast<size_t>(noised.target[1] - 1000)];
  }
  for (const int64_t count : counts) EXPECT_GT(chance_of(count, 3000, 1.0 / 7), 1e-6);
}

TEST_F(Denoising, SpanCutsAreUniform) {
  // 20 tokens, 6 hidden in 2 spans: the first has 1 to 5 tokens, equally likely.
  options_.noise_density = 0.3;
  std::vector<int64_t> counts(5, 0);
  for (int64_t text = 0; text < 3000; ++text) {
    const auto noised = span_corrupted(counting_text(20), text);
    ASSERT_EQ(noised.target.size(), 9u);
    const auto second = std::find(noised.target.begin(), noised.target.end(), 6);
    ++counts[static_cast<size_t>(second - noised.target.begin() - 2)];
  }
  for (const int64_t count : counts) EXPECT_GT(chance_of(count, 3000, 0.2), 1e-6);
}

TEST_F(Denoising, SpansAreClippedToSentinelsAndMaxLength) {
  sentinels_ = 3;
  const auto noised = span_corrupted(counting_text(200));
  EXPECT_EQ(reconstruct(noised), counting_text(200));
  EXPECT_EQ(hidden(noised), 30);
  EXPECT_EQ(noised.target.size(), 30u + 3u);
  sentinels_ = 100;
  for (const double density : {0.15, 0.5, 0.9, 0.99}) {
    for (const double mean : {1.0, 3.0, 20.0}) {
      options_ = {"span_corruption", density, mean, 0};
      for (int64_t tokens = 1; tokens < 40; ++tokens) {
        options_.max_length = std::max<int64_t>(4, tokens + 1);
        const auto row = span_corrupted(counting_text(tokens), tokens);
        ASSERT_EQ(reconstruct(row), counting_text(tokens));
        ASSERT_LT(static_cast<int64_t>(row.source.size()), options_.max_length);
        ASSERT_LT(static_cast<int64_t>(row.target.size()), options_.max_length);
      }
    }
  }
  options_ = {"span_corruption", 0, 3, 10};
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { span_corrupted(counting_text(10), 4); }),
              HasSubstr("max_length of 10 must hold every text and eos, text 5 has 10 tokens."));
}

TEST_F(Denoising, InfillingHidesTheShareAskedFor) {
  options_.objective = "infilling";
  std::vector<int64_t> lengths(20, 0);
  int64_t all = 0;
  for (int64_t text = 0; text < 500; ++text) {
    const auto original = counting_text(400);
    const auto noised = infilled(original, text);
    ASSERT_EQ(noised.target, original);
    // The remaining tokens keep their order; a mask covers the gap between neighbours.
    int32_t next = 1000;
    int64_t left = 0, masks = 0;
    for (const int32_t id : noised.source) {
      if (id == 4) {
        ++masks;
        continue;
      }
      ASSERT_GE(id, next);
      if (masks == 1) {
        ++all;
        ++lengths[static_cast<size_t>(std::min(id - next, 19))];
      } else if (masks == 0) {
        ASSERT_EQ(id, next);
      }
      masks = 0;
      next = id + 1;
      ++left;
    }
    ASSERT_EQ(left, 400 - 120);
  }
  // Lengths of masks without a neighbouring mask are Poisson distributed, except for the last one
  // of a text, which is cut: about one of 40.
  double poisson = std::exp(-3.0);
  for (size_t k = 0; k < 8; ++k) {
    const double share = static_cast<double>(lengths[k]) / static_cast<double>(all);
    EXPECT_NEAR(share, poisson, 0.02) << k;
    poisson *= 3.0 / static_cast<double>(k + 1);
  }
}

TEST_F(Denoising, InfillingNeverExceedsMaxLength) {
  int64_t longer = 0;
  for (int64_t text = 0; text < 3000; ++text) {
    const int64_t tokens = 1 + text % 30;
    options_ = {"infilling", 0.05, 1.0, std::max<int64_t>(4, tokens + 1 + text % 3)};
    const auto noised = infilled(counting_text(tokens), text);
    ASSERT_EQ(noised.target, counting_text(tokens));
    ASSERT_LT(static_cast<int64_t>(noised.source.size()), options_.max_length);
    ASSERT_GE(std::count(noised.source.begin(), noised.source.end(), 4), 1);
    longer += static_cast<int64_t>(noised.source.size()) > tokens;
  }
  EXPECT_GT(longer, 100);  // inserted masks
  EXPECT_TRUE(infilled({}).source.empty());
}

TEST_F(Denoising, IsAFunctionOfKeyAndText) {
  const auto text = counting_text(100);
  EXPECT_EQ(span_corrupted(text, 3).source, span_corrupted(text, 3).source);
  EXPECT_NE(span_corrupted(text, 3).source, span_corrupted(text, 4).source);
  EXPECT_NE(infilled(text, 3).source, infilled(text, 4).source);
}

TEST_F(Denoising, OptionsAndVocabulariesAreChecked) {
  const auto message = [](DenoisingOptions options, bool mask = true, int64_t sentinels = 2) {
    return error_of(ErrorKind::kConfig, [&] {
      DenoisingVocabulary(*character_tokenizer("a", mask, sentinels), options);
    });
  };
  EXPECT_THAT(message({"noise", 0, 3, 128}), HasSubstr("'noise'"));
  EXPECT_THAT(message({"infilling", 1, 3, 128}), HasSubstr("noise_density"));
  EXPECT_THAT(message({"infilling", 0, 0.5, 128}), HasSubstr("mean_span_length"));
  EXPECT_THAT(message({"infilling", 0, 3, 3}),
              HasSubstr("max_length must be at least 4 for denoising, got 3."));
  EXPECT_THAT(message({"infilling", 0, 3, 128}, false), HasSubstr("<mask>"));
  EXPECT_THAT(message({}, true, 1), HasSubstr("2 sentinels or more, got 1."));
  EXPECT_EQ((DenoisingOptions{"infilling", 0, 3, 128}.density()), 0.3);
  EXPECT_EQ((DenoisingOptions{"infilling", 0.4, 3, 128}.density()), 0.4);
  EXPECT_EQ(DenoisingOptions{}.density(), 0.15);
}

class DenoisingWalk : public testing::TestWithParam<const char*> {
 protected:
  DenoisingWalk() {
    for (int64_t i = 0; i < 120; ++i) corpus_.tokens.push_back(counting_text(1 + i * 7 % 50));
    options_.objective = GetParam();
    options_.max_length = 51;
    batching_.batch_size = 400;
  }
  DenoisingBatches walk(DataPosition start = {}) {
    return DenoisingBatches(corpus_, *tokenizer_, options_, batching_, start);
  }
  static std::vector<int32_t> values(const TranslationBatch& batch) {
    auto all = batch.source.to_vector<int32_t>();
    for (const Tensor& part : {batch.target_in, batch.target_out, batch.target_lengths}) {
      const auto more = part.to_vector<int32_t>();
      all.insert(all.end(), more.begin(), more.end());
    }
    all.insert(all.end(), batch.indices.begin(), batch.indices.end());
    return all;
  }

  std::shared_ptr<const Tokenizer> tokenizer_ = character_tokenizer("abc");
  TextCorpus corpus_;
  DenoisingOptions options_;
  BatchOptions batching_;
};
INSTANTIATE_TEST_SUITE_P(Objectives, DenoisingWalk,
                         testing::Values("span_corruption", "infilling"));

TEST_P(DenoisingWalk, HasEveryTextOncePerEpochWithinTheLimits) {
  auto batches = walk();
  std::map<int64_t, std::vector<int32_t>> before;
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::map<int64_t, std::vector<int32_t>> now;
    do {
      const auto batch = batches.next();
      EXPECT_LE(batch.source.numel(), 400);
      EXPECT_LE(batch.target_in.numel(), 400);
      EXPECT_LE(batch.source.shape()[1], 51);
      EXPECT_LE(batch.target_in.shape()[1], 51);
      const auto ids = batch.source.to_vector<int32_t>();
      const auto width = batch.source.shape()[1];
      for (int64_t row = 0; row < batch.rows; ++row) {
        const auto begin = ids.begin() + row * width;
        const int32_t length = batch.source_lengths.to_vector<int32_t>()[static_cast<size_t>(row)];
        EXPECT_EQ(*(begin + length - 1), kEosId);
        now[batch.indices[static_cast<size_t>(row)]] = {begin, begin + length};
      }
    } while (batches.position().batch < batches.batches_in_epoch());
    EXPECT_EQ(now.size(), 120u);
    EXPECT_NE(now, before);  // new noise in every epoch
    before = now;
  }
}

TEST_P(DenoisingWalk, ContinuesExactlyFromEveryPosition) {
  for (const bool shuffle : {true, false}) {
    batching_.shuffle = shuffle;
    expect_resumes([&](DataPosition start) { return walk(start); }, values);
  }
}

TEST_P(DenoisingWalk, ValidationIsAlwaysTheSame) {
  batching_.shuffle = false;
  auto batches = walk();
  std::vector<std::vector<int32_t>> first, second;
  const int64_t in_epoch = batches.batches_in_epoch();
  for (int64_t i = 0; i < in_epoch; ++i) first.push_back(values(batches.next()));
  for (int64_t i = 0; i < in_epoch; ++i) second.push_back(values(batches.next()));
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace tapestry
