#include "nn/models/gradcheck_models.h"

#include <memory>

#include "core/base/enumerators.h"
#include "core/base/philox.h"
#include "core/kernels/elementwise/activation_functors.h"
#include "nn/attention/attention_pooling.h"

namespace tapestry {
namespace {

constexpr uint64_t kSeed = 5;
constexpr LanguageModel::Vocabulary kVocabulary{.size = 11, .no_target = 0};

using Cases = std::vector<GradcheckCase>;

// Makes the inputs and parameters of the cases, all at one place.
class Inputs {
 public:
  explicit Inputs(const GradcheckPlace& place = {}) : place_(place) {}

  Tensor ints(const std::vector<int32_t>& values, const Shape& shape) const {
    return Tensor::from<int32_t>(values, shape, place_.device);
  }
  Tensor lengths(const std::vector<int32_t>& values) const {
    return ints(values, {static_cast<int64_t>(values.size())});
  }
  // Standard normal; the same `stream` gives the same numbers.
  Var normal(const Shape& shape, uint32_t stream) const {
    Tensor value = Tensor::empty(shape, DType::kFloat64);
    for (int64_t i = 0; i < value.numel(); ++i) {
      value.data<double>()[i] = philox_normal({kSeed, 1, stream}, static_cast<uint64_t>(i));
    }
    return Var::parameter(value.to(place_.dtype).to(place_.device));
  }
  ParamStore store(const LoraOptions& lora = {}) const {
    return ParamStore(kSeed, place_.dtype, place_.device, Precision::kFull, lora);
  }

 private:
  GradcheckPlace place_;
};

// Moves every parameter by a random number: some errors do not show at 0 and 1, the initial values
// of biases and norms. Returns the trained ones.
std::vector<Var> disturbed_parameters(const ParamStore& store) {
  std::vector<Var> vars;
  uint32_t stream = 100;
  for (const Parameter& parameter : store.parameters()) {
    const Tensor& value = parameter.var.value();
    const Tensor moved = value.to(Device{}).to(DType::kFloat64).clone();
    for (int64_t i = 0; i < moved.numel(); ++i) {
      moved.data<double>()[i] += 0.2 * philox_normal({kSeed, 2, stream}, static_cast<uint64_t>(i));
    }
    value.copy_from(moved.to(value.dtype()).to(value.device()));
    if (parameter.trained) vars.push_back(parameter.var);
    ++stream;
  }
  return vars;
}

// A layer or model with its store. The closure of its case keeps both alive.
template <class Model>
struct Built {
  template <class... Arguments>
  explicit Built(const Inputs& in, const Arguments&... arguments)
      : store(in.store()), model(arguments..., store.root()) {}
  ParamStore store;
  Model model;
};

// The value forward(layer), by `inputs` and the layer's parameters.
template <class Layer, class Options, class F>
GradcheckCase layer_case(const Inputs& in, const std::string& name, const Options& options,
                         std::vector<Var> inputs, F forward) {
  auto built = std::make_shared<Built<Layer>>(in, options);
  for (const Var& parameter : disturbed_parameters(built->store)) inputs.push_back(parameter);
  return {name, inputs, [built, forward] { return forward(built->model); }};
}

// The loss of a model, by its parameters.
template <class Model, class Loss>
GradcheckCase loss_case(const std::string& name, const ModelOptions& options,
                        std::shared_ptr<Built<Model>> built, Loss loss) {
  GradcheckCase result{name, disturbed_parameters(built->store),
                       [built, loss] { return loss(built->model); }};
  // Finite differences across the kink of relu are wrong, not the gradient.
  if (!kinks_of(options.hidden_act.activation).empty()) result.tolerance = 1e-4;
  return result;
}

// EncoderDecoder or RnnAttention.
template <class Model>
GradcheckCase translation_case(const Inputs& in, const std::string& name,
                               const ModelOptions& options) {
  const Vocabulary vocabulary{.source_size = 11, .target_size = 11};
  const EncoderDecoder::Batch batch{in.ints({4, 7, 5, 3, 9, 3, 0, 0}, {2, 4}), in.lengths({4, 2}),
                                    in.ints({2, 6, 8, 2, 10, 0}, {2, 3}),
                                    in.ints({6, 8, 3, 10, 3, 0}, {2, 3})};
  return loss_case(
      name, options, std::make_shared<Built<Model>>(in, options, vocabulary),
      [batch](const Model& model) { return model.loss(batch, {.label_smoothing = 0.1}).loss; });
}

GradcheckCase encoder_decoder_case(const Inputs& in, const std::string& name,
                                   const ModelOptions& options) {
  return translation_case<EncoderDecoder>(in, name, options);
}

GradcheckCase rnn_attention_case(const Inputs& in, const std::string& name,
                                 const ModelOptions& options) {
  GradcheckCase result = translation_case<RnnAttention>(in, name, options);
  result.tolerance = GradcheckCase().tolerance;  // hidden_act is not used: there is no kink
  return result;
}

GradcheckCase language_model_case(const Inputs& in, const std::string& name,
                                  const ModelOptions& options, bool causal) {
  LanguageModel::Batch batch{in.ints({4, 7, 5, 9, 10, 6, 3, 0}, {2, 4}),
                             in.ints({7, 5, 9, 3, 6, 3, 0, 0}, {2, 4}), in.lengths({4, 3})};
  if (!causal) batch.targets = in.ints({0, 8, 0, 9, 0, 7, 0, 0}, {2, 4});
  if (options.type_vocab_size > 1) {
    batch.segments = in.ints({0, 0, 1, 1, 0, 1, 1, 0}, {2, 4});
  }
  return loss_case(name, options,
                   std::make_shared<Built<LanguageModel>>(in, options, kVocabulary, causal),
                   [batch](const LanguageModel& model) { return model.loss(batch, {}).loss; });
}

GradcheckCase classifier_case(const Inputs& in, const std::string& name,
                              const ModelOptions& options) {
  const Tensor ids = in.ints({4, 7, 5, 9, 10, 6, 3, 0}, {2, 4});
  const Tensor lengths = in.lengths({4, 3}), labels = in.ints({2, 0}, {2});
  return loss_case(
      name, options,
      std::make_shared<Built<SequenceClassifier>>(in, options, kVocabulary, int64_t{3}),
      [=](const SequenceClassifier& model) {
        return cross_entropy(model(ids, lengths), labels).loss;
      });
}

GradcheckCase span_case(const Inputs& in, const std::string& name, const ModelOptions& options) {
  const Tensor ids = in.ints({4, 7, 5, 9, 10, 6, 3, 0}, {2, 4});
  const Tensor lengths = in.lengths({4, 3}).to(Device{});
  const Tensor labels = in.ints({1, 0, 3, 2}, {2, 2}).to(Device{});
  Tensor segments;
  if (options.type_vocab_size > 1) segments = in.ints({0, 0, 1, 1, 0, 1, 1, 0}, {2, 4});
  return loss_case(
      name, options, std::make_shared<Built<SpanExtractor>>(in, options, kVocabulary),
      [=](const SpanExtractor& model) {
        return model.loss(ids, lengths, segments, labels, {.label_smoothing = 0.1}).loss;
      });
}

template <class Model>
GradcheckCase image_case(const Inputs& in, const std::string& name, const ModelOptions& options) {
  const ImageClasses data{.height = 4, .width = 6, .channels = 3, .classes = 3};
  const Var images = in.normal({2, data.height, data.width, data.channels}, 9);
  const Tensor labels = in.ints({2, 0}, {2});
  GradcheckCase result =
      loss_case(name, options, std::make_shared<Built<Model>>(in, options, data),
                [=](const Model& model) { return cross_entropy(model(images), labels).loss; });
  result.inputs.push_back(images);
  return result;
}

// A smooth activation, so that finite differences meet no kink; with dropout.
ModelOptions small_options() {
  ModelOptions options;
  options.hidden_size = 8;
  options.intermediate_size = 12;
  options.num_attention_heads = 2;
  options.encoder_layers = 2;
  options.decoder_layers = 2;
  options.hidden_act = Activation::kGelu;
  options.max_position_embeddings = 8;
  options.dropout = 0.2;
  options.attention_dropout = 0.1;
  options.activation_dropout = 0.1;
  return options;
}

ModelOptions pre_norm_options() {
  ModelOptions options = small_options();
  options.norm_position = NormPosition::kPre;
  options.norm = NormKind::kRms;
  options.num_key_value_heads = 1;
  options.position_embedding = PositionEmbedding::kLearned;
  options.tie_word_embeddings = false;
  options.hidden_act = Activation::kSilu;
  return options;
}

struct SmallNorm : Norm {
  SmallNorm(const Norm::Options& options, const ParamScope& scope) : Norm(6, options, scope) {}
};

// A frozen linear layer beside an adapter.
GradcheckCase adapted_case(const Inputs& in, const Var& x) {
  const std::shared_ptr<ParamStore> store(
      new ParamStore(in.store({.rank = 2, .alpha = 3, .dropout = 0.2, .target = {"*"}})));
  auto layer = std::make_shared<Linear>(
      Linear::Options{.in = 6, .out = 5, .activation = Activation::kGeluTanh},
      store->root() / "layer");
  std::vector<Var> inputs = disturbed_parameters(*store);
  inputs.push_back(x);
  return {"Linear, adapter", inputs, [store, layer, x] { return (*layer)(x); }};
}

void add_layers(Cases& cases, const Inputs& in) {
  const Var x = in.normal({2, 3, 8}, 1), narrow = in.normal({4, 6}, 3);
  cases.push_back(layer_case<Linear>(
      in, "Linear", Linear::Options{.in = 6, .out = 5, .activation = Activation::kGeluTanh},
      {narrow}, [=](const Linear& f) { return f(narrow); }));
  cases.push_back(adapted_case(in, narrow));
  cases.push_back(layer_case<SmallNorm>(in, "Norm, layer", Norm::Options{}, {narrow},
                                        [=](const SmallNorm& f) { return f(narrow); }));
  cases.push_back(layer_case<SmallNorm>(in, "Norm, RMS",
                                        Norm::Options{{.kind = NormKind::kRms}, true}, {narrow},
                                        [=](const SmallNorm& f) { return f(narrow); }));
  cases.push_back(layer_case<SmallNorm>(in, "Norm, batch",
                                        Norm::Options{{.kind = NormKind::kBatch}, true}, {narrow},
                                        [=](const SmallNorm& f) { return f(narrow); }));
  cases.push_back(layer_case<FeedForward>(
      in, "FeedForward",
      FeedForward::Options{
          .hidden_size = 8, .intermediate_size = 12, .act = Activation::kSilu, .dropout = 0.2},
      {x}, [=](const FeedForward& f) { return f(x); }));
  cases.push_back(layer_case<SmallNorm>(
      in, "Norm, RMS, unit offset",
      Norm::Options{{.kind = NormKind::kRms}, false, false, 0.1, /*unit_offset=*/true}, {narrow},
      [=](const SmallNorm& f) { return f(narrow); }));
  for (const NormPosition position : enumerators<NormPosition>()) {
    cases.push_back(layer_case<Residual>(
        in, concat("Residual, ", name_of(position), "-norm"),
        Residual::Options{.hidden_size = 8, .position = position, .norm = {{.dropout = 0.2}, true}},
        {x}, [=](const Residual& f) { return f(x, [](const Var& h) { return tanh(h); }); }));
  }
  for (const NormPosition position : {NormPosition::kPost, NormPosition::kPre}) {
    const Norm::Options batch{{.kind = NormKind::kBatch, .dropout = 0.2}, true};
    cases.push_back(layer_case<Residual>(
        in,
        position == NormPosition::kPost ? "Residual, post-norm, batch"
                                        : "Residual, pre-norm, batch",
        Residual::Options{.hidden_size = 8, .position = position, .norm = batch}, {x},
        [=](const Residual& f) { return f(x, [](const Var& h) { return tanh(h); }); }));
  }
  const Var queries = in.normal({3, 2}, 4), keys = in.normal({5, 2}, 5);
  const Var values = in.normal({5, 2}, 6);
  for (const SimilarityKernel kernel :
       {SimilarityKernel::kGaussian, SimilarityKernel::kEpanechnikov}) {
    cases.push_back(layer_case<AttentionPooling>(
        in,
        kernel == SimilarityKernel::kGaussian ? "AttentionPooling, Gaussian"
                                              : "AttentionPooling, Epanechnikov",
        AttentionPooling::Options{.kernel = kernel, .width = 2.5, .learned = true},
        {queries, keys, values},
        [=](const AttentionPooling& f) { return f(queries, keys, values); }));
  }
}

void add_attention_layers(Cases& cases, const Inputs& in) {
  const Var x = in.normal({2, 3, 8}, 1), memory = in.normal({2, 4, 8}, 2);
  const Tensor lengths = in.lengths({4, 2}), x_lengths = in.lengths({3, 1});
  const MultiHeadAttention::Options attention{.hidden_size = 8, .heads = 2, .dropout = 0.1};
  MultiHeadAttention::Options grouped = attention;
  grouped.heads = 4;
  grouped.kv_heads = 2;
  cases.push_back(
      layer_case<SelfAttention>(in, "SelfAttention, lengths", attention, {x},
                                [=](const SelfAttention& f) { return f(x, x_lengths, false); }));
  cases.push_back(
      layer_case<SelfAttention>(in, "SelfAttention, causal, grouped", grouped, {x},
                                [=](const SelfAttention& f) { return f(x, {}, true); }));
  const LatentAttention::Options latent{.hidden_size = 8,
                                        .heads = 2,
                                        .kv_latent_size = 5,
                                        .rope_head_size = 2,
                                        .dropout = 0.1,
                                        .rope_positions = 4};
  LatentAttention::Options narrow_values = latent;
  narrow_values.value_head_size = 3;
  narrow_values.q_latent_size = 6;
  LatentAttention::Options unturned = latent;
  unturned.rope_head_size = 0;
  cases.push_back(
      layer_case<LatentAttention>(in, "LatentAttention, causal", latent, {x},
                                  [=](const LatentAttention& f) { return f(x, {}, true); }));
  cases.push_back(layer_case<LatentAttention>(
      in, "LatentAttention, query latents, lengths", narrow_values, {x},
      [=](const LatentAttention& f) { return f(x, x_lengths, false); }));
  cases.push_back(layer_case<LatentAttention>(
      in, "LatentAttention, absorbed, not turned", unturned, {x}, [=](const LatentAttention& f) {
        return f.attend_absorbed(x, 0, f.compress(x, 0).packed(), {.causal = true});
      }));
  cases.push_back(layer_case<CrossAttention>(in, "CrossAttention", attention, {x, memory},
                                             [=](const auto& f) { return f(x, memory, lengths); }));
  MultiHeadAttention::Options narrow = grouped;
  narrow.value_head_size = 3;
  narrow.window = 2;
  const Tensor seen = in.ints({1, 1, 0, 1, 1, 0, 1, 0, 1}, {3, 3});
  cases.push_back(layer_case<SelfAttention>(
      in, "SelfAttention, narrow values, window, mask", narrow, {x},
      [=](const SelfAttention& f) { return f(x, {}, false, {.mask = seen}); }));
  const Tensor memory_seen = in.ints({1, 1, 0, 1, 1, 0, 1, 0, 1, 1, 1, 1}, {3, 4});
  cases.push_back(layer_case<CrossAttention>(
      in, "CrossAttention, narrow values, mask", narrow, {x, memory},
      [=](const CrossAttention& f) { return f(x, memory, {}, memory_seen); }));
  MultiHeadAttention::Options sized = grouped;
  sized.own_head_size = 6;
  sized.rope_positions = 4;
  cases.push_back(
      layer_case<SelfAttention>(in, "SelfAttention, heads of their own size, rotary", sized, {x},
                                [=](const SelfAttention& f) { return f(x, x_lengths, true); }));
  cases.push_back(layer_case<CrossAttention>(in, "CrossAttention, heads of their own size", sized,
                                             {x, memory},
                                             [=](const auto& f) { return f(x, memory, lengths); }));
}

void add_blocks(Cases& cases, const Inputs& in) {
  const ModelOptions post = small_options(), pre = pre_norm_options();
  const Var x = in.normal({2, 3, 8}, 1), memory = in.normal({2, 4, 8}, 2);
  const Tensor lengths = in.lengths({4, 2}), x_lengths = in.lengths({3, 1});
  for (const auto& [name, options] : {std::pair{"post-norm", post}, std::pair{"pre-norm", pre}}) {
    cases.push_back(layer_case<EncoderLayer>(in, concat("EncoderLayer, ", name), options, {x},
                                             [=](const auto& f) { return f(x, x_lengths); }));
    cases.push_back(layer_case<DecoderLayer>(in, concat("DecoderLayer, ", name), options,
                                             {x, memory},
                                             [=](const auto& f) { return f(x, memory, lengths); }));
  }
  // Without biases: a batch norm cancels the bias of the layer before it.
  for (ModelOptions options : {post, pre}) {
    options.norm = NormKind::kBatch;
    options.bias = false;
    const std::string position = options.norm_position == NormPosition::kPost ? "post" : "pre";
    cases.push_back(layer_case<EncoderLayer>(in, concat("EncoderLayer, ", position, "-norm, batch"),
                                             options, {x},
                                             [=](const auto& f) { return f(x, x_lengths); }));
  }
}

// Layers that differ from each other, and other ways through a layer; `o` is Llama's.
void add_layers_that_differ(Cases& cases, const Inputs& in, ModelOptions o) {
  o.num_hidden_layers = 3;
  ModelOptions gemma = o;
  gemma.head_size = 6;
  gemma.qk_norm = QkNorm::kHead;
  gemma.norm_position = NormPosition::kSandwich;
  gemma.norm_unit_offset = true;
  gemma.attention_window = 2;
  gemma.layer_types = {LayerType::kWindow, LayerType::kFull};
  gemma.window_rope_theta = 100;
  cases.push_back(language_model_case(in, "LanguageModel, Gemma 3", gemma, true));
  ModelOptions olmo = o;
  olmo.qk_norm = QkNorm::kProjection;
  olmo.norm_position = NormPosition::kBranch;
  olmo.layer_types = {LayerType::kUnplaced, LayerType::kFull};
  cases.push_back(language_model_case(in, "LanguageModel, OLMo 2, unplaced layers", olmo, true));
  ModelOptions neox = o;
  neox.norm = NormKind::kLayer;
  neox.bias = true;
  neox.num_key_value_heads = 0;
  neox.hidden_act = Activation::kGelu;
  neox.parallel_residual = true;
  neox.partial_rotary_factor = 0.5;
  neox.recompute = true;
  cases.push_back(language_model_case(in, "LanguageModel, GPT-NeoX", neox, true));
  ModelOptions modern = o;
  modern.norm = NormKind::kLayer;
  modern.embedding_norm = true;
  modern.first_norm = false;
  modern.attention_window = 2;
  modern.layer_types = {LayerType::kFull, LayerType::kWindow};
  cases.push_back(language_model_case(in, "LanguageModel, ModernBERT", modern, false));
  ModelOptions sandwich = small_options();
  sandwich.norm_position = NormPosition::kSandwich;
  sandwich.attention_window = 2;
  sandwich.layer_types = {LayerType::kFull, LayerType::kWindow};
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, sandwich-norm, windows", sandwich));
}

void add_models(Cases& cases, const Inputs& in) {
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, post-norm, tied", small_options()));
  cases.push_back(encoder_decoder_case(
      in, "EncoderDecoder, pre-norm, RMS, grouped, learned, untied", pre_norm_options()));
  ModelOptions sized = small_options();
  sized.head_size = 3;
  sized.value_head_size = 5;
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, heads of their own size", sized));
  ModelOptions recomputed = small_options();
  recomputed.recompute = true;
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, recomputed", recomputed));
  ModelOptions ended = small_options();
  ended.final_norm = ended.output_bias = true;
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, final norm, output bias", ended));
  cases.push_back(language_model_case(in, "LanguageModel, final norm, output bias", ended, true));
  ModelOptions gpt = small_options();
  gpt.norm_position = NormPosition::kPre;
  gpt.hidden_act = Activation::kGeluTanh;
  gpt.position_embedding = PositionEmbedding::kLearned;
  gpt.scale_embeddings = false;
  gpt.initializer_range = 0.3;
  cases.push_back(language_model_case(in, "LanguageModel, GPT-2", gpt, true));
  ModelOptions llama = gpt;
  llama.hidden_size = 16;
  llama.num_attention_heads = 4;
  llama.num_key_value_heads = 2;
  llama.norm = NormKind::kRms;
  llama.bias = false;
  llama.hidden_act = {Activation::kSilu, /*gated=*/true};
  llama.position_embedding = PositionEmbedding::kRope;
  llama.tie_word_embeddings = false;
  cases.push_back(language_model_case(in, "LanguageModel, Llama", llama, true));
  ModelOptions qwen2 = llama;
  qwen2.attention_bias = AttentionBias::kInputs;
  cases.push_back(language_model_case(in, "LanguageModel, Qwen2", qwen2, true));
  ModelOptions qwen3 = llama;
  qwen3.head_size = 6;
  qwen3.qk_norm = QkNorm::kHead;
  cases.push_back(language_model_case(in, "LanguageModel, Qwen3", qwen3, true));
  ModelOptions normed = small_options();
  normed.qk_norm = QkNorm::kProjection;
  normed.attention_bias = AttentionBias::kNone;
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, normed queries and keys", normed));
  ModelOptions deepseek = llama;
  deepseek.num_key_value_heads = 0;
  deepseek.kv_latent_size = 6;
  deepseek.q_latent_size = 7;
  cases.push_back(language_model_case(in, "LanguageModel, DeepSeek", deepseek, true));
  ModelOptions t5 = gpt;
  t5.position_embedding = PositionEmbedding::kRelative;
  t5.attention_window = 3;
  t5.recompute = true;
  cases.push_back(language_model_case(in, "LanguageModel, relative positions", t5, true));
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, relative positions", t5));
  t5.recompute = false;
  t5.attention_window = 0;
  t5.norm = NormKind::kRms;
  t5.bias = false;
  t5.hidden_act = {Activation::kGeluTanh, /*gated=*/true};
  t5.head_size = 3;
  t5.attention_scale = 0.8;
  t5.logit_scale = 0.6;
  t5.tie_word_embeddings = false;
  t5.share_encoder_decoder_embeddings = true;
  t5.relative_attention_num_buckets = 6;
  t5.relative_attention_max_distance = 5;
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, T5", t5));
  cases.push_back(language_model_case(in, "LanguageModel, scaled scores and logits", t5, true));
  ModelOptions m2m = small_options();
  m2m.norm_position = NormPosition::kPre;
  m2m.position_embedding = PositionEmbedding::kFairseq;
  cases.push_back(encoder_decoder_case(in, "EncoderDecoder, fairseq's sinusoids", m2m));
  add_layers_that_differ(cases, in, llama);
  ModelOptions alibi = gpt;
  alibi.position_embedding = PositionEmbedding::kAlibi;
  alibi.value_head_size = 3;
  cases.push_back(language_model_case(in, "LanguageModel, ALiBi, narrow values", alibi, true));
  ModelOptions bert = gpt;
  bert.norm_position = NormPosition::kPost;
  bert.hidden_act = Activation::kGelu;
  bert.embedding_norm = true;
  bert.type_vocab_size = 2;
  cases.push_back(language_model_case(in, "LanguageModel, BERT", bert, false));
  ModelOptions plain = bert;
  plain.transformed_head = false;
  plain.output_bias = true;
  cases.push_back(language_model_case(in, "LanguageModel, masked, linear head", plain, false));
  cases.push_back(classifier_case(in, "SequenceClassifier", bert));
  ModelOptions spans = bert;
  spans.bias = false;  // a softmax over places cancels a common term, such as the last norm's bias
  cases.push_back(span_case(in, "SpanExtractor", spans));
  ModelOptions vit = gpt;
  vit.patch_size = 2;
  cases.push_back(image_case<VisionTransformer>(in, "VisionTransformer", vit));
  vit.pooled_head = false;
  vit.position_embedding = PositionEmbedding::kRope;
  cases.push_back(image_case<VisionTransformer>(in, "VisionTransformer, rotary, linear head", vit));
  cases.push_back(image_case<LinearClassifier>(in, "LinearClassifier", vit));
}

void add_recurrence(Cases& cases, const Inputs& in) {
  const Var steps = in.normal({4, 3, 5}, 4), row = in.normal({6, 4}, 5);
  const Var before = in.normal({3, 8}, 6), states = in.normal({6, 4}, 7);
  const Tensor step_lengths = in.lengths({4, 1, 3});
  cases.push_back(layer_case<GruLayer>(
      in, "GruLayer, both directions",
      GruLayer::Options{.in = 5, .hidden_size = 4, .bidirectional = true}, {steps, before},
      [=](const GruLayer& f) { return f(steps, {.lengths = step_lengths, .initial = before}); }));
  cases.push_back(layer_case<GruLayer>(
      in, "GruLayer, step", GruLayer::Options{.in = 4, .hidden_size = 4}, {row, states},
      [=](const GruLayer& f) { return f.step(f.input(row), states); }));
  const Var remembered = in.normal({6, 4, 6}, 8);
  const Tensor memory_lengths = in.lengths({4, 1, 3, 2, 4, 1});
  cases.push_back(layer_case<AttentiveGru>(
      in, "AttentiveGru", AttentiveGru::Options{.hidden_size = 4, .memory_size = 6},
      {row, states, remembered}, [=](const AttentiveGru& f) {
        const AttentiveGru::Memory keys = f.remember(remembered, memory_lengths);
        return f.step(f.word(row), f.attend(states, keys).out, states);
      }));
  cases.push_back(rnn_attention_case(in, "RnnAttention, tied", small_options()));
  ModelOptions untied = pre_norm_options();
  untied.output_bias = true;
  cases.push_back(rnn_attention_case(in, "RnnAttention, untied, output bias", untied));
  ModelOptions fixed = small_options();
  fixed.attends = false;
  cases.push_back(rnn_attention_case(in, "RnnAttention, one fixed vector", fixed));
}

}  // namespace

GradcheckCase encoder_decoder_gradcheck(const std::string& name, const ModelOptions& options) {
  return encoder_decoder_case(Inputs(), name, options);
}

GradcheckCase rnn_attention_gradcheck(const std::string& name, const ModelOptions& options) {
  return rnn_attention_case(Inputs(), name, options);
}

GradcheckCase language_model_gradcheck(const std::string& name, const ModelOptions& options,
                                       bool causal) {
  return language_model_case(Inputs(), name, options, causal);
}

GradcheckCase classifier_gradcheck(const std::string& name, const ModelOptions& options) {
  return classifier_case(Inputs(), name, options);
}

GradcheckCase span_extractor_gradcheck(const std::string& name, const ModelOptions& options) {
  return span_case(Inputs(), name, options);
}

GradcheckCase vision_transformer_gradcheck(const std::string& name, const ModelOptions& options) {
  return image_case<VisionTransformer>(Inputs(), name, options);
}

GradcheckCase linear_classifier_gradcheck(const std::string& name, const ModelOptions& options) {
  return image_case<LinearClassifier>(Inputs(), name, options);
}

std::vector<GradcheckCase> model_gradchecks(const GradcheckPlace& place) {
  Cases cases;
  const Inputs in(place);
  add_layers(cases, in);
  add_attention_layers(cases, in);
  add_blocks(cases, in);
  add_models(cases, in);
  add_recurrence(cases, in);
  return cases;
}

GradcheckCase attention_pooling_gradcheck(const std::string& name, const ModelOptions& options) {
  const Inputs in;
  const Var queries = in.normal({3, 1}, 4), keys = in.normal({5, 1}, 5);
  const Var values = in.normal({5, 1}, 6);
  // A width at which every point counts, whatever the config's data are like.
  AttentionPooling::Options pooling = options.pooling;
  pooling.width = 2.5;
  return layer_case<AttentionPooling>(
      in, name, pooling, {queries, keys, values},
      [=](const AttentionPooling& f) { return f(queries, keys, values); });
}

}  // namespace tapestry
