// T5 of all versions, and mT5: norms without means or biases, scores that are not scaled, and
// biases of the scores by distance, which the layers of a stack share.
#include <array>
#include <cmath>

#include "apps/interop/architectures/architectures.h"
#include "apps/interop/foreign_config.h"

namespace tapestry::interop {
namespace {

constexpr std::array<KeyRow, 12> keys(const char* inner, const char* layers, const char* heads) {
  return {{
      {"d_model", "hidden_size", "512"},
      {"d_kv", "head_size", "64"},
      {"d_ff", "intermediate_size", inner},
      {"num_layers", "encoder_layers", layers},
      {"num_decoder_layers", "decoder_layers", "null"},
      {"num_heads", "num_attention_heads", heads},
      {"relative_attention_num_buckets", "relative_attention_num_buckets", "32"},
      {"relative_attention_max_distance", "relative_attention_max_distance", "128"},
      {"layer_norm_epsilon", "norm_eps", "1e-06"},
      {"dropout_rate", "dropout", "0.1"},
      {"dropout_rate", "attention_dropout", "0.1"},
      {"dropout_rate", "activation_dropout", "0.1"},
  }};
}
constexpr auto kT5Keys = keys("2048", "6", "8");
constexpr auto kMt5Keys = keys("1024", "8", "6");

constexpr FixedOption kOptions[] = {
    {"norm", "rmsnorm"},         {"norm_position", "pre"},
    {"final_norm", "true"},      {"bias", "false"},
    {"attention_scale", "1"},    {"position_embedding", "relative"},
    {"embedding_norm", "false"}, {"scale_embeddings", "false", true},
};

constexpr std::array<ClassDefault, 4> ids(const char* vocabulary) {
  return {{{"vocab_size", vocabulary},
           {"pad_token_id", "0"},
           {"eos_token_id", "1"},
           {"decoder_start_token_id", "0"}}};
}
constexpr auto kT5Ids = ids("32128");
constexpr auto kMt5Ids = ids("250112");

constexpr TensorRow row(const char* theirs, const char* ours, const char* rows,
                        const char* columns = "", bool ModelFacts::*when = nullptr) {
  return {theirs, ours, rows, columns, Stream::kNone, Change::kNone, when};
}

constexpr TensorRow kTensors[] = {
    row("shared.weight", "embedding.weight", "V", "D"),
    row("$.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "$.relative_positions.weight", "B", "N"),
    row("$.block.#.layer.0.layer_norm.weight", "$.layers.#.self_attention_norm.weight", "D"),
    row("$.block.#.layer.0.SelfAttention.{q,k,v}.weight", "$.layers.#.self_attention.qkv.weight",
        "QKK", "D"),
    row("$.block.#.layer.0.SelfAttention.o.weight", "$.layers.#.self_attention.out.weight", "D",
        "Q"),
    row("decoder.block.#.layer.1.layer_norm.weight", "decoder.layers.#.cross_attention_norm.weight",
        "D"),
    row("decoder.block.#.layer.1.EncDecAttention.q.weight",
        "decoder.layers.#.cross_attention.q.weight", "Q", "D"),
    row("decoder.block.#.layer.1.EncDecAttention.{k,v}.weight",
        "decoder.layers.#.cross_attention.kv.weight", "KK", "D"),
    row("decoder.block.#.layer.1.EncDecAttention.o.weight",
        "decoder.layers.#.cross_attention.out.weight", "D", "Q"),
    // A decoder's feed-forward network is its third sub-layer.
    row("encoder.block.#.layer.1.layer_norm.weight", "encoder.layers.#.feed_forward_norm.weight",
        "D"),
    row("encoder.block.#.layer.1.DenseReluDense.wi.weight",
        "encoder.layers.#.feed_forward.up.weight", "F", "D", &ModelFacts::plain),
    row("encoder.block.#.layer.1.DenseReluDense.{wi_0,wi_1}.weight",
        "encoder.layers.#.feed_forward.up.weight", "FF", "D", &ModelFacts::gated),
    row("encoder.block.#.layer.1.DenseReluDense.wo.weight",
        "encoder.layers.#.feed_forward.down.weight", "D", "F"),
    row("decoder.block.#.layer.2.layer_norm.weight", "decoder.layers.#.feed_forward_norm.weight",
        "D"),
    row("decoder.block.#.layer.2.DenseReluDense.wi.weight",
        "decoder.layers.#.feed_forward.up.weight", "F", "D", &ModelFacts::plain),
    row("decoder.block.#.layer.2.DenseReluDense.{wi_0,wi_1}.weight",
        "decoder.layers.#.feed_forward.up.weight", "FF", "D", &ModelFacts::gated),
    row("decoder.block.#.layer.2.DenseReluDense.wo.weight",
        "decoder.layers.#.feed_forward.down.weight", "D", "F"),
    row("$.final_layer_norm.weight", "$.norm.weight", "D"),
    row("lm_head.weight", "output.weight", "W", "D", &ModelFacts::untied),
};

constexpr std::string_view kGated = "gated-";
// The one name that means another function with a gate than without one.
constexpr std::string_view kGatedGelu = "gated-gelu";

const char* activation_of(const std::string& theirs) {
  if (theirs == kGatedGelu) return "geglu_tanh";
  const bool gated = theirs.starts_with(kGated);
  return our_activation(gated ? theirs.substr(kGated.size()) : theirs, gated);
}

std::string their_projection(const HiddenAct& act) {
  if (act == HiddenAct(Activation::kGeluTanh, /*gated=*/true)) return std::string(kGatedGelu);
  // gated-gelu is taken.
  if (act == HiddenAct(Activation::kGelu, /*gated=*/true)) return "gated-gelu_python";
  return concat(act.gated ? kGated : "", their_activation(name_of(act)));
}

void read_common(const Json& theirs, const char* activation, Json& model, Reasons& reasons) {
  if (!model.contains("decoder_layers")) model["decoder_layers"] = model["encoder_layers"];
  const Json projection = theirs.value("feed_forward_proj", Json(activation));
  const char* const ours =
      projection.is_string() ? activation_of(projection.get<std::string>()) : nullptr;
  if (ours == nullptr) {
    reasons.push_back(concat("feed_forward_proj is ", projection.dump(),
                             ", expected an activation that Tapestry has"));
    return;
  }
  model["hidden_act"] = ours;
  // Their positions have no end; texts of their training had so many tokens.
  constexpr int64_t kUsualLength = 512;
  model["max_position_embeddings"] = number_of(theirs, "n_positions", kUsualLength, reasons);
  model["tie_word_embeddings"] = true;  // the file decides
  model["initializer_range"] = 0;
}

double scale_of(const Json& width) { return 1 / std::sqrt(width.get<double>()); }

// Today's files say if logits are scaled; older ones mean so unless they untie the classifier.
void read_t5(const Json& theirs, Json& model, Reasons& reasons) {
  read_common(theirs, "relu", model, reasons);
  const Json tied = theirs.value("tie_word_embeddings", Json(true));
  const Json scaled = theirs.value("scale_decoder_outputs", Json(tied != false));
  if (!scaled.is_boolean()) {
    reasons.push_back(
        concat("scale_decoder_outputs is ", scaled.dump(), ", expected true or false"));
    return;
  }
  model["logit_scale"] = scaled == true ? Json(scale_of(model["hidden_size"])) : Json(1);
}

void read_mt5(const Json& theirs, Json& model, Reasons& reasons) {
  read_common(theirs, "gated-gelu", model, reasons);
  model["logit_scale"] = 1;
}

void write_common(const ModelFacts& facts, Json& theirs) {
  const ModelOptions& model = facts.config.model;
  theirs["d_kv"] = model.chosen_head_size();
  theirs["feed_forward_proj"] = their_projection(model.hidden_act);
  theirs["n_positions"] = model.max_position_embeddings;
}

// Today's releases tie the classifier unless the file has another one; older ones do as
// tie_word_embeddings says, and scale the logits of a tied one.
void write_t5(const ModelFacts& facts, Json& theirs) {
  write_common(facts, theirs);
  const bool scaled = facts.config.model.logit_scale != 1;
  theirs["tie_word_embeddings"] = scaled;
  theirs["scale_decoder_outputs"] = scaled;
}

void write_mt5(const ModelFacts& facts, Json& theirs) {
  write_common(facts, theirs);
  theirs["tie_word_embeddings"] = facts.tied;
}

void refuse_scale(const Config& config, bool allowed, const char* name, Reasons& reasons) {
  const ModelOptions& model = config.model;
  const double scale = 1 / std::sqrt(static_cast<double>(model.hidden_size));
  constexpr double kClose = 1e-12;
  if (model.logit_scale == 1 || (allowed && std::abs(model.logit_scale / scale - 1) < kClose))
    return;
  reasons.push_back(concat("model.logit_scale: ", model.logit_scale, " has no place in ", name));
}

void refuse_t5(const Config& config, Reasons& reasons) {
  refuse_scale(config, /*allowed=*/true, "t5", reasons);
}
void refuse_mt5(const Config& config, Reasons& reasons) {
  refuse_scale(config, /*allowed=*/false, "mt5", reasons);
}

// What the classes of this family have in common.
Architecture of_family(Architecture one) {
  one.type = ModelType::kEncoderDecoder;
  one.options = kOptions;
  one.tensors = kTensors;
  // The first releases had a bias that nothing read.
  one.skipped = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight",
                 "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"};
  one.tied = {{"shared.weight", "encoder.embed_tokens.weight"},
              {"shared.weight", "decoder.embed_tokens.weight"},
              {"shared.weight", "lm_head.weight"}};
  one.may_lack_biases = true;
  one.may_untie = true;
  one.carried = {"hidden_act", "tie_word_embeddings", "share_encoder_decoder_embeddings",
                 "logit_scale", "max_position_embeddings"};
  return one;
}

}  // namespace

extern const Architecture kT5 = of_family({.name = "t5",
                                           .classes = both_tasks("T5ForConditionalGeneration"),
                                           .headless = "T5Model",
                                           .keys = kT5Keys,
                                           .ids = kT5Ids,
                                           .read_more = read_t5,
                                           .write_more = write_t5,
                                           .refuse_more = refuse_t5});

extern const Architecture kMt5 = of_family({.name = "mt5",
                                            .classes = both_tasks("MT5ForConditionalGeneration"),
                                            .headless = "MT5Model",
                                            .keys = kMt5Keys,
                                            .ids = kMt5Ids,
                                            .read_more = read_mt5,
                                            .write_more = write_mt5,
                                            .refuse_more = refuse_mt5});

}  // namespace tapestry::interop
