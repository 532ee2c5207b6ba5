#include "nn/gradcheck_models.h"

#include <memory>

#include "core/kernels/activation_functors.h"
#include "core/philox.h"
#include "nn/attention_pooling.h"

namespace tapestry {
namespace {

constexpr uint64_t kSeed = 5;

// Of the cases that are being built: model_gradchecks() sets it and sets it back.
thread_local GradcheckPlace place;

Tensor ints(const std::vector<int32_t>& values, const Shape& shape) {
  return Tensor::from<int32_t>(values, shape, place.device);
}

Var random_input(const Shape& shape, uint32_t stream) {
  Tensor value = Tensor::empty(shape, DType::kFloat64);
  for (int64_t i = 0; i < value.numel(); ++i) {
    value.data<double>()[i] = philox_normal({kSeed, 1, stream}, static_cast<uint64_t>(i));
  }
  return Var::parameter(value.to(place.dtype).to(place.device));
}

// Biases and norms start at 0 and 1, where some errors cannot be seen: everything is moved.
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

// A layer with its store, kept alive by the case's closure.
template <class Layer>
struct Built {
  template <class Options>
  explicit Built(const Options& options)
      : store(kSeed, place.dtype, place.device), layer(options, store.root()) {}
  ParamStore store;
  Layer layer;
};

template <class Layer, class Options, class F>
GradcheckCase layer_case(const std::string& name, const Options& options, std::vector<Var> inputs,
                         F forward) {
  auto built = std::make_shared<Built<Layer>>(options);
  for (const Var& parameter : disturbed_parameters(built->store)) inputs.push_back(parameter);
  return {name, inputs, [built, forward] { return forward(built->layer); }};
}

Tensor lengths_of(std::vector<int32_t> lengths) {
  const auto count = static_cast<int64_t>(lengths.size());
  return ints(lengths, {count});
}

// Smooth activations, so that finite differences meet no kink; dropout on.
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

struct SmallNorm : Norm {
  SmallNorm(const Norm::Options& options, const ParamScope& scope) : Norm(6, options, scope) {}
};

}  // namespace

namespace {

// A model that takes more than options, with its store.
template <class Model>
struct BuiltModel {
  template <class... Arguments>
  explicit BuiltModel(const Arguments&... arguments)
      : store(kSeed, place.dtype, place.device), model(arguments..., store.root()) {}
  ParamStore store;
  Model model;
};

// The case of a model's loss by all of its parameters.
template <class Model, class Loss>
GradcheckCase loss_case(const std::string& name, const ModelOptions& options,
                        std::shared_ptr<BuiltModel<Model>> built, Loss loss) {
  GradcheckCase result{name, disturbed_parameters(built->store),
                       [built, loss] { return loss(built->model); }};
  // A kinked activation makes differences across the kink wrong, not the gradient.
  if (!kinks_of(options.hidden_act.activation).empty()) result.tolerance = 1e-4;
  return result;
}

constexpr LanguageModel::Vocabulary kVocabulary{.size = 11, .pad_id = 0};

}  // namespace

namespace {

// Of a model of source and target.
template <class Model>
GradcheckCase translation_gradcheck(const std::string& name, const ModelOptions& options) {
  const Vocabulary vocabulary{.source_size = 11, .target_size = 11};
  const EncoderDecoder::Batch batch{ints({4, 7, 5, 3, 9, 3, 0, 0}, {2, 4}), lengths_of({4, 2}),
                                    ints({2, 6, 8, 2, 10, 0}, {2, 3}),
                                    ints({6, 8, 3, 10, 3, 0}, {2, 3})};
  return loss_case(
      name, options, std::make_shared<BuiltModel<Model>>(options, vocabulary),
      [batch](const Model& model) { return model.loss(batch, {.label_smoothing = 0.1}).loss; });
}

}  // namespace

GradcheckCase encoder_decoder_gradcheck(const std::string& name, const ModelOptions& options) {
  return translation_gradcheck<EncoderDecoder>(name, options);
}

GradcheckCase rnn_attention_gradcheck(const std::string& name, const ModelOptions& options) {
  GradcheckCase result = translation_gradcheck<RnnAttention>(name, options);
  result.tolerance = 1e-6;  // hidden_act, kinked or not, plays no part
  return result;
}

GradcheckCase language_model_gradcheck(const std::string& name, const ModelOptions& options,
                                       bool causal) {
  LanguageModel::Batch batch{ints({4, 7, 5, 9, 10, 6, 3, 0}, {2, 4}),
                             ints({7, 5, 9, 3, 6, 3, 0, 0}, {2, 4}), lengths_of({4, 3})};
  if (!causal) batch.targets = ints({0, 8, 0, 9, 0, 7, 0, 0}, {2, 4});
  if (options.type_vocab_size > 1) {
    batch.segments = ints({0, 0, 1, 1, 0, 1, 1, 0}, {2, 4});
  }
  return loss_case(name, options,
                   std::make_shared<BuiltModel<LanguageModel>>(options, kVocabulary, causal),
                   [batch](const LanguageModel& model) { return model.loss(batch, {}).loss; });
}

GradcheckCase classifier_gradcheck(const std::string& name, const ModelOptions& options) {
  const Tensor ids = ints({4, 7, 5, 9, 10, 6, 3, 0}, {2, 4});
  const Tensor lengths = lengths_of({4, 3}), labels = ints({2, 0}, {2});
  return loss_case(
      name, options,
      std::make_shared<BuiltModel<SequenceClassifier>>(options, kVocabulary, int64_t{3}),
      [=](const SequenceClassifier& model) {
        return cross_entropy(model(ids, lengths), labels).loss;
      });
}

namespace {

template <class Model>
GradcheckCase image_gradcheck(const std::string& name, const ModelOptions& options) {
  const ImageClasses data{.height = 4, .width = 6, .channels = 3, .classes = 3};
  const Var images = random_input({2, data.height, data.width, data.channels}, 9);
  const Tensor labels = ints({2, 0}, {2});
  GradcheckCase result =
      loss_case(name, options, std::make_shared<BuiltModel<Model>>(options, data),
                [=](const Model& model) { return cross_entropy(model(images), labels).loss; });
  result.inputs.push_back(images);
  return result;
}

}  // namespace

GradcheckCase vision_transformer_gradcheck(const std::string& name, const ModelOptions& options) {
  return image_gradcheck<VisionTransformer>(name, options);
}

GradcheckCase linear_classifier_gradcheck(const std::string& name, const ModelOptions& options) {
  return image_gradcheck<LinearClassifier>(name, options);
}

std::vector<GradcheckCase> model_gradchecks(const GradcheckPlace& where) {
  struct PlaceScope {
    ~PlaceScope() { place = {}; }
  } scope;
  place = where;
  const ModelOptions post = small_options();
  ModelOptions pre = post;
  pre.norm_position = NormPosition::kPre;
  pre.norm = NormKind::kRms;
  pre.num_key_value_heads = 1;
  pre.position_embedding = PositionEmbedding::kLearned;
  pre.tie_word_embeddings = false;
  pre.hidden_act = Activation::kSilu;
  const Var x = random_input({2, 3, 8}, 1), memory = random_input({2, 4, 8}, 2);
  const Var narrow = random_input({4, 6}, 3);
  const Tensor lengths = lengths_of({4, 2}), x_lengths = lengths_of({3, 1});

  std::vector<GradcheckCase> cases;
  cases.push_back(layer_case<Linear>(
      "Linear", Linear::Options{.in = 6, .out = 5, .activation = Activation::kGeluTanh}, {narrow},
      [=](const Linear& f) { return f(narrow); }));
  cases.push_back(layer_case<SmallNorm>("Norm, layer", Norm::Options{}, {narrow},
                                        [=](const SmallNorm& f) { return f(narrow); }));
  cases.push_back(layer_case<SmallNorm>("Norm, RMS", Norm::Options{{.kind = NormKind::kRms}, true},
                                        {narrow}, [=](const SmallNorm& f) { return f(narrow); }));
  cases.push_back(layer_case<SmallNorm>("Norm, batch",
                                        Norm::Options{{.kind = NormKind::kBatch}, true}, {narrow},
                                        [=](const SmallNorm& f) { return f(narrow); }));
  cases.push_back(layer_case<FeedForward>(
      "FeedForward",
      FeedForward::Options{
          .hidden_size = 8, .intermediate_size = 12, .act = Activation::kSilu, .dropout = 0.2},
      {x}, [=](const FeedForward& f) { return f(x); }));
  for (const NormPosition position : {NormPosition::kPost, NormPosition::kPre}) {
    cases.push_back(layer_case<Residual>(
        position == NormPosition::kPost ? "Residual, post-norm" : "Residual, pre-norm",
        Residual::Options{.hidden_size = 8, .position = position, .norm = {{.dropout = 0.2}, true}},
        {x}, [=](const Residual& f) { return f(x, [](const Var& h) { return tanh(h); }); }));
  }
  for (const NormPosition position : {NormPosition::kPost, NormPosition::kPre}) {
    const Norm::Options batch{{.kind = NormKind::kBatch, .dropout = 0.2}, true};
    cases.push_back(layer_case<Residual>(
        position == NormPosition::kPost ? "Residual, post-norm, batch"
                                        : "Residual, pre-norm, batch",
        Residual::Options{.hidden_size = 8, .position = position, .norm = batch}, {x},
        [=](const Residual& f) { return f(x, [](const Var& h) { return tanh(h); }); }));
  }
  const Var queries = random_input({3, 2}, 4), keys = random_input({5, 2}, 5);
  const Var values = random_input({5, 2}, 6);
  for (const SimilarityKernel kernel :
       {SimilarityKernel::kGaussian, SimilarityKernel::kEpanechnikov}) {
    cases.push_back(layer_case<AttentionPooling>(
        kernel == SimilarityKernel::kGaussian ? "AttentionPooling, Gaussian"
                                              : "AttentionPooling, Epanechnikov",
        AttentionPooling::Options{.kernel = kernel, .width = 2.5, .learned = true},
        {queries, keys, values},
        [=](const AttentionPooling& f) { return f(queries, keys, values); }));
  }
  const MultiHeadAttention::Options attention{.hidden_size = 8, .heads = 2, .dropout = 0.1};
  MultiHeadAttention::Options grouped = attention;
  grouped.heads = 4;
  grouped.kv_heads = 2;
  cases.push_back(
      layer_case<SelfAttention>("SelfAttention, lengths", attention, {x},
                                [=](const SelfAttention& f) { return f(x, x_lengths, false); }));
  cases.push_back(
      layer_case<SelfAttention>("SelfAttention, causal, grouped", grouped, {x},
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
      layer_case<LatentAttention>("LatentAttention, causal", latent, {x},
                                  [=](const LatentAttention& f) { return f(x, {}, true); }));
  cases.push_back(layer_case<LatentAttention>(
      "LatentAttention, query latents, lengths", narrow_values, {x},
      [=](const LatentAttention& f) { return f(x, x_lengths, false); }));
  cases.push_back(layer_case<LatentAttention>(
      "LatentAttention, absorbed, not turned", unturned, {x}, [=](const LatentAttention& f) {
        return f.attend_absorbed(x, 0, f.compress(x, 0).packed(), {.causal = true});
      }));
  cases.push_back(layer_case<CrossAttention>("CrossAttention", attention, {x, memory},
                                             [=](const auto& f) { return f(x, memory, lengths); }));
  for (const auto& [name, options] : {std::pair{"post-norm", post}, std::pair{"pre-norm", pre}}) {
    cases.push_back(layer_case<EncoderLayer>(concat("EncoderLayer, ", name), options, {x},
                                             [=](const auto& f) { return f(x, x_lengths); }));
    cases.push_back(layer_case<DecoderLayer>(concat("DecoderLayer, ", name), options, {x, memory},
                                             [=](const auto& f) { return f(x, memory, lengths); }));
  }
  // Without biases: a batch norm takes off what a bias before it adds.
  for (ModelOptions options : {post, pre}) {
    options.norm = NormKind::kBatch;
    options.bias = false;
    const std::string position = options.norm_position == NormPosition::kPost ? "post" : "pre";
    cases.push_back(layer_case<EncoderLayer>(concat("EncoderLayer, ", position, "-norm, batch"),
                                             options, {x},
                                             [=](const auto& f) { return f(x, x_lengths); }));
  }
  cases.push_back(encoder_decoder_gradcheck("EncoderDecoder, post-norm, tied", post));
  cases.push_back(
      encoder_decoder_gradcheck("EncoderDecoder, pre-norm, RMS, grouped, learned, untied", pre));
  ModelOptions recomputed = post;
  recomputed.recompute = true;
  cases.push_back(encoder_decoder_gradcheck("EncoderDecoder, recomputed", recomputed));
  ModelOptions gpt = small_options();
  gpt.norm_position = NormPosition::kPre;
  gpt.hidden_act = Activation::kGeluTanh;
  gpt.position_embedding = PositionEmbedding::kLearned;
  gpt.scale_embeddings = false;
  gpt.initializer_range = 0.3;
  cases.push_back(language_model_gradcheck("LanguageModel, GPT-2", gpt, true));
  ModelOptions llama = gpt;
  llama.hidden_size = 16;
  llama.num_attention_heads = 4;
  llama.num_key_value_heads = 2;
  llama.norm = NormKind::kRms;
  llama.bias = false;
  llama.hidden_act = {Activation::kSilu, /*gated=*/true};
  llama.position_embedding = PositionEmbedding::kRope;
  llama.tie_word_embeddings = false;
  cases.push_back(language_model_gradcheck("LanguageModel, Llama", llama, true));
  ModelOptions deepseek = llama;
  deepseek.num_key_value_heads = 0;
  deepseek.kv_latent_size = 6;
  deepseek.q_latent_size = 7;
  cases.push_back(language_model_gradcheck("LanguageModel, DeepSeek", deepseek, true));
  ModelOptions bert = gpt;
  bert.norm_position = NormPosition::kPost;
  bert.hidden_act = Activation::kGelu;
  bert.embedding_norm = true;
  bert.type_vocab_size = 2;
  cases.push_back(language_model_gradcheck("LanguageModel, BERT", bert, false));
  cases.push_back(classifier_gradcheck("SequenceClassifier", bert));
  ModelOptions vit = gpt;
  vit.patch_size = 2;
  cases.push_back(vision_transformer_gradcheck("VisionTransformer", vit));
  vit.pooled_head = false;
  vit.position_embedding = PositionEmbedding::kRope;
  cases.push_back(vision_transformer_gradcheck("VisionTransformer, rotary, linear head", vit));
  cases.push_back(linear_classifier_gradcheck("LinearClassifier", vit));
  const Var steps = random_input({4, 3, 5}, 4), row = random_input({6, 4}, 5);
  const Var before = random_input({3, 8}, 6), states = random_input({6, 4}, 7);
  const Tensor step_lengths = lengths_of({4, 1, 3});
  cases.push_back(layer_case<GruLayer>(
      "GruLayer, both directions",
      GruLayer::Options{.in = 5, .hidden_size = 4, .bidirectional = true}, {steps, before},
      [=](const GruLayer& f) { return f(steps, {.lengths = step_lengths, .initial = before}); }));
  cases.push_back(layer_case<GruLayer>(
      "GruLayer, step", GruLayer::Options{.in = 4, .hidden_size = 4}, {row, states},
      [=](const GruLayer& f) { return f.step(f.input(row), states); }));
  // Two rows a sentence.
  const Var remembered = random_input({3, 4, 6}, 8);
  cases.push_back(layer_case<AttentiveGru>(
      "AttentiveGru", AttentiveGru::Options{.hidden_size = 4, .memory_size = 6},
      {row, states, remembered}, [=](const AttentiveGru& f) {
        const AttentiveGru::Memory keys = f.remember(remembered, step_lengths);
        return f.step(f.word(row), f.attend(states, keys).out, states);
      }));
  cases.push_back(rnn_attention_gradcheck("RnnAttention, tied", small_options()));
  cases.push_back(rnn_attention_gradcheck("RnnAttention, untied", pre));
  return cases;
}

}  // namespace tapestry
