// Llama and its kin: Mistral, Qwen2 and Qwen3.
#include "apps/interop/architectures/causal_keys.h"
#include "apps/interop/foreign_config.h"

namespace tapestry::interop {
namespace {

constexpr auto kLlamaKeys =
    causal_keys({.intermediate = "11008", .groups = "null", .positions = "2048"});
constexpr auto kMistralKeys =
    causal_keys({.intermediate = "14336", .groups = "8", .positions = "131072"});
constexpr auto kQwenKeys =
    causal_keys({.intermediate = "22016", .groups = "32", .positions = "32768"});
constexpr ClassDefault kQwenIds[] = {{"vocab_size", "151936"}};
constexpr ClassDefault kLlamaIds[] = {
    {"vocab_size", "32000"}, {"bos_token_id", "1"}, {"eos_token_id", "2"}};
constexpr auto kLlamaOptions = causal_options(kPreNorm, kUnscaled);
constexpr auto kMistralOptions = causal_options(kPreNorm, kUnscaled, kNoBias);
constexpr auto kQwen2Options =
    causal_options(kPreNorm, kUnscaled, kNoBias, FixedOption{"attention_bias", "qkv"});
constexpr auto kQwen3Options =
    causal_options(kPreNorm, kUnscaled, kNoBias, FixedOption{"qk_norm", "head"});

// The first max_window_layers see all tokens, the others a window.
void read_qwen_windows(const Json& theirs, Json& model, Reasons& reasons) {
  const bool uses = value_of(theirs, "use_sliding_window", false) == true;
  const int64_t full = number_of(theirs, "max_window_layers", 28, reasons);
  read_windows(
      theirs, [&](int64_t i) { return uses && i >= full; },
      uses ? value_of(theirs, "sliding_window", 4096) : Json(), model, reasons);
}

void write_qwen_windows(const ModelOptions& model, Json& theirs) {
  write_windows(model, theirs);
  theirs["use_sliding_window"] = model.attention_window > 0;
}

void read_llama(const Json& theirs, Json& model, Reasons& reasons) {
  read_rope(theirs, model, reasons);
  read_head_size(theirs, nullptr, model, reasons);
  model["bias"] = value_of(theirs, "mlp_bias", false);
  read_attention_bias(theirs, model);
}

void write_llama(const ModelFacts& facts, Json& theirs) {
  const ModelOptions& model = facts.config.model;
  write_rope(model, theirs);
  theirs["attention_bias"] = model.has_query_bias();
  theirs["mlp_bias"] = model.bias;
}

void read_mistral(const Json& theirs, Json& model, Reasons& reasons) {
  read_rope(theirs, model, reasons);
  read_head_size(theirs, nullptr, model, reasons);
  const auto found = theirs.find("sliding_window");
  const Json window = found == theirs.end() ? Json(4096) : *found;
  if (!window.is_null() && !window.is_number_integer()) {
    reasons.push_back(concat("sliding_window is ", window.dump(), ", expected an integer or null"));
    return;
  }
  model["attention_window"] = window.is_null() ? Json(0) : window;
}

void write_mistral(const ModelFacts& facts, Json& theirs) {
  const ModelOptions& model = facts.config.model;
  write_rope(model, theirs);
  theirs["sliding_window"] =
      model.attention_window > 0 ? Json(model.attention_window) : Json(nullptr);
}

void read_qwen2(const Json& theirs, Json& model, Reasons& reasons) {
  read_rope(theirs, model, reasons);
  read_head_size(theirs, nullptr, model, reasons);
  read_qwen_windows(theirs, model, reasons);
}

void write_qwen2(const ModelFacts& facts, Json& theirs) {
  write_rope(facts.config.model, theirs);
  write_qwen_windows(facts.config.model, theirs);
}

void read_qwen3(const Json& theirs, Json& model, Reasons& reasons) {
  read_rope(theirs, model, reasons);
  read_head_size(theirs, 128, model, reasons);
  read_qwen_windows(theirs, model, reasons);
  read_attention_bias(theirs, model);
}

void write_qwen3(const ModelFacts& facts, Json& theirs) {
  const ModelOptions& model = facts.config.model;
  write_rope(model, theirs);
  write_qwen_windows(model, theirs);
  theirs["attention_bias"] = model.has_query_bias();
}

}  // namespace

extern const Architecture kLlama = of_llama_family({.name = "llama",
                                                    .classes = {{"clm", "LlamaForCausalLM"}},
                                                    .headless = "LlamaModel",
                                                    .keys = kLlamaKeys,
                                                    .options = kLlamaOptions,
                                                    .ids = kLlamaIds,
                                                    .carried = {"head_size", "attention_bias"},
                                                    .read_more = read_llama,
                                                    .write_more = write_llama});

extern const Architecture kMistral = of_llama_family({.name = "mistral",
                                                      .classes = {{"clm", "MistralForCausalLM"}},
                                                      .headless = "MistralModel",
                                                      .keys = kMistralKeys,
                                                      .options = kMistralOptions,
                                                      .ids = kLlamaIds,
                                                      .carried = {"head_size", "attention_window"},
                                                      .read_more = read_mistral,
                                                      .write_more = write_mistral});

extern const Architecture kQwen2 =
    of_llama_family({.name = "qwen2",
                     .classes = {{"clm", "Qwen2ForCausalLM"}},
                     .headless = "Qwen2Model",
                     .keys = kQwenKeys,
                     .options = kQwen2Options,
                     .ids = kQwenIds,
                     .carried = {"head_size", "attention_window", "layer_types"},
                     .read_more = read_qwen2,
                     .write_more = write_qwen2});

extern const Architecture kQwen3 =
    of_llama_family({.name = "qwen3",
                     .classes = {{"clm", "Qwen3ForCausalLM"}},
                     .headless = "Qwen3Model",
                     .keys = kQwenKeys,
                     .options = kQwen3Options,
                     .ids = kQwenIds,
                     .carried = {"head_size", "attention_bias", "attention_window", "layer_types"},
                     .read_more = read_qwen3,
                     .write_more = write_qwen3});

}  // namespace tapestry::interop
