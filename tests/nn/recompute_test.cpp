// Models that compute the activations of their layers again: the same losses, gradients and weights
// to the last bit, in less memory.
#include "core/allocator.h"
#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using test::with_dropout;

struct Trained {
  std::vector<Tensor> losses;
  std::vector<Tensor> state;  ///< parameters and running statistics
  int64_t peak_bytes = 0;     ///< without the model itself
};

// A few updates by gradient descent.
template <class Loss>
Trained train(const ParamStore& store, Loss loss) {
  Trained result;
  const int64_t before = host_memory().bytes_in_use;
  reset_peak_bytes();
  for (uint32_t step = 0; step < 4; ++step) {
    const test::Pass pass = test::train_pass(store, loss, {.seed = 1, .step = step, .stream = 0});
    result.losses.push_back(pass.loss);
    size_t i = 0;
    for (const Parameter& p : store.parameters()) {
      const Tensor& gradient = pass.gradients[i++];
      if (p.trained) p.var.value().copy_from((p.var + -0.1 * Var(gradient)).value());
    }
  }
  result.peak_bytes = host_memory().peak_bytes - before;
  for (const Parameter& p : store.parameters()) result.state.push_back(p.var.value());
  return result;
}

Trained train_translation(ModelOptions options, bool recompute, DType dtype,
                          const EncoderDecoder::Batch& batch = test::batch_of({5, 3, 7}, {4, 6, 2},
                                                                              7, 7)) {
  options.recompute = recompute;
  const test::SmallModel small(options, dtype);
  return train(small.store, [&] { return small.model.loss(batch, {.label_smoothing = 0.1}).loss; });
}

Trained train_text(ModelOptions options, bool recompute, DType dtype, bool causal,
                   const std::vector<int32_t>& lengths = {7, 4, 9}) {
  options.recompute = recompute;
  const test::SmallLanguageModel small(options, causal, dtype);
  const LanguageModel::Batch batch = test::text_batch(lengths, 9, causal);
  return train(small.store, [&] { return small.model.loss(batch, {}).loss; });
}

void expect_same_bits(const Trained& a, const Trained& b) {
  for (size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_TRUE(test::same_bits(a.losses[i], b.losses[i])) << "loss " << i;
  }
  for (size_t i = 0; i < a.state.size(); ++i) {
    EXPECT_TRUE(test::same_bits(a.state[i], b.state[i])) << "parameter " << i;
  }
}

class RecomputeTest : public testing::TestWithParam<DType> {};

TEST_P(RecomputeTest, EncoderDecodersTrainToTheSameBits) {
  ModelOptions latent = test::post_norm_options(), batch_norm = latent, recurrent = latent;
  latent.kv_latent_size = 6;
  recurrent.decoder_self_attention = DecoderSelfAttention::kSsru;
  batch_norm.norm = NormKind::kBatch;
  for (const ModelOptions& options :
       {test::post_norm_options(), test::pre_norm_options(), latent, batch_norm, recurrent}) {
    expect_same_bits(train_translation(with_dropout(options), false, GetParam()),
                     train_translation(with_dropout(options), true, GetParam()));
  }
}

TEST_P(RecomputeTest, LanguageModelsTrainToTheSameBits) {
  for (const ModelOptions& options : {test::gpt2_options(), test::llama_options()}) {
    expect_same_bits(train_text(with_dropout(options), false, GetParam(), /*causal=*/true),
                     train_text(with_dropout(options), true, GetParam(), /*causal=*/true));
  }
  const ModelOptions bert = with_dropout(test::bert_options());
  expect_same_bits(train_text(bert, false, GetParam(), /*causal=*/false),
                   train_text(bert, true, GetParam(), /*causal=*/false));
}

INSTANTIATE_TEST_SUITE_P(Types, RecomputeTest, testing::Values(DType::kFloat32, DType::kFloat64),
                         [](const auto& info) { return name_of(info.param); });

TEST(RecomputeMemory, DeepModelsTakeAFractionOfIt) {
  ModelOptions options = with_dropout(test::gpt2_options());
  options.num_hidden_layers = 24;
  const std::vector<int32_t> lengths(256, 9);  // activations outweigh parameters
  const auto text = [&](bool recompute) {
    return train_text(options, recompute, DType::kFloat32, /*causal=*/true, lengths).peak_bytes;
  };
  EXPECT_LT(text(true), text(false) / 4);
  options = with_dropout(test::post_norm_options());
  options.encoder_layers = options.decoder_layers = 12;
  const EncoderDecoder::Batch batch = test::batch_of(lengths, lengths, 10, 10);
  const auto translation = [&](bool recompute) {
    return train_translation(options, recompute, DType::kFloat32, batch).peak_bytes;
  };
  EXPECT_LT(translation(true), translation(false) / 4);
}

}  // namespace
}  // namespace tapestry
