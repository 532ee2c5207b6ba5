// What a stack of self-attention layers can know about order with each kind of positions.
#include "nn/models/trunk.h"
#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

struct PositionVariant {
  const char* name;
  PositionEmbedding positions;
  int64_t kv_latent_size = 0;
};

void PrintTo(const PositionVariant& variant, std::ostream* out) { *out << variant.name; }

class Positions : public ::testing::TestWithParam<PositionVariant> {
 protected:
  static constexpr int64_t kLength = 6, kSize = 16;

  ModelOptions options() const {
    ModelOptions options = test::post_norm_options();
    options.num_hidden_layers = 2;
    options.position_embedding = GetParam().positions;
    options.kv_latent_size = GetParam().kv_latent_size;
    return options;
  }

  // The states of tokens in the given order, (T, D).
  Tensor states(const std::vector<int32_t>& ids, bool causal) const {
    ParamStore store(3, DType::kFloat64);
    const ModelOptions o = options();
    const Trunk trunk(o, embedding_table(o, 19, store.root() / "embedding"), causal, store.root());
    return trunk(Tensor::from<int32_t>(ids, {1, kLength})).value().reshape({kLength, kSize});
  }

  // How far the states differ from those that moved with the tokens.
  double departure(bool causal) const {
    const std::vector<int32_t> ids = {4, 9, 11, 6, 15, 7};
    const std::vector<size_t> order = {3, 0, 5, 1, 4, 2};
    std::vector<int32_t> permuted;
    for (const size_t from : order) permuted.push_back(ids[from]);
    const Tensor x = states(ids, causal), y = states(permuted, causal);
    double worst = 0;
    for (int64_t t = 0; t < kLength; ++t) {
      const auto from = static_cast<int64_t>(order[t]);
      worst = std::max(worst, test::distance(y.slice(t, t + 1), x.slice(from, from + 1)));
    }
    return worst;
  }
};

TEST_P(Positions, AnEncoderFollowsAPermutationExactlyWithoutThem) {
  if (GetParam().positions == PositionEmbedding::kNone) {
    EXPECT_LT(departure(/*causal=*/false), 1e-12);
  } else {
    EXPECT_GT(departure(/*causal=*/false), 1e-2);
  }
}

// A causal mask tells the order by itself.
TEST_P(Positions, ADecoderKnowsTheOrderInAnyCase) { EXPECT_GT(departure(/*causal=*/true), 1e-2); }

// Repeated tokens: only absolute positions distinguish them. Rotary ones rotate queries and keys,
// but a weighted mean of equal values is that value.
TEST_P(Positions, RepeatedTokens) {
  const Tensor x = states({4, 4, 4, 4, 4, 4}, /*causal=*/false);
  const double difference = test::distance(x.slice(0, 1), x.slice(3, 4));
  const bool absolute = GetParam().positions == PositionEmbedding::kSinusoidal ||
                        GetParam().positions == PositionEmbedding::kLearned;
  if (absolute) {
    EXPECT_GT(difference, 1e-2);
  } else {
    EXPECT_LT(difference, 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Positions,
    ::testing::Values(PositionVariant{"none", PositionEmbedding::kNone},
                      PositionVariant{"sinusoidal", PositionEmbedding::kSinusoidal},
                      PositionVariant{"learned", PositionEmbedding::kLearned},
                      PositionVariant{"rope", PositionEmbedding::kRope},
                      PositionVariant{"alibi", PositionEmbedding::kAlibi},
                      PositionVariant{"relative", PositionEmbedding::kRelative},
                      PositionVariant{"latent_none", PositionEmbedding::kNone, 6},
                      PositionVariant{"latent_rope", PositionEmbedding::kRope, 6},
                      PositionVariant{"latent_alibi", PositionEmbedding::kAlibi, 6}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tapestry
