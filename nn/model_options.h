// What a model is made of: one place for each default, and how its layers take them.
#pragma once

#include "nn/attention_pooling.h"
#include "nn/latent_attention.h"

namespace tapestry {

enum class PositionEmbedding { kSinusoidal, kLearned, kRope, kNone };

/// Names and meanings follow Hugging Face.
struct ModelOptions {
  int64_t hidden_size = 256;         ///< D
  int64_t intermediate_size = 1024;  ///< F
  int64_t num_attention_heads = 4;   ///< H
  int64_t num_key_value_heads = 0;   ///< G; 0: as many as heads
  /// Latent self-attention (nn/latent_attention.h) instead: C; 0: no.
  int64_t kv_latent_size = 0;
  int64_t q_latent_size = 0;   ///< of its queries; 0: they have none
  int64_t rope_head_size = 0;  ///< R, its rotary part under rope; 0: half of K
  int64_t encoder_layers = 3;  ///< of an encoder-decoder, like decoder_layers
  int64_t decoder_layers = 3;
  int64_t num_hidden_layers = 4;  ///< of an encoder or a decoder alone
  HiddenAct hidden_act = {};
  NormKind norm = NormKind::kLayer;
  NormPosition norm_position = NormPosition::kPost;
  double norm_eps = 1e-5;
  bool bias = true;  ///< linear layers and layer norms of the trunk have one
  PositionEmbedding position_embedding = PositionEmbedding::kSinusoidal;
  int64_t max_position_embeddings = 1024;  ///< longest sequence, special tokens included
  double rope_theta = 10000;
  RopeLayout rope_layout = RopeLayout::kHalf;
  int64_t type_vocab_size = 0;      ///< segment embeddings (BERT's 2); 0: none
  bool embedding_norm = false;      ///< norm of the summed embeddings (BERT)
  bool tie_word_embeddings = true;  ///< classifier = target embedding (= source embedding)
  bool scale_embeddings = true;     ///< by sqrt(D)
  /// Matrices and embeddings start as N(0, range^2); in a pre-norm model the projections back into
  /// the residual stream as N(0, range^2 / branches), one branch a sub-layer (Radford et al. 2019).
  /// 0: Xavier uniform, embeddings N(0, 1 / D).
  double initializer_range = 0;
  int64_t patch_size = 16;  ///< of a Vision Transformer: its patches are so many pixels square
  bool pooled_head = true;  ///< its head has a hidden layer: an MLP, else linear
  AttentionPooling::Options pooling;  ///< of attention pooling, which reads nothing else here
  double dropout = 0.1;               ///< of embeddings and sub-layer outputs
  double attention_dropout = 0.0;     ///< of attention weights
  double activation_dropout = 0.0;    ///< inside the feed-forward network
  /// Training keeps the input of each layer alone and backward computes the rest again: less memory
  /// for about a third more time, the same bits (autograd/recompute.h).
  bool recompute = false;

  /// Sizes that do not fit each other, of a model with attention.
  void validate(const OptionReport& report = OptionReport::throwing("model")) const;
};

/// The options of each layer. `branches`: sub-layers that add to the layer's residual stream.
MultiHeadAttention::Options attention_options(const ModelOptions& options, int64_t branches);
LatentAttention::Options latent_attention_options(const ModelOptions& options, int64_t branches);
FeedForward::Options feed_forward_options(const ModelOptions& options, int64_t branches);
Norm::Options norm_options(const ModelOptions& options);
Residual::Options residual_options(const ModelOptions& options);

/// What decoding keeps of one token in the self-attention of one layer: 2G * K numbers, or C + R.
int64_t cache_bytes_per_token(const ModelOptions& options, DType dtype);

}  // namespace tapestry
