// Encoders whose tensors have other names than BERT's: DistilBERT and ModernBERT.
#include "apps/config/sections.h"
#include "apps/interop/architectures/causal_keys.h"
#include "apps/interop/foreign_config.h"

namespace tapestry::interop {
namespace {

constexpr TensorRow row(const char* theirs, const char* ours, const char* rows, const char* columns,
                        bool ModelFacts::*when = nullptr) {
  return {theirs, ours, rows, columns, Stream::kNone, Change::kNone, when};
}

constexpr KeyRow kDistilBertKeys[] = {
    {"dim", "hidden_size", "768"},
    {"n_layers", "num_hidden_layers", "6"},
    {"n_heads", "num_attention_heads", "12"},
    {"hidden_dim", "intermediate_size", "3072"},
    {"activation", "hidden_act", "\"gelu\""},
    {"dropout", "dropout", "0.1"},
    {"attention_dropout", "attention_dropout", "0.1"},
    {"max_position_embeddings", "max_position_embeddings", "512"},
    {"initializer_range", "initializer_range", "0.02"},
    {"tie_word_embeddings", "tie_word_embeddings", "true"},
};
constexpr FixedKey kDistilBertFixed[] = {{"sinusoidal_pos_embds", "false", "false"}};
constexpr FixedOption kDistilBertOptions[] = {
    {"norm", "layernorm"},      {"norm_position", "post"}, {"position_embedding", "learned"},
    {"final_norm", "false"},    {"bias", "true", true},    {"scale_embeddings", "false", true},
    {"embedding_norm", "true"}, {"norm_eps", "1e-12"},     {"pooler", "relu"},
};
constexpr ClassDefault kDistilBertIds[] = {{"vocab_size", "30522"}, {"pad_token_id", "0"}};
constexpr TensorRow kDistilBertTensors[] = {
    row("^embeddings.word_embeddings.weight", "embedding.weight", "V", "D"),
    row("^embeddings.position_embeddings.weight", "positions.weight", "P", "D"),
    row("^embeddings.LayerNorm.*", "embedding_norm.*", "D", ""),
    row("^transformer.layer.#.attention.{q_lin,k_lin,v_lin}.*", "layers.#.self_attention.qkv.*",
        "DKK", "D"),
    row("^transformer.layer.#.attention.out_lin.*", "layers.#.self_attention.out.*", "D", "D"),
    row("^transformer.layer.#.sa_layer_norm.*", "layers.#.self_attention_norm.*", "D", ""),
    row("^transformer.layer.#.ffn.lin1.*", "layers.#.feed_forward.up.*", "F", "D"),
    row("^transformer.layer.#.ffn.lin2.*", "layers.#.feed_forward.down.*", "D", "F"),
    row("^transformer.layer.#.output_layer_norm.*", "layers.#.feed_forward_norm.*", "D", ""),
    row("vocab_transform.*", "head.dense.*", "D", "D", &ModelFacts::masked),
    row("vocab_layer_norm.*", "head.norm.*", "D", "", &ModelFacts::masked),
    row("vocab_projector.bias", "head.bias", "V", "", &ModelFacts::masked),
    row("vocab_projector.weight", "output.weight", "V", "D", &ModelFacts::fills_untied),
    row("pre_classifier.*", "pooler.*", "D", "D", &ModelFacts::pooled),
    row("classifier.*", "classifier.*", "C", "D", &ModelFacts::classifies),
    row("classifier.*", "token_head.*", "C", "D", &ModelFacts::tags),
    row("qa_outputs.*", "span_head.*", "2", "D", &ModelFacts::finds_spans),
};

constexpr KeyRow kModernBertKeys[] = {
    {"hidden_size", "hidden_size", "768"},
    {"num_hidden_layers", "num_hidden_layers", "22"},
    {"num_attention_heads", "num_attention_heads", "12"},
    {"intermediate_size", "intermediate_size", "1152"},
    {"hidden_activation", "hidden_act", "\"gelu\""},
    {"attention_dropout", "attention_dropout", "0.0"},
    {"max_position_embeddings", "max_position_embeddings", "8192"},
    {"norm_eps", "norm_eps", "1e-05"},
    {"initializer_range", "initializer_range", "0.02"},
    {"tie_word_embeddings", "tie_word_embeddings", "true"},
};
constexpr FixedKey kModernBertFixed[] = {
    {"norm_bias", "false", "false"},  {"attention_bias", "false", "false"},
    {"mlp_bias", "false", "false"},   {"classifier_bias", "false", "false"},
    {"decoder_bias", "true", "true"}, {"classifier_activation", "\"gelu\"", "\"gelu\""},
};
constexpr FixedOption kModernBertOptions[] = {
    {"norm", "layernorm"},      {"norm_position", "pre"}, {"position_embedding", "rope"},
    {"final_norm", "true"},     {"bias", "false"},        {"scale_embeddings", "false", true},
    {"embedding_norm", "true"}, {"first_norm", "false"},  {"pooler", "normed"},
    {"pooled_tokens", "true"},
};
constexpr ClassDefault kModernBertIds[] = {
    {"vocab_size", "50368"},   {"pad_token_id", "50283"}, {"bos_token_id", "50281"},
    {"eos_token_id", "50282"}, {"cls_token_id", "50281"}, {"sep_token_id", "50282"},
};
constexpr TensorRow kModernBertTensors[] = {
    row("^embeddings.tok_embeddings.weight", "embedding.weight", "V", "D"),
    row("^embeddings.norm.*", "embedding_norm.*", "D", ""),
    {"^layers.#.attn_norm.*", "layers.#.self_attention_norm.*", "D", "", Stream::kNone,
     Change::kNone, nullptr, /*optional=*/false, /*but_first=*/true},
    {"^layers.#.attn.Wqkv.*", "layers.#.self_attention.qkv.*", "QKK", "D"},
    row("^layers.#.attn.Wo.*", "layers.#.self_attention.out.*", "D", "Q"),
    row("^layers.#.mlp_norm.*", "layers.#.feed_forward_norm.*", "D", ""),
    row("^layers.#.mlp.Wi.*", "layers.#.feed_forward.up.*", "FF", "D"),
    row("^layers.#.mlp.Wo.*", "layers.#.feed_forward.down.*", "D", "F"),
    row("^final_norm.*", "norm.*", "D", ""),
    row("head.dense.*", "head.dense.*", "D", "D", &ModelFacts::masked),
    row("head.norm.*", "head.norm.*", "D", "", &ModelFacts::masked),
    row("decoder.bias", "head.bias", "V", "", &ModelFacts::masked),
    row("decoder.weight", "output.weight", "V", "D", &ModelFacts::fills_untied),
    row("head.dense.*", "pooler.*", "D", "D", &ModelFacts::pooled),
    row("head.norm.*", "pooler_norm.*", "D", "", &ModelFacts::pooled),
    row("head.dense.*", "pooler.*", "D", "D", &ModelFacts::pooled_tokens),
    row("head.norm.*", "pooler_norm.*", "D", "", &ModelFacts::pooled_tokens),
    row("classifier.weight", "classifier.weight", "C", "D", &ModelFacts::classifies),
    row("classifier.bias", "classifier.bias", "C", "", &ModelFacts::classifies),
    row("classifier.weight", "token_head.weight", "C", "D", &ModelFacts::tags),
    row("classifier.bias", "token_head.bias", "C", "", &ModelFacts::tags),
    row("classifier.weight", "span_head.weight", "2", "D", &ModelFacts::finds_spans),
    {"classifier.bias", "span_head.bias", "2", "", Stream::kNone, Change::kNone,
     &ModelFacts::finds_spans, /*optional=*/true},
};

// Their local_attention counts both sides of a token, our window one side and the token itself.
void read_modernbert(const Json& theirs, Json& model, Reasons& reasons) {
  const Json pooling = value_of(theirs, "classifier_pooling", "cls");
  if (pooling != "cls" && pooling != "mean") {
    reasons.push_back(concat("classifier_pooling is ", pooling.dump(), ", expected cls or mean"));
  } else {
    model["classifier_pooling"] = pooling;
  }
  const int64_t pattern = number_of(theirs, "global_attn_every_n_layers", 3, reasons);
  const int64_t both = number_of(theirs, "local_attention", 128, reasons);
  read_windows(
      theirs, [&](int64_t i) { return pattern > 0 && i % pattern != 0; }, both / 2 + 1, model,
      reasons);
  const Json parameters = value_of(theirs, "rope_parameters", Json::object());
  const auto of_layers = [&](const char* kind, const char* older, double usual) {
    const Json own = value_of(parameters, kind, Json::object());
    const Json type = value_of(own, "rope_type", "default");
    if (type != "default") reasons.push_back(concat("rope_type of ", kind, " is ", type.dump()));
    return value_of(own, "rope_theta", value_of(theirs, older, usual));
  };
  model["rope_layout"] = "half";
  model["rope_scaling"] = {{"type", "none"}};
  model["rope_theta"] = of_layers("full_attention", "global_rope_theta", 160000.0);
  const Json local = of_layers("sliding_attention", "local_rope_theta", 10000.0);
  if (model.value("attention_window", Json(0)) != 0) model["window_rope_theta"] = local;
}

void write_modernbert(const ModelFacts& facts, Json& theirs) {
  const ModelOptions& model = facts.config.model;
  if (pools_classes(facts.config)) {
    theirs["classifier_pooling"] = model.class_pooling == TextPooling::kMean ? "mean" : "cls";
  }
  write_windows(model, theirs);
  theirs.erase("sliding_window");
  if (model.attention_window > 0) theirs["local_attention"] = 2 * (model.attention_window - 1);
  const double local = model.window_rope_theta > 0 ? model.window_rope_theta : model.rope_theta;
  theirs["rope_parameters"] = {
      {"full_attention", rope_parameters(model)},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", local}}}};
  theirs["global_rope_theta"] = model.rope_theta;
  theirs["local_rope_theta"] = local;
}

}  // namespace

extern const Architecture kDistilBert = {
    .name = "distilbert",
    .prefix = "distilbert.",
    .type = ModelType::kEncoder,
    .classes = {{"mlm", "DistilBertForMaskedLM"},
                {"classification", "DistilBertForSequenceClassification"},
                {"multi_label", "DistilBertForSequenceClassification"},
                {"text_regression", "DistilBertForSequenceClassification"},
                {"question_answering", "DistilBertForQuestionAnswering"},
                {"token_classification", "DistilBertForTokenClassification"}},
    .headless = "DistilBertModel",
    .keys = kDistilBertKeys,
    .fixed = kDistilBertFixed,
    .options = kDistilBertOptions,
    .ids = kDistilBertIds,
    .tensors = kDistilBertTensors,
    .skipped = {"distilbert.embeddings.position_ids", "vocab_projector.weight"},
    .tied = {{"distilbert.embeddings.word_embeddings.weight", "vocab_projector.weight"}},
    .only_trained = {"seq_classif_dropout"},
};

extern const Architecture kModernBert = {
    .name = "modernbert",
    .prefix = "model.",
    .type = ModelType::kEncoder,
    .classes = {{"mlm", "ModernBertForMaskedLM"},
                {"classification", "ModernBertForSequenceClassification"},
                {"multi_label", "ModernBertForSequenceClassification"},
                {"text_regression", "ModernBertForSequenceClassification"},
                {"question_answering", "ModernBertForQuestionAnswering"},
                {"token_classification", "ModernBertForTokenClassification"}},
    .headless = "ModernBertModel",
    .keys = kModernBertKeys,
    .fixed = kModernBertFixed,
    .options = kModernBertOptions,
    .ids = kModernBertIds,
    .tensors = kModernBertTensors,
    .skipped = {"decoder.weight", "model.*.rotary_emb.inv_freq"},
    .tied = {{"model.embeddings.tok_embeddings.weight", "decoder.weight"}},
    .may_lack_biases = true,
    .gated = true,
    .only_activation = "geglu",  // of its heads whatever the layers have
    .only_trained = {"embedding_dropout", "mlp_dropout", "classifier_dropout"},
    .carried = {"attention_window", "layer_types", "window_rope_theta", "classifier_pooling"},
    .read_more = read_modernbert,
    .write_more = write_modernbert,
};

}  // namespace tapestry::interop
