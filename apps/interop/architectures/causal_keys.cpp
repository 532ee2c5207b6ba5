#include "apps/interop/architectures/causal_keys.h"

#include <cmath>

namespace tapestry::interop {
namespace {

constexpr TensorRow norm(const char* theirs, const char* ours, bool ModelFacts::*when,
                         const char* size = "D") {
  return {theirs, ours, size, "", Stream::kNone, Change::kNone, when};
}

constexpr TensorRow kTensors[] = {
    {"model.embed_tokens.weight", "embedding.weight", "V", "D"},
    norm("model.layers.#.input_layernorm.*", "layers.#.self_attention_norm.*", &ModelFacts::pre),
    norm("model.layers.#.input_layernorm.*", "layers.#.self_attention_norm.*",
         &ModelFacts::sandwich),
    norm("model.layers.#.post_attention_layernorm.*", "layers.#.self_attention_norm.out.*",
         &ModelFacts::sandwich),
    norm("model.layers.#.post_attention_layernorm.*", "layers.#.self_attention_norm.*",
         &ModelFacts::branch),
    {"model.layers.#.self_attn.{q_proj,k_proj,v_proj}.*", "layers.#.self_attention.qkv.*", "QKK",
     "D", Stream::kNone, Change::kToHalves},
    norm("model.layers.#.self_attn.q_norm.weight", "layers.#.self_attention.q_norm.weight",
         &ModelFacts::normed_heads, "H"),
    norm("model.layers.#.self_attn.k_norm.weight", "layers.#.self_attention.k_norm.weight",
         &ModelFacts::normed_heads, "H"),
    norm("model.layers.#.self_attn.q_norm.weight", "layers.#.self_attention.q_norm.weight",
         &ModelFacts::normed_projections, "Q"),
    norm("model.layers.#.self_attn.k_norm.weight", "layers.#.self_attention.k_norm.weight",
         &ModelFacts::normed_projections, "K"),
    {"model.layers.#.self_attn.o_proj.*", "layers.#.self_attention.out.*", "D", "Q"},
    norm("model.layers.#.post_attention_layernorm.*", "layers.#.feed_forward_norm.*",
         &ModelFacts::pre),
    norm("model.layers.#.pre_feedforward_layernorm.*", "layers.#.feed_forward_norm.*",
         &ModelFacts::sandwich),
    norm("model.layers.#.post_feedforward_layernorm.*", "layers.#.feed_forward_norm.out.*",
         &ModelFacts::sandwich),
    norm("model.layers.#.post_feedforward_layernorm.*", "layers.#.feed_forward_norm.*",
         &ModelFacts::branch),
    {"model.layers.#.mlp.{gate_proj,up_proj}.*", "layers.#.feed_forward.up.*", "FF", "D"},
    {"model.layers.#.mlp.down_proj.*", "layers.#.feed_forward.down.*", "D", "F"},
    {"model.norm.*", "norm.*", "D"},
    {"lm_head.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone,
     &ModelFacts::untied},
};

}  // namespace

Architecture of_llama_family(Architecture one) {
  one.prefix = "model.";
  one.type = ModelType::kDecoder;
  one.tensors = kTensors;
  one.skipped = {"model.layers.*.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq",
                 "lm_head.weight"};
  one.tied = {{"model.embed_tokens.weight", "lm_head.weight"}};
  one.may_lack_biases = true;
  one.gated = true;
  return one;
}

Json value_of(const Json& object, const char* key, const Json& fallback) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? fallback : *found;
}

namespace {

// The positions of the first training, in the object or beside it; else all of them.
Json original_positions(const Json& theirs, const Json& scaling) {
  const char* const key = "original_max_position_embeddings";
  return value_of(scaling, key,
                  value_of(theirs, key, value_of(theirs, "max_position_embeddings", Json(0))));
}

bool is_positive(const Json& value) { return value.is_number() && value.get<double>() > 0; }

// Without a factor it is by how much there are more positions.
Json factor_of(const Json& theirs, const Json& scaling, const Json& original) {
  const Json positions = value_of(theirs, "max_position_embeddings", Json(0));
  const Json factor = value_of(scaling, "factor", Json());
  if (!factor.is_null() || !is_positive(original) || !is_positive(positions)) return factor;
  return positions.get<double>() / original.get<double>();
}

void read_llama3(const Json&, const Json& scaling, Json& ours, Reasons& reasons) {
  for (const char* key :
       {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    if (value_of(scaling, key, Json()).is_null()) {
      reasons.push_back(concat("rope_parameters lacks ", key));
    }
    ours[key] = value_of(scaling, key, Json(1));
  }
}

void read_linear(const Json&, const Json&, Json&, Reasons&) {}

// The first training had all positions of the config.
void read_dynamic(const Json& theirs, const Json&, Json& ours, Reasons&) {
  ours["original_max_position_embeddings"] = value_of(theirs, "max_position_embeddings", Json(0));
}

// Ours has 0 for the factor that follows from the others.
void read_attention_factor(const Json& scaling, const Json& otherwise, Json& ours,
                           Reasons& reasons) {
  const Json factor = value_of(scaling, "attention_factor", otherwise);
  if (!factor.is_null() && !is_positive(factor)) {
    reasons.push_back(concat("attention_factor is ", factor.dump(), ", expected a number above 0"));
  }
  ours["attention_factor"] = factor.is_null() ? Json(0) : factor;
}

// The quotient of two scales that DeepSeek's files have is an attention factor.
double yarn_scale(double factor, double share) {
  return factor <= 1 ? 1 : 0.1 * share * std::log(factor) + 1;
}

void read_yarn(const Json& theirs, const Json& scaling, Json& ours, Reasons& reasons) {
  const Json original = original_positions(theirs, scaling);
  ours["original_max_position_embeddings"] = original;
  ours["factor"] = factor_of(theirs, scaling, original);
  ours["beta_fast"] = value_of(scaling, "beta_fast", Json(32));
  ours["beta_slow"] = value_of(scaling, "beta_slow", Json(1));
  ours["truncate"] = value_of(scaling, "truncate", Json(true));
  const Json some = value_of(scaling, "mscale", Json(0)),
             all = value_of(scaling, "mscale_all_dim", Json(0));
  Json factor;
  if (is_positive(some) && is_positive(all) && is_positive(ours["factor"])) {
    const double by = ours["factor"].get<double>();
    factor = yarn_scale(by, some.get<double>()) / yarn_scale(by, all.get<double>());
  }
  read_attention_factor(scaling, factor, ours, reasons);
}

void read_longrope(const Json& theirs, const Json& scaling, Json& ours, Reasons& reasons) {
  const Json original = original_positions(theirs, scaling);
  ours["original_max_position_embeddings"] = original;
  ours["factor"] = factor_of(theirs, scaling, original);
  read_attention_factor(scaling, Json(), ours, reasons);
  for (const char* key : {"short_factor", "long_factor"}) {
    ours[key] = value_of(scaling, key, Json::array());
    if (!ours[key].is_array() || ours[key].empty()) {
      reasons.push_back(concat("rope_parameters lacks ", key, ", a list of numbers"));
    }
  }
}

struct RopeRow {
  const char* type;
  void (*read)(const Json& theirs, const Json& scaling, Json& ours, Reasons& reasons);
};
constexpr RopeRow kRopeRows[] = {{"linear", read_linear},
                                 {"llama3", read_llama3},
                                 {"dynamic", read_dynamic},
                                 {"yarn", read_yarn},
                                 {"longrope", read_longrope}};

}  // namespace

Json rope_object(const Json& theirs) {
  const Json scaling = value_of(theirs, "rope_scaling", Json());
  const bool has_none = scaling.is_null() || (scaling.is_object() && scaling.empty());
  return has_none ? value_of(theirs, "rope_parameters", Json::object()) : scaling;
}

void read_rope(const Json& theirs, Json& model, Reasons& reasons, double usual) {
  const Json scaling = rope_object(theirs);
  if (!scaling.is_object()) {
    reasons.emplace_back("rope_parameters and rope_scaling must be objects");
    return;
  }
  model["rope_theta"] = value_of(scaling, "rope_theta", value_of(theirs, "rope_theta", usual));
  model["rope_layout"] = "half";
  model["rope_scaling"] = {{"type", "none"}};
  const Json type = value_of(scaling, "rope_type", value_of(scaling, "type", Json("default")));
  if (type == "default") return;
  Json ours = {{"type", type}, {"factor", value_of(scaling, "factor", Json(1.0))}};
  std::string known = "default";
  Json whole = theirs;  // with the class's own positions
  whole["max_position_embeddings"] = model.at("max_position_embeddings");
  for (const RopeRow& row : kRopeRows) {
    known += concat(", ", row.type);
    if (type != row.type) continue;
    row.read(whole, scaling, ours, reasons);
    if (const Json& factor = ours["factor"]; factor.is_null()) {
      reasons.emplace_back("rope_parameters lacks factor");
    } else if (!is_positive(factor)) {
      reasons.push_back(
          concat("factor of rope_parameters is ", factor.dump(), ", expected a number above 0"));
    }
    model["rope_scaling"] = ours;
    return;
  }
  reasons.push_back(concat("rope_type ", type.dump(), " is none of ", known));
}

void read_rotary_share(const Json& theirs, double usual, Json& model, Reasons& reasons,
                       const char* older) {
  const Json parameters = rope_object(theirs);
  if (!parameters.is_object()) return;  // read_rope() says so
  const Json share = value_of(parameters, "partial_rotary_factor", value_of(theirs, older, usual));
  if (!share.is_number()) {
    reasons.push_back(concat(older, " is ", share.dump(), ", expected a number"));
    return;
  }
  model["partial_rotary_factor"] = share;
}

void write_rotary_share(const ModelOptions& model, Json& theirs, const char* older) {
  theirs["rope_parameters"]["partial_rotary_factor"] = model.partial_rotary_factor;
  theirs[older] = model.partial_rotary_factor;
}

void read_head_size(const Json& theirs, const Json& usual, Json& model, Reasons& reasons) {
  const auto found = theirs.find("head_dim");
  const Json size = found == theirs.end() ? usual : *found;
  if (size.is_null()) return;
  if (!size.is_number_integer() || size.get<int64_t>() < 1) {
    reasons.push_back(concat("head_dim is ", size.dump(), ", expected a size"));
    return;
  }
  model["head_size"] = size;
}

void read_attention_bias(const Json& theirs, Json& model) {
  const Json attention = value_of(theirs, "attention_bias", false);
  if (attention != model.at("bias")) model["attention_bias"] = attention == true ? "all" : "none";
}

Json repeated_layers(const std::vector<std::string>& kinds) {
  size_t size = 1;
  const auto repeats = [&] {
    for (size_t i = size; i < kinds.size(); ++i) {
      if (kinds[i] != kinds[i - size]) return false;
    }
    return true;
  };
  while (!repeats()) ++size;
  if (kinds.empty() || (size == 1 && kinds[0] != name_of(LayerType::kNope))) return Json::array();
  return Json(std::vector(kinds.begin(), kinds.begin() + static_cast<int64_t>(size)));
}

std::vector<LayerType> all_layers(const ModelOptions& model) {
  std::vector<LayerType> all;
  for (int64_t i = 0; i < model.num_hidden_layers; ++i) {
    const size_t kinds = model.layer_types.size();
    all.push_back(kinds == 0 ? (model.attention_window > 0 ? LayerType::kWindow : LayerType::kFull)
                             : model.layer_types[static_cast<size_t>(i) % kinds]);
  }
  return all;
}

void read_windows(const Json& theirs, const std::function<bool(int64_t layer)>& windowed,
                  const Json& window, Json& model, Reasons& reasons) {
  const auto layers = model.at("num_hidden_layers").get<int64_t>();
  const Json types = value_of(theirs, "layer_types", Json::array());
  if (!types.empty() && std::ssize(types) != layers) {
    reasons.push_back(concat("layer_types has ", types.size(), " entries for ", layers, " layers"));
    return;
  }
  std::vector<std::string> kinds;
  bool any = false;
  for (int64_t i = 0; i < layers; ++i) {
    const Json type = !types.empty() ? types[static_cast<size_t>(i)]
                      : windowed(i)  ? Json("sliding_attention")
                                     : Json("full_attention");
    const bool full = type == "full_attention";
    if (!full && type != "sliding_attention") {
      reasons.push_back(concat("layer_types has ", type.dump(),
                               ", expected full_attention or sliding_attention"));
      return;
    }
    kinds.emplace_back(name_of(full ? LayerType::kFull : LayerType::kWindow));
    any |= !full;
  }
  if (any && (!window.is_number_integer() || window.get<int64_t>() < 1)) {
    reasons.push_back(
        concat("sliding_window is ", window.dump(), ", and layer_types has sliding_attention"));
    return;
  }
  model["layer_types"] = repeated_layers(kinds);
  model["attention_window"] = any ? window : Json(0);
}

void write_windows(const ModelOptions& model, Json& theirs) {
  Json types = Json::array();
  for (const LayerType type : all_layers(model)) {
    types.push_back(type == LayerType::kWindow ? "sliding_attention" : "full_attention");
  }
  theirs["layer_types"] = types;
  if (model.attention_window > 0) theirs["sliding_window"] = model.attention_window;
}

Json rope_parameters(const ModelOptions& model) {
  const RopeScaling& scaling = model.rope_scaling;
  const bool scaled = scaling.type != RopeScalingType::kNone;
  Json rope = {{"rope_type", scaled ? name_of(scaling.type) : "default"},
               {"rope_theta", model.rope_theta}};
  if (scaled) rope["factor"] = scaling.factor;
  if (scaling.type == RopeScalingType::kLlama3) {
    rope["low_freq_factor"] = scaling.low_freq_factor;
    rope["high_freq_factor"] = scaling.high_freq_factor;
  }
  if (scaling.has_original_length() && scaling.type != RopeScalingType::kDynamic) {
    rope["original_max_position_embeddings"] = scaling.original_max_position_embeddings;
  }
  if (scaling.has_attention_factor() && scaling.attention_factor > 0) {
    rope["attention_factor"] = scaling.attention_factor;
  }
  if (scaling.type == RopeScalingType::kYarn) {
    rope["beta_fast"] = scaling.beta_fast;
    rope["beta_slow"] = scaling.beta_slow;
    rope["truncate"] = scaling.truncate;
  }
  if (scaling.type == RopeScalingType::kLongrope) {
    rope["short_factor"] = scaling.short_factor;
    rope["long_factor"] = scaling.long_factor;
  }
  return rope;
}

void write_rope(const ModelOptions& model, Json& theirs) {
  const Json rope = rope_parameters(model);
  if (model.rope_scaling.type != RopeScalingType::kNone) theirs["rope_scaling"] = rope;
  theirs["rope_theta"] = model.rope_theta;
  theirs["rope_parameters"] = rope;
  theirs["head_dim"] = model.chosen_head_size();
}

}  // namespace tapestry::interop
