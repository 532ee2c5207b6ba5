#include <algorithm>
#include <array>

#include "apps/config/sections.h"
#include "core/base/enumerators.h"

namespace tapestry {
namespace {

// Wider than any model, and so narrow that no product of a few sizes leaves 64 bits.
constexpr double kMostLayers = 1 << 16;
constexpr double kMostBuckets = 1 << 16;

void bind_rope_scaling(ConfigSection& s, RopeScaling& scaling) {
  s.read_choice("type", scaling.type, named(kRopeScalingTypes),
                "none; linear: divides all frequencies by factor; llama3: only those of long "
                "waves, as Llama 3.1 does; yarn: the same by a line over their numbers; dynamic: "
                "a larger rope_theta for max_position_embeddings; longrope: each by a number of "
                "its own (Phi 3).");
  s.read_if(scaling.type != RopeScalingType::kNone, "with type: none", "factor", scaling.factor,
            "How much longer the texts are.", positive());
  const bool llama3 = scaling.type == RopeScalingType::kLlama3;
  const std::string why = concat("with type: ", name_of(scaling.type));
  s.read_if(llama3, why, "low_freq_factor", scaling.low_freq_factor,
            "Waves longer than original_max_position_embeddings / low_freq_factor are divided.",
            positive());
  s.read_if(llama3, why, "high_freq_factor", scaling.high_freq_factor,
            "Waves shorter than original_max_position_embeddings / high_freq_factor stay.",
            positive());
  s.read_if(scaling.has_original_length(), why, "original_max_position_embeddings",
            scaling.original_max_position_embeddings, "Positions of the first training.",
            between(1, double(BlockOptions::kLongest)));
  const bool yarn = scaling.type == RopeScalingType::kYarn;
  s.read_if(yarn, why, "beta_fast", scaling.beta_fast,
            "Frequencies with more turns in the first training's positions stay.", positive());
  s.read_if(yarn, why, "beta_slow", scaling.beta_slow,
            "Frequencies with fewer turns are divided by factor.", positive());
  s.read_if(yarn, why, "truncate", scaling.truncate,
            "The frequencies between the two are counted in whole numbers.");
  s.read_if(scaling.has_attention_factor(), why, "attention_factor", scaling.attention_factor,
            "Factor of rotated queries and keys; 0: the type's own, which follows from factor.",
            at_least(0));
  const bool longrope = scaling.type == RopeScalingType::kLongrope;
  s.read_if(longrope, why, "short_factor", scaling.short_factor,
            "Divisors of the frequencies, one for two rotated numbers of a head, up to "
            "original_max_position_embeddings.",
            positive());
  s.read_if(longrope, why, "long_factor", scaling.long_factor,
            "The same of a model with more max_position_embeddings.", positive());
}

// The keys of Transformers: `applies` to the model, or `why` it does not.
struct TransformerKeys {
  ConfigSection& s;
  ModelOptions& model;
  bool applies;
  std::string why;

  bool ordinary() const { return applies && model.kv_latent_size == 0; }
  std::string why_ordinary() const { return applies ? "with kv_latent_size" : why; }
};

void bind_norms(const TransformerKeys& keys) {
  const auto& [s, model, applies, why] = keys;
  bool final_norm = model.has_final_norm();
  s.read_if(applies, why, "final_norm", final_norm, "A norm behind the last layer of each stack.");
  if (applies) model.final_norm = final_norm;
  const bool pre = applies && model.norm_position == NormPosition::kPre;
  const std::string why_pre = applies ? "without norm_position: pre" : why;
  s.read_if(pre, why_pre, "first_norm", model.first_norm,
            "A norm before the first sub-layer of a stack, which ModernBERT lacks.");
  s.read_if(pre, why_pre, "parallel_residual", model.parallel_residual,
            "Attention and the feed-forward network read the same input (GPT-NeoX), not one the "
            "other's output.");
  s.read_if(pre, why_pre, "shared_norm", model.shared_norm,
            "With parallel_residual both read it through one norm (GPT-J, Phi, Cohere).");
  const bool stream = applies && model.norm_position != NormPosition::kPost;
  s.read_if(stream, applies ? "with norm_position: post" : why, "residual_scalars",
            model.residual_scalars,
            "Each layer but the first reads a x + b x0, of the stream x and the embeddings x0; it "
            "learns a, 1 at first, and b, 0.");
  s.read_if(keys.ordinary(), keys.why_ordinary(), "value_residual", model.value_residual,
            "Each self-attention but the first has the values c v + d v1, of its own v and the "
            "first layer's v1; it learns c and d, 1/2 at first.");
  s.read_if(applies, why, "norm_eps", model.norm_eps, "Added to the variance before its root.",
            positive());
  const bool batch = applies && model.norm == NormKind::kBatch;
  s.read_if(applies && !batch, applies ? "with norm: batchnorm" : why, "norm_unit_offset",
            model.norm_unit_offset, "The weights of norms are stored as w - 1, as Gemma's.");
  s.read_choice_if(batch, "without norm: batchnorm", "norm_running_variance",
                   model.norm_running_variance,
                   {{"unbiased", RunningVariance::kUnbiased}, {"biased", RunningVariance::kBiased}},
                   "The batch's variance as the running average takes it: divided by its rows less "
                   "one, as PyTorch does, or by its rows.");
  s.read_if(batch, "without norm: batchnorm", "norm_momentum", model.norm_momentum,
            "The share of a batch in the running statistics.", above_up_to(0, 1));
}

void bind_layer_types(const TransformerKeys& keys) {
  const auto& [s, model, applies, why] = keys;
  std::vector<std::string> names;
  for (const LayerType type : model.layer_types) names.emplace_back(name_of(type));
  s.read_if(applies, why, "layer_types", names,
            "Kinds of layers in their order, again and again: full, window (only these have the "
            "attention_window), or nope (all tokens, without rotary positions). [window, full] "
            "is Gemma 2's; empty: all are alike.");
  model.layer_types.clear();
  for (const std::string& name : names) {
    const auto types = enumerators<LayerType>();
    const auto found = std::ranges::find(types, name, [](LayerType t) { return name_of(t); });
    if (found == types.end()) {
      s.complain("layer_types", "'model.layer_types': expected full, window or nope, got '", name,
                 "'.");
    } else {
      model.layer_types.push_back(*found);
    }
  }
}

void bind_heads(const TransformerKeys& keys, bool prompts) {
  const auto& [s, model, applies, why] = keys;
  s.read_if(applies, why, "intermediate_size", model.intermediate_size,
            "Width of the hidden layer of the feed-forward network.", between(1, kMostWidth));
  s.read_if(applies, why, "num_attention_heads", model.num_attention_heads,
            "Attention heads; without head_size they divide hidden_size.", between(1, kMostWidth));
  s.read_if(applies, why, "head_size", model.head_size,
            "Size of a head's queries and keys; 0: hidden_size / num_attention_heads.",
            between(0, kMostWidth));
  const bool latent = s.given("kv_latent_size") || model.kv_latent_size > 0;
  const std::string why_latent = applies ? "without kv_latent_size" : why;
  s.read_if(applies, why, "num_key_value_heads", model.num_key_value_heads,
            "Heads of keys and values that groups of heads share (grouped-query attention); 0: as "
            "many as num_attention_heads.",
            between(0, kMostWidth));
  s.read_if(applies, why, "value_head_size", model.value_head_size,
            "Size of a head's values; 0: as large as queries and keys.", between(0, kMostWidth));
  s.read_if(applies, why, "attention_window", model.attention_window,
            "Self-attention sees only tokens that are less than so many places away (sliding "
            "window); 0: all.",
            between(0, double(BlockOptions::kLongest)));
  bind_layer_types(keys);
  s.read_if(applies && prompts, applies ? "without prompts" : why, "prefix_lm", model.prefix_lm,
            "The tokens of a prompt see the whole prompt, not only what is before.");
  s.read_if(applies, why, "kv_latent_size", model.kv_latent_size,
            "Size of the latent that keys and values are made of (multi-head latent attention, "
            "DeepSeek-V2); 0: ordinary attention.",
            between(0, kMostWidth));
  s.read_if(applies && latent, why_latent, "q_latent_size", model.q_latent_size,
            "Size of the latent that queries are made of; 0: they come from the input itself.",
            between(0, kMostWidth));
  s.read_if(applies && latent, why_latent, "rope_head_size", model.rope_head_size,
            "Size of the part of a head that rotary positions turn, even; 0: half of a head.",
            between(0, kMostWidth));
}

void bind_layers(const TransformerKeys& keys) {
  const auto& [s, model, applies, why] = keys;
  s.read_choice_if(applies, why, "hidden_act", model.hidden_act, named(hidden_acts()),
                   "Activation of the feed-forward network; swiglu and geglu are gated and have a "
                   "third matrix.");
  s.read_choice_if(applies, why, "norm", model.norm,
                   {{"layernorm", NormKind::kLayer},
                    {"rmsnorm", NormKind::kRms},
                    {"batchnorm", NormKind::kBatch}},
                   "Normalization of the layers.");
  s.read_choice_if(
      applies, why, "norm_position", model.norm_position,
      named(std::array{NormPosition::kPost, NormPosition::kPre, NormPosition::kSandwich,
                       NormPosition::kBranch}),
      "Normalizes after the residual sum, as the first Transformer did (post), the input of each "
      "sub-layer (pre), its output (branch; OLMo 2), or both (sandwich; Gemma 3).");
  bind_norms(keys);
  s.read_if(applies, why, "bias", model.bias, "Linear layers and layer norms have a bias.");
}

void bind_attention(const TransformerKeys& keys) {
  const auto& [s, model, applies, why] = keys;
  s.read_choice_if(keys.ordinary(), keys.why_ordinary(), "attention_bias", model.attention_bias,
                   {{"auto", AttentionBias::kAsOthers},
                    {"none", AttentionBias::kNone},
                    {"qkv", AttentionBias::kInputs},
                    {"all", AttentionBias::kAll}},
                   "Projections of attention that have a bias: auto: as bias says; qkv: those of "
                   "queries, keys and values (Qwen2); all: the one behind them, too.");
  s.read_choice_if(
      keys.ordinary(), keys.why_ordinary(), "qk_norm", model.qk_norm,
      {{"none", QkNorm::kNone}, {"head", QkNorm::kHead}, {"projection", QkNorm::kProjection}},
      "RMSNorm of queries and keys before they are rotated: of each head (Qwen3, "
      "Gemma 3), or of all heads together (OLMo 2). It keeps training stable at "
      "higher rates.");
  s.read_if(keys.ordinary(), keys.why_ordinary(), "attention_scale", model.attention_scale,
            "Factor of the scores of attention; 0: 1 / the root of the head's size. T5 has 1.",
            at_least(0));
  s.read_if(keys.ordinary(), keys.why_ordinary(), "attention_softcap", model.attention_softcap,
            "Scores s of attention become softcap * tanh(s / softcap), so that none is larger; 0: "
            "no limit. Gemma 2 has 50.",
            at_least(0));
}

void bind_rope(const TransformerKeys& keys) {
  const auto& [s, model, applies, why] = keys;
  const bool rope = applies && model.position_embedding == PositionEmbedding::kRope;
  const char* const why_rope = "without position_embedding: rope";
  s.read_if(rope, why_rope, "rope_theta", model.rope_theta,
            "Base of the wave lengths of rotary positions.", positive());
  s.read_if(rope, why_rope, "window_rope_theta", model.window_rope_theta,
            "The same of layers with a window, whose positions are never scaled; 0: rope_theta.",
            at_least(0));
  s.read_if(rope && keys.ordinary(), rope ? "with kv_latent_size" : why_rope,
            "partial_rotary_factor", model.partial_rotary_factor,
            "The share of a head that is rotated: its first numbers (GPT-NeoX).",
            above_up_to(0, 1));
  s.read_choice_if(rope, why_rope, "rope_layout", model.rope_layout,
                   {{"half", RopeLayout::kHalf}, {"interleaved", RopeLayout::kInterleaved}},
                   "Which numbers of a head are turned together: i and i + half, or neighbours.");
  s.section_if(rope, why_rope, "rope_scaling",
               "Stretches rotary positions for texts longer than those of the first training.",
               [&](ConfigSection& inner) { bind_rope_scaling(inner, model.rope_scaling); });
}

void bind_positions(const TransformerKeys& keys) {
  const auto& [s, model, applies, why] = keys;
  s.read_choice_if(
      applies, why, "position_embedding", model.position_embedding,
      {{"sinusoidal", PositionEmbedding::kSinusoidal},
       {"learned", PositionEmbedding::kLearned},
       {"rope", PositionEmbedding::kRope},
       {"alibi", PositionEmbedding::kAlibi},
       {"relative", PositionEmbedding::kRelative},
       {"sinusoidal_fairseq", PositionEmbedding::kFairseq},
       {"none", PositionEmbedding::kNone}},
      "How the model knows where a token stands; alibi and relative (T5's buckets) add "
      "to the scores of attention by distance; sinusoidal_fairseq: M2M100's sinusoids.");
  const bool relative = applies && model.position_embedding == PositionEmbedding::kRelative;
  s.read_if(relative, "without position_embedding: relative", "relative_attention_num_buckets",
            model.relative_attention_num_buckets,
            "Biases that a head learns: of near distances one each, of wider and wider ones then.",
            between(4, kMostBuckets));
  s.read_if(relative, "without position_embedding: relative", "relative_attention_max_distance",
            model.relative_attention_max_distance,
            "Tokens that are at least so far away share the last of these biases.",
            between(3, kMostBuckets));
  bind_rope(keys);
}

// Recurrent and linear models do not have them.
void bind_transformer(ConfigSection& s, Config& config) {
  ModelOptions& model = config.model;
  const ModelType type = config.model_type;
  const bool applies = traits_of(type).has_attention;
  const bool images = examples_of(config).of_images();
  const std::string why = concat("with type: ", name_of(type));
  const TransformerKeys keys{s, model, applies, why};
  bind_heads(keys, examples_of(config).prompted);
  bind_layers(keys);
  bind_attention(keys);
  bind_positions(keys);
  s.read_if(examples_of(config).of_text(), why, "max_position_embeddings",
            model.max_position_embeddings,
            "Tokens of the longest sequence. Learned positions end there. Others go on to longer "
            "ones: then it only ends a text that is generated without max_new_tokens.",
            between(1, double(BlockOptions::kLongest)));
  const bool segments = type == ModelType::kEncoder || type == ModelType::kDecoder;
  s.read_if(segments, images ? why : concat("with task: ", config.task->name), "type_vocab_size",
            model.type_vocab_size, "Segment embeddings, as BERT's 2; 0: none.",
            between(0, kMostWidth));
  s.read_if(type == ModelType::kEncoder, why, "embedding_size", model.embedding_size,
            "Width of the embeddings, which a matrix widens to hidden_size (ALBERT, ELECTRA), so "
            "that a large vocabulary costs less; 0: hidden_size, without that matrix.",
            between(0, kMostWidth));
  s.read_if(applies && !images, why, "embedding_norm", model.embedding_norm,
            "Normalizes the summed embeddings, as BERT does.");
  s.read_if(applies, why, "zero_branches", model.zero_branches,
            "What attention and feed-forward networks add to the residual stream begins as 0, so "
            "that at first the model is that of its embeddings.");
  s.read_if(applies, why, "attention_dropout", model.attention_dropout,
            "Dropout of the attention weights.", from_up_to_below(0, 1));
  s.read_if(applies, why, "activation_dropout", model.activation_dropout,
            "Dropout inside the feed-forward network.", from_up_to_below(0, 1));
}

// A range implies normal, so initializer may be left out.
void bind_initializer(ConfigSection& s, bool applies, const std::string& why, ModelOptions& model) {
  constexpr double kUsualRange = 0.02;  // GPT-2's and BERT's
  s.read_if(applies, why, "initializer_range", model.initializer_range,
            "Standard deviation of the first weights. Given alone it means initializer: normal, "
            "which takes 0.02 without it; it is 0 with the others.",
            at_least(0));
  Initializer initializer = model.chosen_initializer();
  s.read_choice_if(
      applies, why, "initializer", initializer, named(kInitializers),
      "First values of the matrices: by the shape of each projection (xavier_uniform, "
      "xavier_normal, kaiming), by initializer_range (normal), or, if neither is given, "
      "xavier_packed: uniform by the shape of each matrix, in which queries, keys and "
      "values are one, and embeddings of variance 1 / hidden_size.");
  model.initializer = initializer;
  if (initializer == Initializer::kNormal && !s.has("initializer_range") &&
      model.initializer_range == 0) {
    model.initializer_range = kUsualRange;
  }
}

// Keys of attention pooling, which has no others.
void bind_pooling(ConfigSection& s, Config& config) {
  AttentionPooling::Options& pooling = config.model.pooling;
  const bool applies = config.model_type == ModelType::kAttentionPooling;
  const std::string why = concat("with type: ", name_of(config.model_type));
  s.read_choice_if(
      applies, why, "kernel", pooling.kernel, named(enumerators<SimilarityKernel>()),
      "How much a point at distance u, in widths, counts: exp(-u^2 / 2), 1 below 1, or "
      "1 - u^2 below 1.");
  s.read_if(applies, why, "width", pooling.width,
            "Width of the kernel, the first one if it learns.", positive());
  s.read_if(applies, why, "learn_width", pooling.learned,
            "The width learns, from what the other points say of each point. A boxcar's cannot.");
}

// The type comes first: the others have other defaults for a Vision Transformer.
void bind_type(ConfigSection& s, Config& config) {
  const ModelType before = config.model_type;
  std::vector<ConfigChoice<ModelType>> types;
  for (const ModelType type : model_types(config)) types.push_back({name_of(type), type});
  s.read_choice("type", config.model_type, types,
                "The model: Transformers, GRUs with attention or without (rnn_attention), a Vision "
                "Transformer (vit), softmax regression (linear), or Nadaraya-Watson regression "
                "(attention_pooling).",
                concat("with task: ", config.task->name,
                       !config.task->reads(Medium::kImages) ? ""
                       : examples_of(config).of_images()    ? " of images"
                                                            : " of texts"));
  if (config.model_type != before) config.model = model_defaults(config.model_type);
}

}  // namespace

void bind_model(ConfigSection& s, Config& config) {
  bind_type(s, config);
  ModelOptions& model = config.model;
  const TaskKind& task = *config.task;
  const bool both = model_types(config).front() == ModelType::kEncoderDecoder;
  const bool images = examples_of(config).of_images(),
             linear = config.model_type == ModelType::kLinear;
  const bool pooling = config.model_type == ModelType::kAttentionPooling;
  const bool wide = !linear && !pooling, words = examples_of(config).of_text();
  const std::string with_task = concat("with task: ", task.name);
  const std::string with_type = concat("with type: ", name_of(config.model_type));
  s.read_if(wide, with_type, "hidden_size", model.hidden_size,
            "Width of the model: of embeddings and of the layers' outputs.",
            between(1, kMostWidth));
  s.read_if(both, with_task, "encoder_layers", model.encoder_layers, "Layers of the encoder.",
            between(1, kMostLayers));
  s.read_if(both, with_task, "decoder_layers", model.decoder_layers, "Layers of the decoder.",
            between(1, kMostLayers));
  s.read_choice_if(
      config.model_type == ModelType::kEncoderDecoder, with_type, "decoder_self_attention",
      model.decoder_self_attention, named(enumerators<DecoderSelfAttention>()),
      "How a layer knows the text so far: by attention, or by a cheaper state (Marian's ssru).");
  s.read_if(!both && wide, wide ? with_task : with_type, "num_hidden_layers",
            model.num_hidden_layers, "Layers of a model that is one stack.",
            between(1, kMostLayers));
  if (images) bind_image_model(s, config);
  s.read_choice_if(config.model_type == ModelType::kRnnAttention, with_type, "attention",
                   model.attends, {{"additive", true}, {"none", false}},
                   "What a step of the recurrent decoder knows of the source: all states, to which "
                   "it attends, or one fixed vector.");
  s.read_if(words, with_type, "tie_word_embeddings", model.tie_word_embeddings,
            "The classifier over the vocabulary is the embedding table.");
  s.read_if(config.model_type == ModelType::kEncoderDecoder, with_type,
            "share_encoder_decoder_embeddings", model.share_encoder_decoder_embeddings,
            "With one vocabulary both sides have one embedding table, even if the classifier has "
            "its own.");
  const bool writes = traits_of(config.model_type).writes;
  const bool fills = task.can(kFillsMasks) && config.model_type == ModelType::kEncoder;
  s.read_choice_if(fills, concat("with task: ", task.name), "masked_head", model.transformed_head,
                   {{"transform", true}, {"linear", false}},
                   "What fills the masks: a layer with activation and norm before the classifier, "
                   "as BERT's, or the classifier only.");
  bind_text_vectors(s, config);
  s.read_if(writes || (fills && !model.transformed_head), with_type, "output_bias",
            model.output_bias,
            "The classifier over the vocabulary has a bias; with masked_head: transform it has one "
            "in any case.");
  s.read_if(words, with_type, "scale_embeddings", model.scale_embeddings,
            "Multiplies embeddings by the root of hidden_size.");
  s.read_if(writes && traits_of(config.model_type).has_attention, with_type, "logit_scale",
            model.logit_scale,
            "Factor of the logits over the vocabulary. T5 1.0 has hidden_size^-0.5.", positive());
  s.read_if(writes && traits_of(config.model_type).has_attention, with_type, "logit_softcap",
            model.logit_softcap,
            "Logits z over the vocabulary become softcap * tanh(z / softcap); 0: no limit. Gemma 2 "
            "has 30.",
            at_least(0));
  bind_initializer(s, !pooling, with_type, model);
  s.read_if(wide, with_type, "dropout", model.dropout,
            "Dropout of embeddings and of the outputs of sub-layers.", from_up_to_below(0, 1));
  bind_transformer(s, config);
  bind_pooling(s, config);
}

}  // namespace tapestry
