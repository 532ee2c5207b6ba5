// Keys of config.json that the classes of Llama's kind share and no row can express. Each reader
// adds to our `model` section, and says what it cannot read.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "apps/interop/architectures/architectures.h"

namespace tapestry::interop {

/// The classes' defaults that differ.
struct CausalDefaults {
  const char* hidden = "4096";
  const char* intermediate;
  const char* layers = "32";
  const char* heads = "32";
  const char* groups;
  const char* positions;
  const char* eps = "1e-06";
  const char* tied = "false";
  const char* act_key = "hidden_act";
  const char* act = "\"silu\"";
};
constexpr std::array<KeyRow, 11> causal_keys(const CausalDefaults& d) {
  return {{
      {"hidden_size", "hidden_size", d.hidden},
      {"intermediate_size", "intermediate_size", d.intermediate},
      {"num_hidden_layers", "num_hidden_layers", d.layers},
      {"num_attention_heads", "num_attention_heads", d.heads},
      {"num_key_value_heads", "num_key_value_heads", d.groups, 0, false, /*may_be_null=*/true},
      {d.act_key, "hidden_act", d.act},
      {"max_position_embeddings", "max_position_embeddings", d.positions},
      {"rms_norm_eps", "norm_eps", d.eps},
      {"initializer_range", "initializer_range", "0.02"},
      {"attention_dropout", "attention_dropout", "0.0"},
      {"tie_word_embeddings", "tie_word_embeddings", d.tied},
  }};
}

/// Options that all have, and what one has besides.
template <class... Own>
constexpr std::array<FixedOption, 3 + sizeof...(Own)> causal_options(Own... own) {
  return {{{"norm", "rmsnorm"}, {"position_embedding", "rope"}, {"final_norm", "true"}, own...}};
}
inline constexpr FixedOption kPreNorm{"norm_position", "pre"};
inline constexpr FixedOption kUnscaled{"scale_embeddings", "false", true};
inline constexpr FixedOption kNoBias{"bias", "false"};

/// A class with all that the family has in common: gated layers, and one table of tensors, of which
/// the norms of the options count.
Architecture of_llama_family(Architecture one);

/// The member, or the fallback for one that is absent or null.
Json value_of(const Json& object, const char* key, const Json& fallback);

/// What says how a config rotates: rope_scaling if it has one, else rope_parameters, of which the
/// former then takes the whole place; {} if it has neither.
Json rope_object(const Json& theirs);
/// That object, and what older files have beside it; rope_theta is `usual` if nothing says it.
void read_rope(const Json& theirs, Json& model, Reasons& reasons, double usual = 10000);
/// The same as new and old releases read it, and head_dim.
void write_rope(const ModelOptions& model, Json& theirs);
/// rope_parameters of one kind of layers.
Json rope_parameters(const ModelOptions& model);

/// partial_rotary_factor in rope_parameters, or in older files beside them as `older`.
void read_rotary_share(const Json& theirs, double usual, Json& model, Reasons& reasons,
                       const char* older = "partial_rotary_factor");
void write_rotary_share(const ModelOptions& model, Json& theirs,
                        const char* older = "partial_rotary_factor");

/// The size of a head, `usual` where the file says nothing; null: hidden_size /
/// num_attention_heads.
void read_head_size(const Json& theirs, const Json& usual, Json& model, Reasons& reasons);
void read_attention_bias(const Json& theirs, Json& model);

/// The kinds of all layers as our layer_types: the shortest list that gives them again and again,
/// and none for layers that are alike.
Json repeated_layers(const std::vector<std::string>& kinds);
/// The other way round.
std::vector<LayerType> all_layers(const ModelOptions& model);
/// Which layers have a `window`: those of layer_types, or without it those that `windowed` says.
void read_windows(const Json& theirs, const std::function<bool(int64_t layer)>& windowed,
                  const Json& window, Json& model, Reasons& reasons);
/// layer_types and sliding_window.
void write_windows(const ModelOptions& model, Json& theirs);

}  // namespace tapestry::interop
