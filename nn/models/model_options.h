// A model's options: one place for each default, and for the options of its layers that follow from
// them.
#pragma once

#include <optional>
#include <vector>

#include "nn/attention/attention_pooling.h"
#include "nn/attention/latent_attention.h"
#include "nn/attention/ssru.h"

namespace tapestry {

/// The batch's variance in the running average: divided by the rows less one (PyTorch), or by the
/// rows.
enum class RunningVariance { kUnbiased, kBiased };

/// Which projections of attention have a bias: as the other layers (ModelOptions::bias), none,
/// those of queries, keys and values (Qwen2), or these and the one behind them.
enum class AttentionBias { kAsOthers, kNone, kInputs, kAll };

/// What a layer's self-attention sees and knows: all tokens (full), those in the window, or all of
/// them without rotary positions (NoPE: Yang et al. 2025; SmolLM3).
enum class LayerType { kFull, kWindow, kNope };
constexpr const char* name_of(LayerType type) {
  switch (type) {
    case LayerType::kFull:
      return "full";
    case LayerType::kWindow:
      return "window";
    case LayerType::kNope:
      return "nope";
  }
  return nullptr;
}

/// What an encoder-decoder's decoder has in the place of self-attention: itself, or the recurrence
/// of nn/attention/ssru.h, whose steps cost the same however long the text is.
enum class DecoderSelfAttention { kAttention, kSsru };
constexpr const char* name_of(DecoderSelfAttention kind) {
  switch (kind) {
    case DecoderSelfAttention::kAttention:
      return "attention";
    case DecoderSelfAttention::kSsru:
      return "ssru";
  }
  return nullptr;
}

/// What a classifier of texts reads: act(dense(x)), with tanh (BERT), relu (DistilBERT) or gelu
/// (ELECTRA), or norm(gelu(dense(x))) (ModernBERT), where x is the first token's vector, or the
/// mean of all.
enum class Pooler { kTanh, kRelu, kGelu, kNormed };

/// Which of a text's token vectors become its own: their mean, the first's, or the last's.
enum class TextPooling { kMean, kFirst, kLast };

/// kFairseq: fairseq_positions(), from position 2 on.
enum class PositionEmbedding { kSinusoidal, kLearned, kRope, kAlibi, kRelative, kNone, kFairseq };

/// Names and meanings follow Hugging Face.
struct ModelOptions {
  int64_t hidden_size = 256;         ///< D
  int64_t intermediate_size = 1024;  ///< F
  int64_t num_attention_heads = 4;   ///< H
  int64_t num_key_value_heads = 0;   ///< G; 0: as many as heads
  int64_t head_size = 0;             ///< K, of a head's queries and keys; 0: hidden_size / heads
  int64_t value_head_size = 0;       ///< Kv, of a head's values; 0: K
  int64_t attention_window = 0;      ///< of self-attention, AttentionOptions::window; 0: none
  /// Layer i is of type i modulo their number; empty: all have the window, if there is one.
  std::vector<LayerType> layer_types = {};
  double attention_scale = 0;    ///< factor of all scores; 0: 1 / sqrt(K)
  double attention_softcap = 0;  ///< of the scaled scores, AttentionOptions::softcap; 0: none
  /// Latent self-attention (nn/attention/latent_attention.h) with C numbers per token; 0: ordinary
  /// attention.
  int64_t kv_latent_size = 0;
  int64_t q_latent_size = 0;   ///< latent size of its queries; 0: they come from the input
  int64_t rope_head_size = 0;  ///< R, its rotary part under rope; 0: half of K
  DecoderSelfAttention decoder_self_attention = DecoderSelfAttention::kAttention;
  int64_t encoder_layers = 3;  ///< of an encoder-decoder, like decoder_layers
  int64_t decoder_layers = 3;
  int64_t num_hidden_layers = 4;  ///< of an encoder-only or decoder-only model
  HiddenAct hidden_act = {};
  NormKind norm = NormKind::kLayer;
  NormPosition norm_position = NormPosition::kPost;
  std::optional<bool> final_norm = {};  ///< a norm behind each stack; unset: in pre-norm models
  double norm_eps = 1e-5;
  bool norm_unit_offset = false;  ///< weights of norms are stored as w - 1 (Gemma)
  /// A layer's sub-layers read the same input and are added together (GPT-NeoX); pre-norm only.
  bool parallel_residual = false;
  bool shared_norm = false;  ///< one norm of that input for both (GPT-J), not one for each
  bool first_norm = true;    ///< a norm before the first sub-layer of a stack (not ModernBERT's)
  /// Each layer but the first reads a x + b x0, of the residual stream x and the embeddings x0,
  /// with a learned a, 1 at first, and b, 0.
  bool residual_scalars = false;
  /// Each self-attention but the first has the values c v + d v1, of its own v and the first one's
  /// v1, with a learned c and d, 1/2 at first (Zhou et al. 2024, "Value residual learning").
  bool value_residual = false;
  RunningVariance norm_running_variance = RunningVariance::kUnbiased;  ///< of batch norms
  double norm_momentum = 0.1;  ///< the batch's share of their running statistics
  bool bias = true;            ///< linear layers and layer norms of the trunk have one
  AttentionBias attention_bias = AttentionBias::kAsOthers;
  QkNorm qk_norm = QkNorm::kNone;
  PositionEmbedding position_embedding = PositionEmbedding::kSinusoidal;
  /// Positions of the training, special tokens included. Learned ones end here; others go on.
  int64_t max_position_embeddings = 1024;
  double rope_theta = 10000;
  RopeScaling rope_scaling = {};
  RopeLayout rope_layout = RopeLayout::kHalf;
  double partial_rotary_factor = 1;  ///< the share of a head that is rotated: its first numbers
  /// The base of layers with a window, whose positions are never scaled; 0: as all others.
  double window_rope_theta = 0;
  /// Of kRelative: the number of its biases for a head, and the distance from which on all share
  /// one (relative_bucket()).
  int64_t relative_attention_num_buckets = 32;
  int64_t relative_attention_max_distance = 128;
  int64_t type_vocab_size = 0;  ///< number of segment embeddings (BERT's 2); 0: none
  bool embedding_norm = false;  ///< norm of the summed embeddings (BERT)
  /// Width of an encoder's tables, whose sum a matrix widens (ALBERT, ELECTRA): its masked head is
  /// as narrow; 0: hidden_size, without that matrix.
  int64_t embedding_size = 0;
  bool tie_word_embeddings = true;  ///< classifier = target embedding (= source embedding)
  /// With one vocabulary an untied encoder-decoder has one embedding table for both sides, too.
  bool share_encoder_decoder_embeddings = false;
  bool output_bias = false;      ///< the classifier over the vocabulary has one, tied or not
  bool transformed_head = true;  ///< a masked model's classifier reads dense, activation and norm
  bool scale_embeddings = true;  ///< by sqrt(D)
  double logit_scale = 1;        ///< factor of the logits of a model that writes
  double logit_softcap = 0;      ///< these, so scaled, are at most as large; 0: no limit
  /// Initializer of all matrices; unset: kNormal with an initializer_range, else kXavierPacked.
  std::optional<Initializer> initializer = {};
  /// The deviation of kNormal. In a pre-norm model the projections back into the residual stream
  /// start as N(0, range^2 / branches), one branch a sub-layer (Radford et al. 2019).
  double initializer_range = 0;
  /// These projections start as zeros, each layer as the identity (Goyal et al. 2017; Zhang et al.
  /// 2019).
  bool zero_branches = false;
  /// For a recurrent encoder-decoder: each step of the decoder attends to the source; otherwise it
  /// gets one fixed vector of it (Cho et al. 2014).
  bool attends = true;
  int64_t patch_size = 16;        ///< side in pixels of a Vision Transformer's patches
  bool pooled_head = true;        ///< its head has a hidden layer: an MLP, else linear
  Pooler pooler = Pooler::kTanh;  ///< the hidden layer in front of a classifier of texts
  bool pooled_tokens = false;     ///< classes of tokens and spans are read behind it, too
  TextPooling class_pooling = TextPooling::kFirst;  ///< what the pooler of a text reads
  TextPooling text_pooling = TextPooling::kMean;    ///< what becomes a text's vector
  bool unit_vectors = true;                         ///< the vectors of texts have length 1
  /// Of the dense layer behind the pooling, and so of the vectors; 0: no such layer.
  int64_t vector_size = 0;
  bool vector_tanh = true;  ///< that layer ends in tanh
  bool vector_bias = true;
  /// Numbers of a text's vector.
  int64_t text_vector_size() const { return vector_size > 0 ? vector_size : hidden_size; }
  bool distillation_token = false;  ///< a learned token behind a Vision Transformer's CLS (DeiT)
  AttentionPooling::Options pooling = {};  ///< of attention pooling, which reads nothing else here
  /// The layer of the decoder, from 1, whose first head's attention to the source was guided by
  /// alignments; 0: none. It changes no output.
  int64_t alignment_layer = 0;
  double dropout = 0.1;             ///< of embeddings and sub-layer outputs
  double attention_dropout = 0.0;   ///< of attention weights
  double activation_dropout = 0.0;  ///< inside the feed-forward network
  /// Training keeps only the input of each layer, and backward computes the rest again: less memory
  /// for about a third more time, the same bits (autograd/recompute.h).
  bool recompute = false;

  /// For a causal model: the tokens of a prompt see the whole prompt (Dong et al. 2019; Raffel et
  /// al. 2020, 3.2.1). Batches give its end; a search takes its first tokens as the prompt.
  bool prefix_lm = false;

  static constexpr int64_t kEndless = int64_t{1} << 40;
  /// The longest sequence that the model can read or write: kEndless, unless positions are learned.
  int64_t longest_sequence() const {
    return position_embedding == PositionEmbedding::kLearned ? max_position_embeddings : kEndless;
  }

  Initializer chosen_initializer() const;
  int64_t embedding_width() const { return embedding_size > 0 ? embedding_size : hidden_size; }
  /// K; of a model with attention.
  int64_t chosen_head_size() const {
    return head_size > 0 ? head_size : hidden_size / num_attention_heads;
  }
  /// Whether the projections of queries, keys and values have a bias, and the one behind them.
  bool has_query_bias() const {
    return attention_bias == AttentionBias::kAsOthers ? bias
                                                      : attention_bias != AttentionBias::kNone;
  }
  bool has_attention_out_bias() const {
    return attention_bias == AttentionBias::kAsOthers ? bias
                                                      : attention_bias == AttentionBias::kAll;
  }
  bool is_recurrent() const { return decoder_self_attention == DecoderSelfAttention::kSsru; }
  bool has_final_norm() const { return final_norm.value_or(norm_position != NormPosition::kPost); }
  /// The options of layer `i` of a stack, with its own window, positions and first norm, and what
  /// it takes from earlier layers.
  ModelOptions of_layer(int64_t i) const;

  /// Sizes that do not fit each other, of a model with attention.
  void validate(const OptionReport& report = OptionReport::throwing("model")) const;
};

/// An initializer_range without kNormal, or the reverse.
void validate_initializer(const ModelOptions& options,
                          const OptionReport& report = OptionReport::throwing("model"));

/// Initial values of a matrix that does not write into the residual stream.
MatrixInit matrix_init(const ModelOptions& options);
/// The options of each layer. `branches`: sub-layers that add to the layer's residual stream.
MultiHeadAttention::Options attention_options(const ModelOptions& options, int64_t branches);
LatentAttention::Options latent_attention_options(const ModelOptions& options, int64_t branches);
Ssru::Options ssru_options(const ModelOptions& options);
FeedForward::Options feed_forward_options(const ModelOptions& options, int64_t branches);
Norm::Options norm_options(const ModelOptions& options);
Residual::Options residual_options(const ModelOptions& options);
/// That of a layer's first sub-layer.
Residual::Options first_residual_options(const ModelOptions& options);
/// That of a sub-layer whose input is normalised already.
Residual::Options unnormed_residual_options(const ModelOptions& options);

/// Cache bytes of one token in the self-attention of one layer: 2G * K numbers, or C + R, or D of a
/// recurrence.
int64_t cache_bytes_per_token(const ModelOptions& options, DType dtype);

}  // namespace tapestry
