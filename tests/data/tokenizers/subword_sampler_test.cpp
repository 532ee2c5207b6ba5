// Samplers against the distributions of their papers, which naive loops count out for short words.
#include "data/tokenizers/sampling/subword_sampler.h"

#include <gmock/gmock.h>
#include <sentencepiece_trainer.h>

#include <cmath>
#include <map>
#include <set>

#include "core/base/error.h"
#include "data/tokenizers/sentencepiece_model.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

using TokenIds = std::vector<int32_t>;
using PieceTexts = std::vector<std::string>;
using Shares = std::map<PieceTexts, double>;

constexpr int kDraws = 20000;
constexpr double kFar = 0.02;  // more than five deviations of any share of so many draws

const PieceTexts kSlowLines = {
    "low lower lowest newer newest wider", "wide new low slow slower flow",
    "the lowest of the new, the widest of the slow!", "a 12 21 a lower new"};

std::shared_ptr<const Tokenizer> trained(const std::string& type, const std::string& algorithm) {
  TokenizerOptions options;
  options.type = type;
  options.algorithm = algorithm;
  options.vocab_size = algorithm == "unigram" ? 30 : 45;
  return train_tokenizer(
      options,
      [next = size_t{0}](std::string& line) mutable {
        if (next == kSlowLines.size()) return false;
        line = kSlowLines[next++];
        return true;
      },
      1);
}

PieceTexts texts_of(const Tokenizer& tokenizer, const TokenIds& ids) {
  PieceTexts texts;
  for (const int32_t id : ids) texts.push_back(tokenizer.piece(id));
  return texts;
}

TokenIds sampled(const SubwordSampler& sampler, const TokenIds& ids, int64_t row,
                 uint32_t epoch = 0) {
  RowDraws draws({5, epoch, 7}, row);
  TokenIds result;
  sampler.sample(ids, draws, result);
  return result;
}

Shares shares_of(const Tokenizer& tokenizer, const SubwordSampling& how, const std::string& word) {
  const auto sampler = tokenizer.sampler(how);
  const TokenIds ids = tokenizer.encode(word);
  Shares shares;
  for (int row = 0; row < kDraws; ++row) {
    shares[texts_of(tokenizer, sampled(*sampler, ids, row))] += 1.0 / kDraws;
  }
  return shares;
}

void expect_near(const Shares& actual, const Shares& expected) {
  for (const auto& [texts, share] : actual) {
    EXPECT_TRUE(expected.contains(texts)) << testing::PrintToString(texts);
  }
  for (const auto& [texts, share] : expected) {
    const auto found = actual.find(texts);
    EXPECT_NEAR(found == actual.end() ? 0 : found->second, share, kFar)
        << testing::PrintToString(texts);
  }
}

/// Algorithm 1 of Provilkov et al., all of its ways with their probabilities.
class Dropout {
 public:
  Dropout(std::vector<std::pair<std::string, std::string>> merges, double p)
      : merges_(std::move(merges)), p_(p) {}

  void walk(const PieceTexts& word, double share, Shares& shares) const {
    // The places that merge, the earliest merge first, then the leftmost.
    std::vector<size_t> places;
    for (const auto& [left, right] : merges_) {
      for (size_t i = 0; i + 1 < word.size(); ++i) {
        if (word[i] == left && word[i + 1] == right) places.push_back(i);
      }
    }
    double left_out = share;  // all before this one
    for (const size_t i : places) {
      PieceTexts next = word;
      next[i] += next[i + 1];
      next.erase(next.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      walk(next, left_out * (1 - p_), shares);
      left_out *= p_;
    }
    if (left_out > 0) shares[word] += left_out;
  }

 private:
  std::vector<std::pair<std::string, std::string>> merges_;
  double p_;
};

// (▁, l), (o, w), (▁l, ow), (e, r), (ow, er): a word with several ways.
constexpr const char* kMergeFile =
    "tapestry bpe 1\nnormalization identity\nbyte_fallback false\nmask false\nsentinels 0\n"
    "characters 6\nU+0065\nU+006C\nU+006F\nU+0072\nU+0077\nU+2581\n"
    "merges 5\n\u2581 l\no w\n\u2581l ow\ne r\now er\n";
const std::vector<std::pair<std::string, std::string>> kFewMerges = {
    {"\u2581", "l"}, {"o", "w"}, {"\u2581l", "ow"}, {"e", "r"}, {"ow", "er"}};

TEST(MergeSamplerTest, DrawsAsThePaperSays) {
  const auto tokenizer = load_tokenizer(kMergeFile, "file");
  for (const double p : {0.1, 0.5}) {
    Shares expected;
    Dropout(kFewMerges, p).walk({"\u2581", "l", "o", "w", "e", "r"}, 1, expected);
    EXPECT_GT(expected.size(), 8);
    expect_near(shares_of(*tokenizer, {.dropout = p}, "lower"), expected);
  }
}

TEST(MergeSamplerTest, WithAllMergesLeftOutThereAreCharacters) {
  const auto tokenizer = load_tokenizer(kMergeFile, "file");
  const auto sampler = tokenizer->sampler({.dropout = 1});
  EXPECT_EQ(texts_of(*tokenizer, sampled(*sampler, tokenizer->encode("low x er"), 1)),
            (PieceTexts{"\u2581", "l", "o", "w", "\u2581", "<unk>", "\u2581", "e", "r"}));
}

class MergeSamplers : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, MergeSamplers, testing::Values("bpe", "sentencepiece"));

// A dropout that never drops gives back the tokens: they are what all merges make.
TEST_P(MergeSamplers, WithoutDropoutNothingChanges) {
  const auto tokenizer = trained(GetParam(), "bpe");
  const auto sampler = tokenizer->sampler({.dropout = 1e-30});
  for (const std::string& line : kSlowLines) {
    for (const std::string& text : {line, "Z" + line + " \u4e2d\u4e2d new.", "  " + line + line}) {
      const TokenIds ids = tokenizer->encode(text);
      EXPECT_EQ(sampled(*sampler, ids, 3), ids) << text;
    }
  }
}

TEST_P(MergeSamplers, TheTextStays) {
  const auto tokenizer = trained(GetParam(), "bpe");
  const auto sampler = tokenizer->sampler({.dropout = 0.3});
  std::set<TokenIds> ways;
  for (int row = 0; row < 50; ++row) {
    const TokenIds ids = sampled(*sampler, tokenizer->encode(kSlowLines[2]), row);
    EXPECT_EQ(tokenizer->decode(ids), kSlowLines[2]);
    ways.insert(ids);
  }
  EXPECT_GT(ways.size(), 40);
}

TEST_P(MergeSamplers, ADrawDependsOnRowAndEpoch) {
  const auto tokenizer = trained(GetParam(), "bpe");
  const auto sampler = tokenizer->sampler({.dropout = 0.3});
  const TokenIds ids = tokenizer->encode(kSlowLines[2]);
  EXPECT_EQ(sampled(*sampler, ids, 4, 1), sampled(*sampler, ids, 4, 1));
  EXPECT_NE(sampled(*sampler, ids, 4, 1), sampled(*sampler, ids, 5, 1));
  EXPECT_NE(sampled(*sampler, ids, 4, 1), sampled(*sampler, ids, 4, 2));
}

// Every way to cut a text into pieces, with its score.
void cut(const std::map<std::string, double>& scores, const std::string& text,
         const PieceTexts& before, double score, std::map<PieceTexts, double>& ways) {
  if (text.empty()) ways[before] = score;
  for (size_t size = 1; size <= text.size(); ++size) {
    const auto piece = scores.find(text.substr(0, size));
    if (piece == scores.end()) continue;
    PieceTexts next = before;
    next.push_back(piece->first);
    cut(scores, text.substr(size), next, score + piece->second, ways);
  }
}

std::map<PieceTexts, double> all_ways(const Tokenizer& tokenizer, const std::string& text) {
  const auto model = SentencePieceModel::parse(tokenizer.serialized(), "test");
  std::map<std::string, double> scores;
  for (const auto& piece : model.pieces) {
    if (piece.type == SentencePieceModel::kNormal) scores[piece.text] = piece.score;
  }
  std::map<PieceTexts, double> ways;
  cut(scores, text, {}, 0, ways);
  return ways;
}

Shares in_proportion(const std::map<PieceTexts, double>& ways, double alpha, size_t nbest) {
  std::vector<std::pair<double, PieceTexts>> best;
  for (const auto& [texts, score] : ways) best.emplace_back(-score, texts);
  std::sort(best.begin(), best.end());
  if (nbest > 0) best.resize(std::min(nbest, best.size()));
  double all = 0;
  for (const auto& [negative, texts] : best) all += std::exp(-alpha * negative);
  Shares shares;
  for (const auto& [negative, texts] : best) shares[texts] = std::exp(-alpha * negative) / all;
  return shares;
}

TEST(LatticeSamplerTest, DrawsInProportionToProbabilities) {
  const auto tokenizer = trained("sentencepiece", "unigram");
  const auto ways = all_ways(*tokenizer, "\u2581lower");
  ASSERT_GT(ways.size(), 4);
  for (const double alpha : {0.2, 1.0}) {
    for (const int64_t nbest : {0, 3}) {
      const SubwordSampling how{.alpha = alpha, .nbest = nbest};
      expect_near(shares_of(*tokenizer, how, "lower"),
                  in_proportion(ways, alpha, static_cast<size_t>(nbest)));
    }
  }
}

TEST(LatticeSamplerTest, TheTextStaysAndUnknownOnesToo) {
  const auto tokenizer = trained("sentencepiece", "unigram");
  for (const int64_t nbest : {0, 1, 8}) {
    const auto sampler = tokenizer->sampler({.alpha = 0.3, .nbest = nbest});
    for (int row = 0; row < 20; ++row) {
      EXPECT_EQ(tokenizer->decode(sampled(*sampler, tokenizer->encode(kSlowLines[2]), row)),
                kSlowLines[2]);
    }
    const TokenIds unknown = tokenizer->encode("new \u4e2d low");
    const TokenIds other = sampled(*sampler, unknown, 1);
    EXPECT_EQ(std::ranges::count(other, kUnkId), 1);
    EXPECT_EQ(tokenizer->decode(other), tokenizer->decode(unknown));
  }
  const TokenIds ids = tokenizer->encode(kSlowLines[2]);
  EXPECT_EQ(sampled(*tokenizer->sampler({.alpha = 0.3, .nbest = 1}), ids, 1), ids);
}

TEST(SubwordSamplerTest, MisfitsAreErrors) {
  const auto complaint = [](const Tokenizer& tokenizer, const SubwordSampling& how) {
    try {
      tokenizer.sampler(how);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return std::string(error.what());
    }
    return std::string();
  };
  const SubwordSampling dropout{.dropout = 0.1}, alpha{.alpha = 0.1};
  EXPECT_THAT(complaint(*trained("bpe", "bpe"), alpha), HasSubstr("needs a dropout"));
  EXPECT_THAT(complaint(*trained("sentencepiece", "bpe"), alpha), HasSubstr("needs a dropout"));
  EXPECT_THAT(complaint(*trained("sentencepiece", "unigram"), dropout), HasSubstr("an alpha"));
  EXPECT_THAT(complaint(*trained("word", "bpe"), dropout), HasSubstr("needs pieces of words"));
}

}  // namespace
}  // namespace tapestry
