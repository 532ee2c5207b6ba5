#include <gtest/gtest.h>

#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using test::SmallModel;

ModelOptions recorded_latent_options() {
  ModelOptions options = test::pre_norm_options();
  options.num_key_value_heads = 0;
  options.kv_latent_size = 6;
  return options;
}

class AttentionRecorders : public testing::TestWithParam<ModelOptions> {};

// Encoder layers, then self- and cross-attention of each decoder layer; each row of weights is a
// distribution over the keys that it may see.
TEST_P(AttentionRecorders, HoldEveryLayersWeights) {
  const SmallModel built(GetParam());
  const auto& options = built.model.options;
  const auto batch = test::batch_of({5, 3}, {4, 2}, 5, 5);
  const auto run = [&] {
    return built.model.decode(batch.target_in,
                              built.model.encode(batch.source, batch.source_lengths),
                              batch.source_lengths);
  };
  const auto alone = run().value().to_vector<double>();
  AttentionRecorder recorder(/*with_scores=*/true);
  EXPECT_EQ(run().value().to_vector<double>(), alone);
  const auto& maps = recorder.maps();
  ASSERT_EQ(maps.size(), size_t(options.encoder_layers + 2 * options.decoder_layers));
  for (size_t i = 0; i < maps.size(); ++i) {
    const bool self_in_decoder =
        i >= size_t(options.encoder_layers) && (i - size_t(options.encoder_layers)) % 2 == 0;
    const Shape& shape = maps[i].weights.shape();
    ASSERT_EQ(shape, (Shape{2, options.num_attention_heads, shape[2], shape[3]}));
    const auto weights = maps[i].weights.to_vector<double>();
    ASSERT_EQ(maps[i].products.shape(), shape);
    ASSERT_EQ(maps[i].scores.shape(), shape);
    const auto products = maps[i].products.to_vector<double>();
    const auto scores = maps[i].scores.to_vector<double>();
    const int64_t heads = shape[1], rows = shape[2], keys = shape[3];
    for (int64_t cell = 0; cell < 2 * heads * rows; ++cell) {
      const int64_t b = cell / (heads * rows), t = cell % rows;
      double total = 0, exponentials = 0, scale = 0;
      for (int64_t s = 0; s < keys; ++s) {
        const auto at = size_t(cell * keys + s);
        exponentials += std::exp(scores[at]);
        // One factor between all products and scores.
        if (scores[at] == -INFINITY) continue;
        if (scale == 0) scale = scores[at] / products[at];
        EXPECT_NEAR(scores[at], scale * products[at], 1e-12);
      }
      for (int64_t s = 0; s < keys; ++s) {
        const double weight = weights[size_t(cell * keys + s)];
        EXPECT_NEAR(weight, std::exp(scores[size_t(cell * keys + s)]) / exponentials, 1e-12);
        const int64_t length = b == 0 ? 5 : 3;
        const bool hidden = self_in_decoder ? s > t : s >= length;
        EXPECT_TRUE(!hidden || weight == 0) << i << ' ' << b << ' ' << s << ": " << weight;
        total += weight;
      }
      EXPECT_NEAR(total, 1, 1e-12);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, AttentionRecorders,
                         testing::Values(test::post_norm_options(), test::pre_norm_options(),
                                         recorded_latent_options()));

TEST(AttentionRecorders, OnlyOneIsAlive) {
  const AttentionRecorder first;
  EXPECT_EQ(test::error_of([] { const AttentionRecorder second; }),
            "[attention] a recorder is already alive on this thread.");
}

}  // namespace
}  // namespace tapestry
