// The loss of a guided head against sums by hand, and its attention against the recorder's.
#include "nn/attention/guided_alignment.h"

#include <gtest/gtest.h>

#include <cmath>

#include "nn/attention/attention.h"
#include "tests/autograd/support.h"

namespace tapestry {
namespace {

const Tensor kShares = Tensor::from<float>({1, 0, 0, 0.5, 0.5, 0,  //
                                            0, 0, 0, 0, 2, 0},
                                           {2, 2, 3});

// Two rows of two target places and three source ones.
std::vector<double> log_attention() {
  const std::vector<double> shares = {0.5, 0.25, 0.25, 0.2, 0.7, 0.1,  //
                                      0.6, 0.3,  0.1,  0.1, 0.8, 0.1};
  std::vector<double> logs;
  for (const double share : shares) logs.push_back(std::log(share));
  return logs;
}

const double kByHand = -(std::log(0.5) + 0.5 * std::log(0.2) + 0.5 * std::log(0.7) +  //
                         2 * std::log(0.8));

CrossEntropy translation_loss(double loss, int64_t entries = 3) {
  return {Var(Tensor::full({}, loss, DType::kFloat64)), 4,
          Tensor::full({entries}, 7, DType::kFloat64)};
}

TEST(GuidedAlignmentTest, IsTheCrossEntropyOfEachTargetTokensSourceTokens) {
  const GuidedAlignment guided{.shares = kShares, .weight = 0.1};
  const Var logs(Tensor::from(log_attention(), {2, 2, 3}));
  for (const double normalizer : {0.0, 10.0}) {  // 0: the four tokens
    const CrossEntropy all = with_alignment(translation_loss(2), logs, guided, normalizer);
    const double divisor = normalizer > 0 ? normalizer : 4;
    EXPECT_NEAR(all.loss.value().item(), 2 + 0.1 * kByHand / divisor, 1e-12);
    ASSERT_EQ(all.sums.shape(), Shape({5}));
    EXPECT_EQ(all.nll_sum(), 7);
    EXPECT_EQ(all.divergence(), 0);  // there is no teacher
    EXPECT_NEAR(all.sums.slice(4, 5).item(), kByHand, 1e-12);
  }
  EXPECT_EQ(with_alignment(translation_loss(2, 4), logs, guided, 0).divergence(), 7);
}

TEST(GuidedAlignmentTest, CountsTheMeanOfTwoPasses) {
  const GuidedAlignment guided{.shares = kShares, .weight = 1};
  std::vector<double> both = log_attention();
  for (const double log : log_attention()) both.push_back(2 * log);
  const CrossEntropy all =
      with_alignment(translation_loss(0), Var(Tensor::from(both, {4, 2, 3})), guided, 1);
  EXPECT_NEAR(all.loss.value().item(), 1.5 * kByHand, 1e-12);
  EXPECT_NEAR(all.sums.slice(4, 5).item(), 1.5 * kByHand, 1e-12);
  EXPECT_THROW(with_alignment(translation_loss(0), Var(Tensor::from(both, {2, 4, 3})), guided, 1),
               Error);
}

// The guided head is the first of the layer, as the recorder shows it, and padding has no weight.
TEST(GuidedAlignmentTest, TheHeadIsTheFirstOfTheLayer) {
  for (const int64_t groups : {1, 2, 4}) {
    ParamStore store(1, DType::kFloat64, {}, Precision::kFull);
    const CrossAttention attention(
        {.hidden_size = 16, .heads = 4, .kv_heads = groups, .softcap = groups == 2 ? 0.5 : 0.0},
        store.root());
    const Var x = test::uniform({2, 3, 16}, 1), memory = test::uniform({2, 5, 16}, 2);
    const Tensor lengths = Tensor::from<int32_t>({5, 2}, {2});
    GuidedHead head{hidden_keys(lengths, 5), {}};
    const AttentionRecorder recorder;
    attention(x, memory, lengths, {}, &head);
    const auto all = recorder.maps().at(0).weights.to_vector<double>();  // (2, 4, 3, 5)
    const auto logs = head.log_weights.value().to_vector<double>();
    ASSERT_EQ(head.log_weights.shape(), Shape({2, 3, 5}));
    for (size_t b = 0; b < 2; ++b) {
      for (size_t i = 0; i < 15; ++i) {
        EXPECT_NEAR(std::exp(logs[b * 15 + i]), all[b * 60 + i], 1e-12) << b << ' ' << i;
      }
    }
  }
}

}  // namespace
}  // namespace tapestry
