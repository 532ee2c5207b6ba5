#include "apps/interop/gguf/gguf_engine.h"

#include <cmath>

#include "apps/interop/architectures/causal_keys.h"
#include "apps/interop/gguf/gguf_file.h"

namespace tapestry::interop::gguf_engine {
namespace {

// Their engine takes the largest models of a kind by their layers, and divides the scores of these
// by another root.
struct ScaleOfScores {
  int64_t largest;  ///< layers of that model
  double of(int64_t layers, int64_t width, int64_t heads, int64_t size) const {
    const bool usual = layers != largest;
    return 1 / std::sqrt(static_cast<double>(usual ? size : width / heads));
  }
};
constexpr ScaleOfScores kGemma2Scale{46}, kGemma3Scale{62};

void refuse_scale(const ScaleOfScores& scale, const ModelOptions& o, Reasons& reasons) {
  const int64_t size = o.chosen_head_size();
  const double ours =
      o.attention_scale > 0 ? o.attention_scale : 1 / std::sqrt(static_cast<double>(size));
  const double theirs = scale.of(o.num_hidden_layers, o.hidden_size, o.num_attention_heads, size);
  if (std::abs(ours - theirs) <= 1e-6 * theirs) return;
  reasons.push_back(concat("model.attention_scale: ", ours, ", their program computes ", theirs));
}

void complete_scale(const ScaleOfScores& scale, Json& config) {
  for (const char* key : {"num_hidden_layers", "hidden_size", "num_attention_heads"}) {
    if (!config.contains(key) || config[key].get<int64_t>() < 1) return;  // the import says so
  }
  const auto width = config["hidden_size"].get<int64_t>();
  const auto heads = config["num_attention_heads"].get<int64_t>();
  if (config["head_dim"].is_null()) config["head_dim"] = width / heads;
  const double root = 1 / scale.of(config["num_hidden_layers"].get<int64_t>(), width, heads,
                                   config["head_dim"].get<int64_t>());
  config["query_pre_attn_scalar"] = static_cast<int64_t>(std::round(root * root));
}

void refuse_untied(const ModelOptions& o, Reasons& reasons) {
  if (!o.tie_word_embeddings) reasons.emplace_back("model.tie_word_embeddings: false");
}

// Layer i of `period` is `usual` unless it is the last of them.
void refuse_pattern(int64_t period, LayerType usual, LayerType last, const ModelOptions& o,
                    Reasons& reasons) {
  const std::vector<LayerType> layers = all_layers(o);
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool is_last = static_cast<int64_t>(i) % period == period - 1;
    if (layers[i] == (is_last ? last : usual)) continue;
    reasons.push_back(concat("model.layer_types: layer ", i, " is ", name_of(layers[i]),
                             ", their program has ", name_of(usual), ", and ", name_of(last),
                             " in every ", period, "th layer"));
    return;
  }
}

// The share of a head that rotates; 0 if the file does not say it, which is the import's to tell.
double rotary_share(const GgufFile& file, const Json& config) {
  const auto rotated =
      file.integer(file.text("general.architecture").value_or("") + ".rope.dimension_count");
  const auto width = config.value("hidden_size", int64_t{0});
  const auto heads = config.value("num_attention_heads", int64_t{0});
  if (!rotated || heads < 1 || width < heads) return 0;
  return static_cast<double>(*rotated) / static_cast<double>(width / heads);
}

}  // namespace

void refuse_gemma(const Config& config, Reasons& reasons) { refuse_untied(config.model, reasons); }

void refuse_gemma2(const Config& config, Reasons& reasons) {
  const ModelOptions& o = config.model;
  refuse_untied(o, reasons);
  refuse_pattern(2, LayerType::kWindow, LayerType::kFull, o, reasons);
  refuse_scale(kGemma2Scale, o, reasons);
  if (o.attention_softcap == 0) reasons.emplace_back("model.attention_softcap: 0");
  if (o.logit_softcap == 0) reasons.emplace_back("model.logit_softcap: 0");
}

void refuse_gemma3(const Config& config, Reasons& reasons) {
  constexpr double kWindowTheta = 10000;  // their engine has no key for it
  const ModelOptions& o = config.model;
  refuse_untied(o, reasons);
  refuse_scale(kGemma3Scale, o, reasons);
  if (o.attention_softcap > 0) {
    reasons.push_back(concat("model.attention_softcap: ", o.attention_softcap));
  }
  if (o.attention_window == 0) return;
  refuse_pattern(6, LayerType::kWindow, LayerType::kFull, o, reasons);
  if (o.window_rope_theta == 0 && o.rope_scaling.type != RopeScalingType::kNone) {
    reasons.emplace_back("model.rope_scaling of layers with a window");
  }
  const double theta = o.window_rope_theta > 0 ? o.window_rope_theta : o.rope_theta;
  if (theta != kWindowTheta) reasons.push_back(concat("model.window_rope_theta: ", theta));
}

void complete_gemma2(const GgufFile&, Json& config) { complete_scale(kGemma2Scale, config); }

// Without a window no layer has one.
void complete_gemma3(const GgufFile&, Json& config) {
  complete_scale(kGemma3Scale, config);
  const auto layers = config.value("num_hidden_layers", int64_t{0});
  if (config.contains("sliding_window") || layers < 1 || layers > (1 << 16)) return;
  config["layer_types"] = std::vector<std::string>(static_cast<size_t>(layers), "full_attention");
}

void refuse_smollm3(const Config& config, Reasons& reasons) {
  refuse_pattern(4, LayerType::kFull, LayerType::kNope, config.model, reasons);
}

void refuse_command_r(const Config& config, Reasons& reasons) {
  constexpr int64_t kLayersWithNorms = 64;  // from so many on heads are normed over there
  refuse_untied(config.model, reasons);
  if (config.model.num_hidden_layers < kLayersWithNorms) return;
  reasons.push_back(concat("model.num_hidden_layers: ", config.model.num_hidden_layers,
                           ", their program norms the heads of ", kLayersWithNorms,
                           " layers and more"));
}

void refuse_cohere2(const Config& config, Reasons& reasons) {
  refuse_untied(config.model, reasons);
  refuse_pattern(4, LayerType::kWindow, LayerType::kNope, config.model, reasons);
}

void complete_neox(const GgufFile& file, Json& config) {
  const double share = rotary_share(file, config);
  if (share == 0) return;
  config["rotary_pct"] = share;
  config["rotary_emb_base"] = config.value("rope_theta", 10000.0);
}

void complete_rotary_share(const GgufFile& file, Json& config) {
  const double share = rotary_share(file, config);
  if (share > 0) config["partial_rotary_factor"] = share;
}

}  // namespace tapestry::interop::gguf_engine
