#include "apps/interop/foreign_config.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <regex>
#include <set>

#include "apps/config/sections.h"

namespace tapestry::interop {
namespace {

constexpr std::string_view kModel = "model.";

// The text as JSON: numbers and truth values as such, anything else as a string.
Json parsed(const std::string& text) {
  const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_discarded() || value.is_object() || value.is_array() ? Json(text) : value;
}

bool same_value(const std::string& a, const std::string& b) {
  const Json x = parsed(a), y = parsed(b);
  if (x.is_number() && y.is_number()) {
    const double p = x.get<double>(), q = y.get<double>();
    return std::abs(p - q) <= 1e-12 * std::max(std::abs(p), std::abs(q));
  }
  return x == y;
}

const KeyRow* row_of(const Architecture& architecture, const std::string& ours) {
  for (const KeyRow& row : architecture.keys) {
    if (ours == row.ours) return &row;
  }
  return nullptr;
}

const FixedOption* option_of(const Architecture& architecture, const std::string& ours) {
  for (const FixedOption& option : architecture.options) {
    if (ours == option.key) return &option;
  }
  return nullptr;
}

Json given(const Json& theirs, const char* key, const char* fallback) {
  const auto found = theirs.find(key);
  return found == theirs.end() || found->is_null() ? Json::parse(fallback) : *found;
}

Json given(const Json& theirs, const KeyRow& row) {
  const auto found = theirs.find(row.theirs);
  const bool null = row.may_be_null && found != theirs.end() && found->is_null();
  return null ? Json() : given(theirs, row.theirs, row.fallback);
}

// What the classes of decoders may say, and ours are.
constexpr FixedKey kOfDecoders[] = {{"is_causal", "true", "true"}};

// A class without kinds of layers has but one.
void check_layer_types(const Architecture& architecture, const Json& theirs, Reasons& reasons) {
  const bool has_kinds = std::ranges::any_of(
      architecture.carried, [](const char* key) { return std::string_view(key) == "layer_types"; });
  const Json types = theirs.value("layer_types", Json());
  if (has_kinds || types.is_null()) return;
  const Json layers = theirs.value("num_hidden_layers", Json());
  const bool plain =
      types.is_array() && types.size() == layers &&
      std::ranges::all_of(types, [](const Json& type) { return type == "full_attention"; });
  if (plain) return;
  reasons.push_back(concat("layer_types is ", types.dump(), ", ", architecture.name,
                           " has full_attention in each of its layers"));
}

// Our value for their value of one row; null if ours has a default of its own.
Json converted(const Architecture& architecture, const KeyRow& row, const Json& value,
               Reasons& reasons) {
  const auto refuse = [&](const char* expected) {
    reasons.push_back(concat(row.theirs, " is ", value.dump(), ", expected ", expected));
    return Json();
  };
  if (value.is_null()) return value;
  if (std::string_view(row.ours) == "hidden_act") {
    const char* const ours =
        value.is_string() ? our_activation(value.get<std::string>(), architecture.gated) : nullptr;
    if (ours != nullptr) return ours;
    refuse("an activation that Tapestry has");
    return architecture.gated ? "swiglu" : "gelu";  // so that tensors have their sizes
  }
  const Json fallback = Json::parse(row.fallback);
  if (fallback.is_boolean()) return value.is_boolean() ? value : refuse("true or false");
  if (!value.is_number()) return refuse("a number");
  if (row.more == 0) return value;
  return value.is_number_integer() ? Json(value.get<int64_t>() - row.more) : refuse("an integer");
}

}  // namespace

std::string in_their_words(const std::string& message, const std::string& path,
                           const Architecture& architecture) {
  static const std::regex kPlace(R"(:\d+:\d+: )");
  std::string text = message;
  for (size_t at; (at = text.find(path + ":")) != std::string::npos;) {
    std::smatch place;
    const std::string rest = text.substr(at + path.size());
    const bool found = std::regex_search(rest, place, kPlace) && place.position() == 0;
    text = text.substr(0, at) + (found ? place.suffix().str() : rest);
  }
  for (const KeyRow& row : architecture.keys) {
    const std::string ours = concat("'model.", row.ours, '\'');
    if (const size_t at = text.find(ours); at != std::string::npos) {
      text.replace(at, ours.size(), concat('\'', row.theirs, '\''));
    }
  }
  if (text.ends_with('.')) text.pop_back();
  return text;
}

int64_t number_of(const Json& theirs, const char* key, int64_t fallback, Reasons& reasons) {
  const auto found = theirs.find(key);
  if (found == theirs.end() || found->is_null()) return fallback;
  if (found->is_number_integer()) return found->get<int64_t>();
  reasons.push_back(concat(key, " is ", found->dump(), ", expected an integer"));
  return fallback;
}

Json our_model(const Architecture& architecture, const Json& theirs, Reasons& reasons) {
  Json model = {{"type", name_of(architecture.type)}};
  for (const FixedOption& option : architecture.options) model[option.key] = parsed(option.value);
  std::map<std::string, const KeyRow*> from;  // our key
  for (const KeyRow& row : architecture.keys) {
    const Json value = converted(architecture, row, given(theirs, row), reasons);
    if (value.is_null()) continue;
    const auto [other, first] = from.emplace(row.ours, &row);
    if (first) {
      model[row.ours] = value;
    } else if (model[row.ours] != value && !row.soft) {
      reasons.push_back(concat(other->second->theirs, " is ", model[row.ours].dump(), " and ",
                               row.theirs, ' ', value.dump(), ": ours are one"));
    }
  }
  if (architecture.only_activation != nullptr &&
      model["hidden_act"] != architecture.only_activation) {
    reasons.push_back(concat("hidden_act is ", model["hidden_act"].dump(), ", its head has a ",
                             architecture.only_activation, ": ours are one"));
  }
  const auto check_fixed = [&](std::span<const FixedKey> keys) {
    for (const FixedKey& fixed : keys) {
      const Json value = given(theirs, fixed.key, fixed.fallback);
      if (value == Json::parse(fixed.value)) continue;
      reasons.push_back(concat(fixed.key, " is ", value.dump(), ", Tapestry has ", fixed.value));
    }
  };
  check_fixed(architecture.fixed);
  if (architecture.type == ModelType::kDecoder) {
    check_fixed(kOfDecoders);
    check_layer_types(architecture, theirs, reasons);
  }
  const bool images = architecture.type == ModelType::kVit;
  const Config usual =
      default_config(*find_task(architecture.classes[0].task), images ? &kImageExamples : nullptr);
  for (const auto& [key, value] : flat_keys(usual)) {
    if (!key.starts_with(kModel)) continue;
    const std::string ours = key.substr(kModel.size());
    const OffOption* const off = off_option(ours);
    if (off != nullptr && !model.contains(ours)) model[ours] = parsed(off->value);
  }
  const auto turn_off = [&model] {
    for (const OffOption& off : off_options()) {
      const bool has = off.with != nullptr && model.value(off.with, Json()) == off.with_value;
      if (has && !model.contains(off.key)) model[off.key] = parsed(off.value);
    }
  };
  turn_off();
  if (architecture.read_more == nullptr) return model;
  const bool sound = reasons.empty();
  try {
    architecture.read_more(theirs, model, reasons);
  } catch (const Json::exception&) {
    if (sound) throw;  // it relies on the numbers above
  }
  turn_off();  // what goes with keys that it read
  return model;
}

ClassFacts class_facts_of(const Json& model) {
  ClassFacts facts;
  const Json name = model.value("pooler", Json());
  for (const ConfigChoice<Pooler>& choice : poolers()) {
    if (name == choice.name) facts.pooler = choice.value;
  }
  if (model.value("classifier_pooling", Json()) == "mean") facts.pooling = TextPooling::kMean;
  facts.of_tokens = model.value("pooled_tokens", Json()) == true;
  return facts;
}

void ClassFacts::add_to(Config& config) const {
  if (!has_pooler(config)) config.model.pooler = pooler;
  if (!pools_classes(config)) config.model.class_pooling = pooling;
  if (!reads_tokens(config)) config.model.pooled_tokens = of_tokens;
}

std::vector<std::string> undetermined_keys(const Json& model, const Config& config) {
  // Keys whose values follow from others, or that only affect training.
  static const std::set<std::string> kFollow = {"initializer", "zero_branches", "recompute"};
  std::vector<std::string> keys;
  for (const auto& [name, value] : flat_keys(config)) {
    if (!name.starts_with(kModel)) continue;
    const std::string rest = name.substr(kModel.size());
    const std::string key = rest.substr(0, rest.find('.'));
    if (!model.contains(key) && !kFollow.contains(key)) keys.push_back(key);
  }
  return keys;
}

namespace {

bool carries(const Architecture& architecture, const std::string& key) {
  // The files of sentence_vectors.h, not config.json.
  static const std::set<std::string> kBesideConfig = {"pooling", "normalize", "vector_size",
                                                      "vector_act", "vector_bias"};
  return kBesideConfig.contains(key) ||
         std::ranges::any_of(architecture.carried,
                             [&](const char* carried) { return key == carried; });
}

}  // namespace

Reasons misfits(const Architecture& architecture, const Config& config) {
  Reasons reasons;
  const auto refuse = [&](const std::string& key, const std::string& value) {
    reasons.push_back(concat("model.", key, ": ", value, " has no place in ", architecture.name));
  };
  if (config.model_type != architecture.type) {
    refuse("type", name_of(config.model_type));
    return reasons;
  }
  const bool known_task = std::any_of(
      architecture.classes.begin(), architecture.classes.end(), [&](const ModelClass& row) {
        return std::string_view(row.task) == config.task->name_of_models();
      });
  // Vectors need no head.
  if (!known_task && !config.task->can(kEmbedsTexts))
    reasons.push_back(concat("task: ", config.task->name, " has no place in ", architecture.name));
  for (const auto& [name, value] : flat_keys(config)) {
    if (!name.starts_with(kModel)) continue;
    const std::string key = name.substr(kModel.size());
    // An entry of a list counts as the list.
    if (carries(architecture, key.substr(0, key.find('.')))) continue;
    if (key == "pooler" && !has_pooler(config)) continue;  // a fact about no layer
    if (const FixedOption* const option = option_of(architecture, key)) {
      if (!option->can_be_folded && !same_value(value, option->value)) refuse(key, value);
    } else if (key == "hidden_act" && !carries(architecture, key)) {
      const char* const act = their_activation(value);
      const char* const back = act == nullptr ? nullptr : our_activation(act, architecture.gated);
      if (back == nullptr || back != value) refuse(key, value);
    } else if (row_of(architecture, key) == nullptr && !is_carried_otherwise(key) &&
               !carries(architecture, key)) {
      const OffOption* const off = off_option(key);
      if (off == nullptr || !same_value(off->value, value)) refuse(key, value);
    }
  }
  const ModelOptions& model = config.model;
  const bool grouped =
      model.num_key_value_heads > 0 && model.num_key_value_heads != model.num_attention_heads;
  if (grouped && row_of(architecture, "num_key_value_heads") == nullptr &&
      !carries(architecture, "num_key_value_heads")) {
    refuse("num_key_value_heads", std::to_string(model.num_key_value_heads));
  }
  if (carries(architecture, "attention_bias") &&
      model.has_query_bias() != model.has_attention_out_bias()) {
    refuse("attention_bias", "qkv");
  }
  if (architecture.refuse_more != nullptr) architecture.refuse_more(config, reasons);
  const bool rotates_all =
      std::ranges::find(model.layer_types, LayerType::kNope) == model.layer_types.end();
  if (!rotates_all && carries(architecture, "layer_types") && !architecture.has_nope) {
    refuse("layer_types", name_of(LayerType::kNope));
  }
  const bool pairs = model.position_embedding == PositionEmbedding::kRope &&
                     model.rope_layout == RopeLayout::kInterleaved;
  const RopeScaling& scaling = model.rope_scaling;
  if (model.position_embedding == PositionEmbedding::kRope &&
      scaling.type == RopeScalingType::kDynamic &&
      scaling.original_max_position_embeddings != model.max_position_embeddings) {
    refuse("rope_scaling.original_max_position_embeddings",
           concat(scaling.original_max_position_embeddings, " beside max_position_embeddings: ",
                  model.max_position_embeddings, " (with dynamic)"));
  }
  if (pairs && model.qk_norm != QkNorm::kNone) refuse("rope_layout", "interleaved (with qk_norm)");
  if (model.value_head_size > 0 && model.value_head_size != model.chosen_head_size()) {
    refuse("value_head_size", std::to_string(model.value_head_size));
  }
  const char* const act = name_of(model.hidden_act);
  if (architecture.only_activation != nullptr &&
      std::string_view(act) != architecture.only_activation) {
    refuse("hidden_act", act);
  }
  return reasons;
}

Reasons features_beside(std::span<const char* const> known, const Config& config) {
  Reasons features;
  for (const auto& [name, value] : flat_keys(config)) {
    if (!name.starts_with(kModel)) continue;
    const std::string key =
        name.substr(kModel.size(), name.find('.', kModel.size()) - kModel.size());
    const OffOption* const off = off_option(key);
    const bool is_known = std::ranges::any_of(known, [&](const char* one) { return key == one; });
    if (off == nullptr || is_known || same_value(off->value, value)) continue;
    features.push_back(concat(name, ": ", value));
  }
  return features;
}

bool folds_scale(const Architecture& architecture, const Config& config) {
  const FixedOption* const option = option_of(architecture, "scale_embeddings");
  return config.model.scale_embeddings && option != nullptr && option->can_be_folded;
}

Json their_config(const Architecture& architecture, const ModelFacts& facts, Reasons& reasons) {
  const Config& config = facts.config;
  reasons = misfits(architecture, config);
  Json theirs = {{"architectures", Json::array()}, {"model_type", architecture.name}};
  for (const ModelClass& row : architecture.classes) {
    if (std::string_view(row.task) != config.task->name_of_models()) continue;
    theirs["architectures"] = {row.name};
    break;
  }
  const auto keys = flat_keys(config);
  for (const KeyRow& row : architecture.keys) {
    const auto found = keys.find(concat(kModel, row.ours));
    if (found == keys.end()) continue;
    Json value = parsed(found->second);
    if (std::string_view(row.ours) == "hidden_act") {
      const char* const name = their_activation(found->second);
      if (name != nullptr) value = name;
    }
    if (row.more != 0 && value.is_number_integer()) value = value.get<int64_t>() + row.more;
    // If we have no range, their default stays.
    if (std::string_view(row.ours) == "initializer_range" && value == 0) continue;
    theirs[row.theirs] = value;
  }
  for (const FixedKey& fixed : architecture.fixed) {
    if (std::string_view(fixed.value) != fixed.fallback) {
      theirs[fixed.key] = Json::parse(fixed.value);
    }
  }
  if (architecture.write_more != nullptr) architecture.write_more(facts, theirs);
  return theirs;
}

void add_unread_keys(const Architecture& architecture, const Config& config, const Json& came,
                     Json& theirs) {
  // Types of the tensors, and what a folder must hold beside them.
  static const std::set<std::string> kOfTheFile = {"dtype", "auto_map", "quantization_config"};
  static const std::set<std::string> kOfClasses = {"id2label", "label2id", "num_labels",
                                                   "_num_labels", "problem_type"};
  const auto meaning = [&](const Json& json) {
    Reasons reasons;
    Json model = our_model(architecture, json, reasons);
    if (!pools_classes(config)) model.erase("classifier_pooling");  // a fact about no layer
    return std::pair(model, reasons);
  };
  const auto ours = meaning(theirs);
  for (const auto& [key, value] : came.items()) {
    if (theirs.contains(key) || kOfTheFile.contains(key)) continue;
    const bool labelled = examples_of(config).has_classes || config.task->can(kRatesTexts);
    if (labelled && kOfClasses.contains(key)) continue;
    Json with = theirs;
    with[key] = value;
    if (meaning(with) == ours) theirs = std::move(with);
  }
}

}  // namespace tapestry::interop
