// Models of Llama's kind with other norms, or with layers that differ: Gemma, Gemma 2, Gemma 3
// (text), OLMo 2 and SmolLM3.
#include <cmath>

#include "apps/interop/architectures/causal_keys.h"
#include "apps/interop/foreign_config.h"

namespace tapestry::interop {
namespace {

constexpr const char* kGelu = "\"gelu_pytorch_tanh\"";
constexpr auto kGemmaKeys = causal_keys({.hidden = "3072",
                                         .intermediate = "24576",
                                         .layers = "28",
                                         .heads = "16",
                                         .groups = "16",
                                         .positions = "8192",
                                         .tied = "true",
                                         .act = kGelu});
constexpr auto kGemma2Keys = causal_keys({.hidden = "2304",
                                          .intermediate = "9216",
                                          .layers = "26",
                                          .heads = "8",
                                          .groups = "4",
                                          .positions = "8192",
                                          .tied = "true",
                                          .act_key = "hidden_activation",
                                          .act = kGelu});
constexpr auto kGemma3Keys = causal_keys({.hidden = "2304",
                                          .intermediate = "9216",
                                          .layers = "26",
                                          .heads = "8",
                                          .groups = "4",
                                          .positions = "131072",
                                          .tied = "true",
                                          .act_key = "hidden_activation",
                                          .act = kGelu});
constexpr auto kOlmo2Keys =
    causal_keys({.intermediate = "11008", .groups = "null", .positions = "2048", .eps = "1e-05"});
constexpr auto kSmolLm3Keys = causal_keys({.hidden = "2048",
                                           .intermediate = "11008",
                                           .layers = "36",
                                           .heads = "16",
                                           .groups = "4",
                                           .positions = "32768",
                                           .tied = "true"});

constexpr FixedKey kBothWays[] = {{"use_bidirectional_attention", "false", "false"}};
constexpr FixedKey kSmolLm3Fixed[] = {{"use_sliding_window", "false", "false"}};

constexpr ClassDefault kGemmaIds[] = {
    {"vocab_size", "256000"}, {"pad_token_id", "0"}, {"eos_token_id", "1"}, {"bos_token_id", "2"}};
constexpr ClassDefault kGemma3Ids[] = {
    {"vocab_size", "262208"}, {"pad_token_id", "0"}, {"eos_token_id", "1"}, {"bos_token_id", "2"}};
constexpr ClassDefault kOlmo2Ids[] = {
    {"vocab_size", "50304"}, {"pad_token_id", "1"}, {"eos_token_id", "50279"}};
constexpr ClassDefault kSmolLm3Ids[] = {{"vocab_size", "128256"},
                                        {"pad_token_id", "128004"},
                                        {"bos_token_id", "128000"},
                                        {"eos_token_id", "128001"}};

constexpr FixedOption kOffset{"norm_unit_offset", "true"};
constexpr FixedOption kScaled{"scale_embeddings", "true"};
constexpr auto kGemmaOptions = causal_options(kPreNorm, kNoBias, kOffset, kScaled);
constexpr auto kGemma2Options =
    causal_options(FixedOption{"norm_position", "sandwich"}, kNoBias, kOffset, kScaled);
constexpr auto kGemma3Options =
    causal_options(FixedOption{"norm_position", "sandwich"}, FixedOption{"qk_norm", "head"},
                   kNoBias, kOffset, kScaled);
constexpr auto kOlmo2Options =
    causal_options(FixedOption{"norm_position", "branch"}, FixedOption{"qk_norm", "projection"},
                   kNoBias, kUnscaled);
constexpr auto kSmolLm3Options = causal_options(kPreNorm, kUnscaled);

void read_gemma(const Json& theirs, Json& model, Reasons& reasons) {
  read_rope(theirs, model, reasons);
  read_head_size(theirs, 256, model, reasons);
  read_attention_bias(theirs, model);
}

// The first releases say gelu, and mean its approximation, which the class takes it for.
void read_gemma1(const Json& theirs, Json& model, Reasons& reasons) {
  if (theirs.value("hidden_act", Json()) == "gelu") model["hidden_act"] = "geglu_tanh";
  read_gemma(theirs, model, reasons);
}

// Of their two names for one function, the one that Gemma's files have.
void write_activation(const char* key, Json& theirs) {
  if (theirs.value(key, "") == "gelu_new") theirs[key] = "gelu_pytorch_tanh";
}

void write_gemma(const ModelFacts& facts, Json& theirs) {
  write_activation("hidden_act", theirs);
  if (theirs.value("hidden_act", "") == "gelu") theirs["hidden_act"] = "gelu_python";
  write_rope(facts.config.model, theirs);
  theirs["attention_bias"] = facts.config.model.has_query_bias();
}

// A softcap of theirs, null or a number.
void read_softcap(const Json& theirs, const char* key, const Json& usual, const char* ours,
                  Json& model, Reasons& reasons) {
  const auto found = theirs.find(key);
  const Json cap = found == theirs.end() ? usual : *found;
  if (!cap.is_null() && !(cap.is_number() && cap.get<double>() > 0)) {
    reasons.push_back(concat(key, " is ", cap.dump(), ", expected null or a number above 0"));
    return;
  }
  model[ours] = cap.is_null() ? Json(0) : cap;
}

void read_softcaps(const Json& theirs, const Json& of_scores, const Json& of_logits, Json& model,
                   Reasons& reasons) {
  read_softcap(theirs, "attn_logit_softcapping", of_scores, "attention_softcap", model, reasons);
  read_softcap(theirs, "final_logit_softcapping", of_logits, "logit_softcap", model, reasons);
}

void write_softcaps(const ModelOptions& model, Json& theirs) {
  const auto softcap = [](double cap) { return cap > 0 ? Json(cap) : Json(); };
  theirs["attn_logit_softcapping"] = softcap(model.attention_softcap);
  theirs["final_logit_softcapping"] = softcap(model.logit_softcap);
}

// Scores are divided by the root of query_pre_attn_scalar.
void read_scale(const Json& theirs, Json& model, Reasons& reasons) {
  const Json scalar = value_of(theirs, "query_pre_attn_scalar", 256);
  if (!scalar.is_number() || scalar.get<double>() <= 0) {
    reasons.push_back(concat("query_pre_attn_scalar is ", scalar.dump(), ", expected a number"));
    return;
  }
  const Json size = model.value("head_size", Json(256));
  model["attention_scale"] = scalar == size ? 0 : 1 / std::sqrt(scalar.get<double>());
}

// 1 / attention_scale^2, to the last digit that a double keeps.
double scalar_of(const ModelOptions& model) {
  const double scale = model.attention_scale;
  if (scale == 0) return static_cast<double>(model.chosen_head_size());
  return std::round(1e6 / (scale * scale)) / 1e6;
}

// The classes take integers only.
void write_scale(const ModelOptions& model, Json& theirs) {
  theirs["query_pre_attn_scalar"] = static_cast<int64_t>(std::round(scalar_of(model)));
}

void refuse_scale(const Config& config, Reasons& reasons) {
  const double scalar = scalar_of(config.model);
  if (scalar == std::round(scalar)) return;
  reasons.push_back(concat("model.attention_scale: ", config.model.attention_scale,
                           " has no place in query_pre_attn_scalar, which is an integer"));
}

// Without layer_types every other layer has a window, the first one, too.
void read_gemma2(const Json& theirs, Json& model, Reasons& reasons) {
  read_windows(
      theirs, [](int64_t i) { return i % 2 == 0; }, value_of(theirs, "sliding_window", 4096), model,
      reasons);
  read_gemma(theirs, model, reasons);
  read_softcaps(theirs, 50.0, 30.0, model, reasons);
  read_scale(theirs, model, reasons);
}

void write_gemma2(const ModelFacts& facts, Json& theirs) {
  const ModelOptions& model = facts.config.model;
  write_activation("hidden_activation", theirs);
  write_rope(model, theirs);
  theirs["attention_bias"] = model.has_query_bias();
  write_windows(model, theirs);
  write_softcaps(model, theirs);
  write_scale(model, theirs);
}

// Files of today have rope_parameters for each kind of layers; older ones rope_local_base_freq, and
// a rope_scaling of the layers that see all.
void read_gemma3(const Json& theirs, Json& model, Reasons& reasons) {
  // Files without layer_types have the older sliding_window_pattern, or the class's.
  const int64_t pattern = number_of(theirs, "sliding_window_pattern", 6, reasons);
  read_windows(
      theirs, [&](int64_t i) { return pattern < 1 || (i + 1) % pattern != 0; },
      value_of(theirs, "sliding_window", 4096), model, reasons);
  read_head_size(theirs, 256, model, reasons);
  read_attention_bias(theirs, model);
  const Json parameters = value_of(theirs, "rope_parameters", Json::object());
  Json full = value_of(parameters, "full_attention", Json::object());
  const Json window = value_of(parameters, "sliding_attention", Json::object());
  const Json scaling = value_of(theirs, "rope_scaling", Json::object());
  for (const auto& [key, value] : parameters.items()) {
    if (key == "full_attention" || key == "sliding_attention") continue;
    reasons.push_back(
        concat("rope_parameters has ", key, ", expected full_attention and sliding_attention"));
  }
  if (!full.is_object() || !window.is_object() || !scaling.is_object()) {
    reasons.emplace_back("rope_parameters and rope_scaling must be objects");
    return;
  }
  full.update(scaling);
  const Json local =
      value_of(window, "rope_theta", value_of(theirs, "rope_local_base_freq", 10000.0));
  if (const Json type = value_of(window, "rope_type", "default"); type != "default") {
    reasons.push_back(
        concat("rope_type ", type.dump(), " of sliding_attention: ours scale full_attention only"));
  }
  Json one = theirs;
  one.erase("rope_scaling");
  one["rope_parameters"] = full;
  read_rope(one, model, reasons, 1000000);
  if (model.value("attention_window", Json(0)) != 0) model["window_rope_theta"] = local;
  read_softcap(theirs, "final_logit_softcapping", nullptr, "logit_softcap", model, reasons);
  if (const Json cap = value_of(theirs, "attn_logit_softcapping", Json()); !cap.is_null()) {
    reasons.push_back(concat("attn_logit_softcapping is ", cap.dump(),
                             ": the class has it, and computes without; expected null"));
  }
  read_scale(theirs, model, reasons);
}

void write_gemma3(const ModelFacts& facts, Json& theirs) {
  const ModelOptions& model = facts.config.model;
  write_activation("hidden_activation", theirs);
  theirs["head_dim"] = model.chosen_head_size();
  theirs["attention_bias"] = model.has_query_bias();
  write_softcaps(model, theirs);
  write_scale(model, theirs);
  write_windows(model, theirs);
  const double local = model.window_rope_theta > 0 ? model.window_rope_theta : model.rope_theta;
  theirs["rope_parameters"] = {
      {"full_attention", rope_parameters(model)},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", local}}}};
  theirs["rope_theta"] = model.rope_theta;
  theirs["rope_local_base_freq"] = local;
}

void read_olmo2(const Json& theirs, Json& model, Reasons& reasons) {
  read_rope(theirs, model, reasons);
  read_attention_bias(theirs, model);
}

void write_olmo2(const ModelFacts& facts, Json& theirs) {
  write_rope(facts.config.model, theirs);
  theirs.erase("head_dim");  // the class has none
  theirs["attention_bias"] = facts.config.model.has_query_bias();
}

// no_rope_layers has 0 for each layer without positions; without it every no_rope_layer_interval-th
// has none.
void read_smollm3(const Json& theirs, Json& model, Reasons& reasons) {
  read_rope(theirs, model, reasons, 2000000);
  read_head_size(theirs, nullptr, model, reasons);
  model["bias"] = value_of(theirs, "mlp_bias", false);
  read_attention_bias(theirs, model);
  const auto layers = model.at("num_hidden_layers").get<int64_t>();
  const Json placed = value_of(theirs, "no_rope_layers", Json::array());
  const Json interval = value_of(theirs, "no_rope_layer_interval", 4);
  if (!placed.empty() && std::ssize(placed) != layers) {
    reasons.push_back(
        concat("no_rope_layers has ", placed.size(), " entries for ", layers, " layers"));
    return;
  }
  if (!interval.is_number_integer() || interval.get<int64_t>() < 1) {
    reasons.push_back(concat("no_rope_layer_interval is ", interval.dump(), ", expected a number"));
    return;
  }
  std::vector<std::string> kinds;
  for (int64_t i = 0; i < layers; ++i) {
    const bool has = placed.empty() ? (i + 1) % interval.get<int64_t>() != 0
                                    : placed[static_cast<size_t>(i)] != 0;
    kinds.emplace_back(has ? "full" : "nope");
  }
  model["layer_types"] = repeated_layers(kinds);
  for (const Json& type : value_of(theirs, "layer_types", Json::array())) {
    if (type == "full_attention") continue;
    reasons.push_back(concat("layer_types has ", type.dump(), ", expected full_attention"));
    return;
  }
}

void write_smollm3(const ModelFacts& facts, Json& theirs) {
  const ModelOptions& model = facts.config.model;
  write_rope(model, theirs);
  theirs["attention_bias"] = model.has_query_bias();
  theirs["mlp_bias"] = model.bias;
  Json placed = Json::array();
  for (const LayerType type : all_layers(model)) {
    placed.push_back(type == LayerType::kNope ? 0 : 1);
  }
  theirs["no_rope_layers"] = placed;
}

}  // namespace

extern const Architecture kGemma = of_llama_family({.name = "gemma",
                                                    .classes = {{"clm", "GemmaForCausalLM"}},
                                                    .headless = "GemmaModel",
                                                    .keys = kGemmaKeys,
                                                    .options = kGemmaOptions,
                                                    .ids = kGemmaIds,
                                                    .carried = {"head_size", "attention_bias"},
                                                    .read_more = read_gemma1,
                                                    .write_more = write_gemma});

extern const Architecture kGemma2 =
    of_llama_family({.name = "gemma2",
                     .classes = {{"clm", "Gemma2ForCausalLM"}},
                     .headless = "Gemma2Model",
                     .keys = kGemma2Keys,
                     .fixed = kBothWays,
                     .options = kGemma2Options,
                     .ids = kGemmaIds,
                     .carried = {"head_size", "attention_bias", "attention_window", "layer_types",
                                 "attention_scale", "attention_softcap", "logit_softcap"},
                     .read_more = read_gemma2,
                     .write_more = write_gemma2,
                     .refuse_more = refuse_scale});

extern const Architecture kGemma3 =
    of_llama_family({.name = "gemma3_text",
                     .classes = {{"clm", "Gemma3ForCausalLM"}},
                     .headless = "Gemma3TextModel",
                     .keys = kGemma3Keys,
                     .fixed = kBothWays,
                     .options = kGemma3Options,
                     .ids = kGemma3Ids,
                     .carried = {"head_size", "attention_bias", "attention_window", "layer_types",
                                 "window_rope_theta", "attention_scale", "logit_softcap"},
                     .read_more = read_gemma3,
                     .write_more = write_gemma3,
                     .refuse_more = refuse_scale});

extern const Architecture kOlmo2 = of_llama_family({.name = "olmo2",
                                                    .classes = {{"clm", "Olmo2ForCausalLM"}},
                                                    .headless = "Olmo2Model",
                                                    .keys = kOlmo2Keys,
                                                    .options = kOlmo2Options,
                                                    .ids = kOlmo2Ids,
                                                    .carried = {"attention_bias"},
                                                    .read_more = read_olmo2,
                                                    .write_more = write_olmo2});

extern const Architecture kSmolLm3 =
    of_llama_family({.name = "smollm3",
                     .classes = {{"clm", "SmolLM3ForCausalLM"}},
                     .headless = "SmolLM3Model",
                     .keys = kSmolLm3Keys,
                     .fixed = kSmolLm3Fixed,
                     .options = kSmolLm3Options,
                     .ids = kSmolLm3Ids,
                     .carried = {"head_size", "attention_bias", "layer_types"},
                     .has_nope = true,
                     .read_more = read_smollm3,
                     .write_more = write_smollm3});

}  // namespace tapestry::interop
