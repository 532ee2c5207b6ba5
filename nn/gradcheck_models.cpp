#include "nn/gradcheck_models.h"

#include <memory>

#include "core/philox.h"

namespace tapestry {
namespace {

constexpr uint64_t kSeed = 5;

Var random_input(const Shape& shape, uint32_t stream) {
  Tensor value = Tensor::empty(shape, DType::kFloat64);
  for (int64_t i = 0; i < value.numel(); ++i) {
    value.data<double>()[i] = philox_normal({kSeed, 1, stream}, static_cast<uint64_t>(i));
  }
  return Var::parameter(value);
}

// Biases and norms start at 0 and 1, where some errors cannot be seen: everything is moved.
std::vector<Var> disturbed_parameters(const ParamStore& store) {
  std::vector<Var> vars;
  uint32_t stream = 100;
  for (const Parameter& parameter : store.parameters()) {
    double* element = parameter.var.value().data<double>();
    for (int64_t i = 0; i < parameter.var.value().numel(); ++i) {
      element[i] += 0.2 * philox_normal({kSeed, 2, stream}, static_cast<uint64_t>(i));
    }
    vars.push_back(parameter.var);
    ++stream;
  }
  return vars;
}

// A layer with its store, kept alive by the case's closure.
template <class Layer>
struct Built {
  template <class Options>
  explicit Built(const Options& options)
      : store(kSeed, DType::kFloat64), layer(options, store.root()) {}
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
  return Tensor::from(lengths, {count});
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
  SmallNorm(const NormOptions& options, const ParamScope& scope) : Norm(6, options, scope) {}
};

}  // namespace

GradcheckCase encoder_decoder_gradcheck(const std::string& name, const ModelOptions& options) {
  struct Model {
    explicit Model(const ModelOptions& options)
        : store(kSeed, DType::kFloat64),
          model(options, {.source_size = 11, .target_size = 11}, store.root()) {}
    ParamStore store;
    EncoderDecoder model;
  };
  auto built = std::make_shared<Model>(options);
  const EncoderDecoder::Batch batch{Tensor::from<int32_t>({4, 7, 5, 3, 9, 3, 0, 0}, {2, 4}),
                                    lengths_of({4, 2}),
                                    Tensor::from<int32_t>({2, 6, 8, 2, 10, 0}, {2, 3}),
                                    Tensor::from<int32_t>({6, 8, 3, 10, 3, 0}, {2, 3})};
  GradcheckCase result{name, disturbed_parameters(built->store), [built, batch] {
                         return built->model.loss(batch, {.label_smoothing = 0.1}).loss;
                       }};
  // A kinked activation makes differences across the kink wrong, not the gradient.
  if (options.hidden_act == Activation::kRelu) result.tolerance = 1e-4;
  return result;
}

std::vector<GradcheckCase> model_gradchecks() {
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
  cases.push_back(layer_case<SmallNorm>("Norm, layer", NormOptions{}, {narrow},
                                        [=](const SmallNorm& f) { return f(narrow); }));
  cases.push_back(layer_case<SmallNorm>("Norm, RMS", NormOptions{.kind = NormKind::kRms}, {narrow},
                                        [=](const SmallNorm& f) { return f(narrow); }));
  cases.push_back(layer_case<FeedForward>("FeedForward",
                                          FeedForward::Options{.hidden_size = 8,
                                                               .intermediate_size = 12,
                                                               .activation = Activation::kSilu,
                                                               .dropout = 0.2},
                                          {x}, [=](const FeedForward& f) { return f(x); }));
  for (const NormPosition position : {NormPosition::kPost, NormPosition::kPre}) {
    cases.push_back(layer_case<Residual>(
        position == NormPosition::kPost ? "Residual, post-norm" : "Residual, pre-norm",
        Residual::Options{.hidden_size = 8, .position = position, .norm = {.dropout = 0.2}}, {x},
        [=](const Residual& f) { return f(x, [](const Var& h) { return tanh(h); }); }));
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
  cases.push_back(layer_case<CrossAttention>("CrossAttention", attention, {x, memory},
                                             [=](const auto& f) { return f(x, memory, lengths); }));
  for (const auto& [name, options] : {std::pair{"post-norm", post}, std::pair{"pre-norm", pre}}) {
    cases.push_back(layer_case<EncoderLayer>(concat("EncoderLayer, ", name), options, {x},
                                             [=](const auto& f) { return f(x, x_lengths); }));
    cases.push_back(layer_case<DecoderLayer>(concat("DecoderLayer, ", name), options, {x, memory},
                                             [=](const auto& f) { return f(x, memory, lengths); }));
  }
  cases.push_back(encoder_decoder_gradcheck("EncoderDecoder, post-norm, tied", post));
  cases.push_back(
      encoder_decoder_gradcheck("EncoderDecoder, pre-norm, RMS, grouped, learned, untied", pre));
  return cases;
}

}  // namespace tapestry
