// Small models and batches for the tests of nn.
#pragma once

#include <string>

#include "nn/decoding.h"
#include "nn/transformer.h"
#include "tests/autograd/support.h"

namespace tapestry::test {

inline ModelOptions post_norm_options() {
  ModelOptions options;
  options.hidden_size = 16;
  options.intermediate_size = 24;
  options.num_attention_heads = 4;
  options.encoder_layers = 2;
  options.decoder_layers = 2;
  options.max_position_embeddings = 64;
  options.dropout = 0;
  return options;
}

/// Pre-norm, RMS, grouped key/value heads, learned positions, nothing tied.
inline ModelOptions pre_norm_options() {
  ModelOptions options = post_norm_options();
  options.num_key_value_heads = 2;
  options.hidden_act = Activation::kSilu;
  options.norm = NormKind::kRms;
  options.norm_position = NormPosition::kPre;
  options.position_embedding = PositionEmbedding::kLearned;
  options.tie_word_embeddings = false;
  return options;
}

inline constexpr int64_t kVocabulary = 19;

/// A model with its parameters; biases and scales are moved from 0 and 1.
template <class Model>
struct SmallModelOf {
  explicit SmallModelOf(const ModelOptions& options, DType dtype = DType::kFloat64,
                        const Vocabulary& vocabulary = {.source_size = kVocabulary,
                                                        .target_size = kVocabulary})
      : store(5, dtype), model(options, vocabulary, store.root()) {
    uint32_t stream = 500;
    for (const Parameter& parameter : store.parameters()) {
      const Tensor& value = parameter.var.value();
      const Tensor noise = uniform(value.shape(), stream++, -0.2, 0.2).to(dtype);
      value.copy_from((Var(value) + Var(noise)).value());
    }
  }
  ParamStore store;
  Model model;
};
using SmallModel = SmallModelOf<EncoderDecoder>;

/// Sentences of `lengths` tokens with ids from 4 up, padded with 0 to `width` columns.
inline Tensor sentences(const std::vector<int32_t>& lengths, int64_t width, uint32_t stream) {
  const auto count = static_cast<int64_t>(lengths.size());
  Tensor ids = uniform_ids({count, width}, stream, 4, kVocabulary);
  for (int64_t b = 0; b < count; ++b) {
    for (int64_t t = lengths[b]; t < width; ++t) ids.data<int32_t>()[b * width + t] = 0;
  }
  return ids;
}

inline Tensor lengths_tensor(const std::vector<int32_t>& lengths) {
  return Tensor::from<int32_t>(lengths, {static_cast<int64_t>(lengths.size())});
}

/// A training batch: sentences of the given lengths on both sides, bos 2 and eos 3.
inline EncoderDecoder::Batch batch_of(const std::vector<int32_t>& source_lengths,
                                      const std::vector<int32_t>& target_lengths,
                                      int64_t source_width, int64_t target_width) {
  const auto count = static_cast<int64_t>(target_lengths.size());
  EncoderDecoder::Batch batch{sentences(source_lengths, source_width, 1),
                              lengths_tensor(source_lengths),
                              Tensor::zeros({count, target_width}, DType::kInt32),
                              Tensor::zeros({count, target_width}, DType::kInt32)};
  const Tensor words = sentences(target_lengths, target_width, 2);
  for (int64_t b = 0; b < count; ++b) {
    const int32_t* word = words.data<int32_t>() + b * target_width;
    int32_t* in = batch.target_in.data<int32_t>() + b * target_width;
    int32_t* out = batch.target_out.data<int32_t>() + b * target_width;
    const int32_t length = target_lengths[b];  // of the words; eos makes one more
    in[0] = 2;
    for (int32_t t = 0; t < length; ++t) in[t + 1] = out[t] = word[t];
    out[length] = 3;
  }
  return batch;
}

}  // namespace tapestry::test
