// Rows of the gradient table for layers.
#include "core/base/enumerators.h"
#include "nn/gradcheck/cases.h"

namespace tapestry::gradchecks {

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

namespace {

struct SmallNorm : Norm {
  SmallNorm(const Norm::Options& options, const ParamScope& scope) : Norm(6, options, scope) {}
};

// A frozen linear layer beside an adapter.
GradcheckCase adapted_case(const Inputs& in, const Var& x, bool dora) {
  const std::shared_ptr<ParamStore> store(new ParamStore(
      in.store({.rank = 2, .alpha = 3, .dropout = 0.2, .dora = dora, .target = {"*"}})));
  auto layer = std::make_shared<Linear>(
      Linear::Options{.in = 6, .out = 5, .activation = Activation::kGeluTanh},
      store->root() / "layer");
  std::vector<Var> inputs = disturbed_parameters(*store);
  inputs.push_back(x);
  // The lengths of rows count as constants.
  const auto held = std::make_shared<PackedScope>(*store);
  return {dora ? "Linear, adapter with magnitudes" : "Linear, adapter", inputs,
          [store, layer, x, held] { return (*layer)(x); }};
}

}  // namespace

void add_layers(Cases& cases, const Inputs& in) {
  const Var x = in.normal({2, 3, 8}, 1), narrow = in.normal({4, 6}, 3);
  cases.push_back(layer_case<Linear>(
      in, "Linear", Linear::Options{.in = 6, .out = 5, .activation = Activation::kGeluTanh},
      {narrow}, [=](const Linear& f) { return f(narrow); }));
  cases.push_back(adapted_case(in, narrow, false));
  cases.push_back(adapted_case(in, narrow, true));
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
  for (const bool bias : {true, false}) {
    cases.push_back(layer_case<Ssru>(in, bias ? "Ssru" : "Ssru, no bias",
                                     Ssru::Options{.hidden_size = 8, .bias = bias}, {x},
                                     [=](const Ssru& f) { return f(x, {}, /*causal=*/true); }));
  }
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
  for (ModelOptions recurrent : {post, pre}) {
    recurrent.decoder_self_attention = DecoderSelfAttention::kSsru;
    const bool is_post = recurrent.norm_position == NormPosition::kPost;
    cases.push_back(layer_case<DecoderLayer>(
        in, concat("DecoderLayer, ", is_post ? "post" : "pre", "-norm, SSRU"), recurrent,
        {x, memory}, [=](const auto& f) { return f(x, memory, lengths); }));
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

}  // namespace tapestry::gradchecks
