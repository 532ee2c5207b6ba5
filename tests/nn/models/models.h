// Small models and batches for the tests of nn.
#pragma once

#include <string>

#include "nn/models/language_model.h"
#include "nn/models/transformer.h"
#include "nn/models/translate.h"
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

/// [2, length], without special tokens.
inline Tensor some_ids(int64_t length, uint32_t stream) {
  return uniform_ids({2, length}, stream, 4, kVocabulary);
}

/// GPT-2, small: learned positions, pre-norm, a tied classifier.
inline ModelOptions gpt2_options() {
  ModelOptions options;
  options.hidden_size = 16;
  options.intermediate_size = 24;
  options.num_attention_heads = 4;
  options.num_hidden_layers = 2;
  options.hidden_act = Activation::kGeluTanh;
  options.norm_position = NormPosition::kPre;
  options.position_embedding = PositionEmbedding::kLearned;
  options.max_position_embeddings = 48;
  options.scale_embeddings = false;
  options.dropout = 0;
  return options;
}

/// Llama: rotary positions, RMS norms, swiglu, grouped key/value heads, no biases, nothing tied.
inline ModelOptions llama_options() {
  ModelOptions options = gpt2_options();
  options.num_key_value_heads = 2;
  options.hidden_act = {Activation::kSilu, /*gated=*/true};
  options.norm = NormKind::kRms;
  options.bias = false;
  options.position_embedding = PositionEmbedding::kRope;
  options.tie_word_embeddings = false;
  return options;
}

/// BERT: post-norm, segments, a norm of the embeddings.
inline ModelOptions bert_options() {
  ModelOptions options = gpt2_options();
  options.hidden_act = Activation::kGelu;
  options.norm_position = NormPosition::kPost;
  options.type_vocab_size = 2;
  options.embedding_norm = true;
  return options;
}

inline ModelOptions with_dropout(ModelOptions options) {
  options.dropout = 0.1;
  options.attention_dropout = 0.1;
  options.activation_dropout = 0.1;
  return options;
}

/// Moves every parameter a little: biases and scales start at 0 and 1, which would hide errors.
inline void disturb(const ParamStore& store) {
  uint32_t stream = 500;
  for (const Parameter& parameter : store.parameters()) {
    const Tensor& value = parameter.var.value();
    const Tensor noise = uniform(value.shape(), stream++, -0.2, 0.2).to(value.dtype());
    value.copy_from((Var(value) + Var(noise)).value());
  }
}

/// A model with its disturbed parameters.
template <class Model>
struct SmallModelOf {
  explicit SmallModelOf(const ModelOptions& options, DType dtype = DType::kFloat64,
                        const Vocabulary& vocabulary = {.source_size = kVocabulary,
                                                        .target_size = kVocabulary,
                                                        .no_target = 0})
      : store(5, dtype), model(options, vocabulary, store.root()) {
    disturb(store);
  }
  ParamStore store;
  Model model;
};
using SmallModel = SmallModelOf<EncoderDecoder>;

struct SmallLanguageModel {
  SmallLanguageModel(const ModelOptions& options, bool causal, DType dtype = DType::kFloat64)
      : store(5, dtype),
        model(options, {.size = kVocabulary, .no_target = 0}, causal, store.root()) {
    disturb(store);
  }
  ParamStore store;
  LanguageModel model;
};

/// The results of a training step before the update.
struct Pass {
  Tensor loss;
  std::vector<Tensor> gradients;  ///< of all parameters; zeros if there is none
};

/// The largest |a - b| (B, T, D) in front of the end of each row; without lengths all rows are
/// full.
inline double distance_of_tokens(const Tensor& a, const Tensor& b, const Tensor& lengths) {
  if (!lengths.defined()) return distance(a, b);
  double largest = a.shape() == b.shape() ? 0 : INFINITY;
  for (int64_t row = 0; row < lengths.numel(); ++row) {
    const auto tokens_of = [&](const Tensor& x) {
      return columns(slice(Var(x), 0, row, row + 1).value(), 0, lengths.data<int32_t>()[row]);
    };
    largest = std::max(largest, distance(tokens_of(a), tokens_of(b)));
  }
  return largest;
}

/// loss() and its gradients, under a tape with this key.
template <class F>
Pass train_pass(const ParamStore& store, F&& loss, PhiloxKey key = {}) {
  for (const Parameter& p : store.parameters()) p.var.zero_grad();
  Tape tape(key);
  const Var value = loss();
  tape.backward(value);
  Pass pass{value.value(), {}};
  for (const Parameter& p : store.parameters()) {
    const Tensor gradient = p.var.grad();
    pass.gradients.push_back(gradient.defined() ? gradient.clone()
                                                : Tensor::zeros(p.var.shape(), p.var.dtype()));
  }
  return pass;
}

inline bool same_bits(const Pass& a, const Pass& b) {
  bool all = same_bits(a.loss, b.loss);
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    all = all && same_bits(a.gradients[i], b.gradients[i]);
  }
  return all;
}

/// The largest distance between losses or gradients.
inline double distance(const Pass& a, const Pass& b) {
  double largest = distance(a.loss, b.loss);
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    largest = std::max(largest, distance(a.gradients[i], b.gradients[i]));
  }
  return largest;
}

/// Fills memory that the next tensors will reuse with NaN: a cache has memory that is never
/// written, and nothing may read it.
inline void poison_free_memory() {
  std::vector<Tensor> blocks;
  for (const int64_t size : {64, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536}) {
    for (int i = 0; i < 16; ++i) blocks.push_back(Tensor::full({size}, NAN, DType::kFloat64));
  }
}

/// Sentences of `lengths` tokens with ids from 4 up, padded with 0 to `width` columns.
inline Tensor sentences(const std::vector<int32_t>& lengths, int64_t width, uint32_t stream) {
  const auto count = static_cast<int64_t>(lengths.size());
  Tensor ids = uniform_ids({count, width}, stream, 4, kVocabulary);
  for (int64_t b = 0; b < count; ++b) {
    for (int64_t t = lengths[b]; t < width; ++t) ids.data<int32_t>()[b * width + t] = 0;
  }
  return ids;
}

/// ids (B, T) with columns of padding behind them.
inline Tensor widened(const Tensor& ids, int64_t width) {
  const Tensor wide = Tensor::zeros({ids.shape()[0], width}, DType::kInt32);
  for (int64_t b = 0; b < ids.shape()[0]; ++b) {
    std::copy_n(ids.data<int32_t>() + b * ids.shape()[1], ids.shape()[1],
                wide.data<int32_t>() + b * width);
  }
  return wide;
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

/// A batch of a causal model (targets are the next tokens) or of a masked one (every third token,
/// another one of some).
inline LanguageModel::Batch text_batch(const std::vector<int32_t>& lengths, int64_t width,
                                       bool causal) {
  LanguageModel::Batch batch{sentences(lengths, width, 1), {}, lengths_tensor(lengths)};
  batch.targets = Tensor::zeros(batch.ids.shape(), DType::kInt32);
  for (size_t b = 0; b < lengths.size(); ++b) {
    int32_t* const id = batch.ids.data<int32_t>() + b * width;
    int32_t* const target = batch.targets.data<int32_t>() + b * width;
    for (int32_t t = 0; t < lengths[b]; ++t) {
      if (causal) {
        target[t] = t + 1 < lengths[b] ? id[t + 1] : 3;
      } else if ((t + b) % 3 == 0) {
        target[t] = id[t];
        if (t % 2 == 0) id[t] = 1;
      }
    }
  }
  return batch;
}

/// The state of a decoding of these sources, before its first token.
template <class Model>
typename Model::State started(const Model& model, const Tensor& source, const Tensor& lengths) {
  typename Model::State state;
  model.add(source, lengths, state);
  return state;
}

/// The state of a decoding that has read the first `count` tokens of each row of ids (B, T).
inline LanguageModel::State started(const LanguageModel& model, const Tensor& ids, int64_t count) {
  LanguageModel::State state;
  const std::vector<int32_t> lengths(static_cast<size_t>(ids.shape()[0]),
                                     static_cast<int32_t>(count));
  model.add(columns(ids, 0, count), lengths, /*prefix=*/false, state);
  return state;
}

/// Logits (B, V) after column t, of a decoding that has read the ones before.
inline Tensor step_of(const LanguageModel& model, const Tensor& ids, int64_t t,
                      LanguageModel::State& state) {
  return model.step(columns(ids, t, t + 1).reshape({ids.shape()[0]}), state);
}

}  // namespace tapestry::test
