#include "apps/interop/foreign_generation.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "apps/config/search_overrides.h"
#include "apps/interop/architectures/tensor_names.h"

namespace tapestry::interop {
namespace {

// A key of both, with the default of their GenerationConfig.
struct SearchRow {
  const char* key;
  const char* fallback;  // JSON
};
constexpr SearchRow kRows[] = {
    {"num_beams", "1"},
    {"length_penalty", "1.0"},
    {"do_sample", "false"},
    {"temperature", "1.0"},
    {"top_k", "50"},
    {"top_p", "1.0"},
    {"min_p", "0.0"},
    {"epsilon_cutoff", "0.0"},
    {"repetition_penalty", "1.0"},
    {"no_repeat_ngram_size", "0"},
    {"min_new_tokens", "0"},
    {"max_new_tokens", "0"},
};
// Keys without an equivalent here that change their outputs, with the values that have no effect.
constexpr SearchRow kUnknown[] = {
    {"typical_p", "1.0"},
    {"eta_cutoff", "0.0"},
    {"penalty_alpha", "null"},
    {"num_beam_groups", "1"},
    {"diversity_penalty", "0.0"},
    {"suppress_tokens", "null"},
    {"bad_words_ids", "null"},
    {"begin_suppress_tokens", "null"},
    {"sequence_bias", "null"},
    {"encoder_repetition_penalty", "1.0"},
    {"encoder_no_repeat_ngram_size", "0"},
    {"exponential_decay_length_penalty", "null"},
    {"stop_strings", "null"},
    {"guidance_scale", "1.0"},
    {"force_words_ids", "null"},
    {"constraints", "null"},
    {"forced_decoder_ids", "null"},
    {"watermarking_config", "null"},
    {"renormalize_logits", "false"},
    {"max_time", "null"},
    {"top_h", "null"},
    {"dola_layers", "null"},
    {"token_healing", "false"},
    {"num_return_sequences", "1"},
};
constexpr SearchRow kUnknownOfDecoders[] = {{"forced_bos_token_id", "null"},
                                            {"forced_eos_token_id", "null"}};

bool is_whole(const SearchRow& row) { return Json::parse(row.fallback).is_number_integer(); }

bool has_type_of(const Json& value, const SearchRow& row) {
  if (Json::parse(row.fallback).is_boolean()) return value.is_boolean();
  return is_whole(row) ? value.is_number_integer() : value.is_number();
}

Json stored_or(const Json& theirs, const char* key, const char* fallback) {
  const auto found = theirs.find(key);
  return found == theirs.end() || found->is_null() ? Json::parse(fallback) : *found;
}

// No search writes padding, so that a list of it forbids nothing (Marian's have one).
void forget_padding(const Json& theirs, Json& words) {
  const Json padding = Json::array({stored_or(theirs, "pad_token_id", "null")});
  words.erase(std::remove(words.begin(), words.end(), padding), words.end());
}

// True if searches here take that value.
bool is_in_bounds(const char* key, const Json& value) {
  try {
    SearchOptions greedy;
    greedy.num_beams = 1;
    override_search(greedy, {{.option = key, .key = key, .value = value.dump()}}).validate();
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The value in the form of flat_keys().
std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.dump();
}

bool same(const std::string& a, const std::string& b) {
  if (a == b) return true;
  const Json x = Json::parse(a, nullptr, false), y = Json::parse(b, nullptr, false);
  return x.is_number() && y.is_number() && x.get<double>() == y.get<double>();
}

}  // namespace

Json read_generation(const std::string& folder, const Json& config) {
  const std::string path = folder + "/generation_config.json";
  return std::filesystem::is_regular_file(path) ? read_json(path) : config;
}

Json our_generation(const Json& theirs, ModelType type, Reasons& notes) {
  Json ours = {{"length_penalty_type", "average"}};
  for (const SearchRow& row : kRows) {
    Json value = stored_or(theirs, row.key, row.fallback);
    if (!has_type_of(value, row)) {
      notes.push_back(concat(row.key, " is ", value.dump(), ", it becomes ", row.fallback, '.'));
      value = Json::parse(row.fallback);
    }
    ours[row.key] = value;
  }
  const auto tell_unknown = [&](std::span<const SearchRow> rows) {
    for (const SearchRow& row : rows) {
      Json value = stored_or(theirs, row.key, row.fallback);
      if (std::string_view(row.key) == "bad_words_ids" && value.is_array())
        forget_padding(theirs, value);
      const bool off = value == Json::parse(row.fallback) || (value.is_array() && value.empty());
      if (off) continue;
      notes.push_back(concat(row.key, " is ", value.dump(), ", which searches here do not know."));
    }
  };
  tell_unknown(kUnknown);
  if (type == ModelType::kDecoder) tell_unknown(kUnknownOfDecoders);
  const Json stopping = stored_or(theirs, "early_stopping", "false");
  if (!stopping.is_boolean() && stopping != "never") {
    notes.push_back(concat("early_stopping is ", stopping.dump(), ", it becomes false."));
  }
  ours["early_stopping"] = stopping == "never" ? "never" : stopping == true ? "true" : "false";
  if (ours["temperature"] <= 0 || ours["top_p"] <= 0) {  // greedy, as others write it
    ours["do_sample"] = false;
    if (ours["temperature"] <= 0) ours["temperature"] = 1.0;
    if (ours["top_p"] <= 0) ours["top_p"] = 1.0;
  }
  if (ours["do_sample"] == true && ours["num_beams"] > 1) {
    notes.push_back(concat("num_beams is ", ours["num_beams"].dump(),
                           " and do_sample true: searches here draw without beams."));
    ours["num_beams"] = 1;
  }
  const auto keep_above = [&](const char* key, double least, const Json& instead) {
    if (ours[key].get<double>() >= least) return;
    notes.push_back(concat(key, " is ", ours[key].dump(), ", it becomes ", instead.dump(), '.'));
    ours[key] = instead;
  };
  keep_above("length_penalty", 0, 0.0);
  keep_above("top_k", 0, 0);
  for (const SearchRow& row : kRows) {
    if (is_in_bounds(row.key, ours[row.key])) continue;
    notes.push_back(
        concat(row.key, " is ", ours[row.key].dump(), ", it becomes ", row.fallback, '.'));
    ours[row.key] = Json::parse(row.fallback);
  }
  // Their limits count the decoder's first token. A causal model's would count the prompt.
  if (type == ModelType::kEncoderDecoder) {
    const Json longest = stored_or(theirs, "max_length", "0"),
               shortest = stored_or(theirs, "min_length", "0");
    for (const auto& [key, value] :
         {std::pair{"max_length", &longest}, std::pair{"min_length", &shortest}}) {
      if (value->is_number_integer()) continue;
      notes.push_back(concat(key, " is ", value->dump(), ", it becomes 0."));
    }
    if (ours["max_new_tokens"] == 0 && longest.is_number_integer() && longest > 1) {
      ours["max_new_tokens"] = longest.get<int64_t>() - 1;
    }
    if (ours["min_new_tokens"] == 0 && shortest.is_number_integer() && shortest > 1) {
      ours["min_new_tokens"] = shortest.get<int64_t>() - 1;
    }
  } else {
    for (const auto& [key, usual] : {std::pair{"max_length", "20"}, std::pair{"min_length", "0"}}) {
      const Json value = stored_or(theirs, key, usual);
      if (value == Json::parse(usual)) continue;
      notes.push_back(concat(key, " is ", value.dump(), ", which counts the prompt, too: not kept ",
                             "(generation.", key == std::string("max_length") ? "max" : "min",
                             "_new_tokens count what is written)."));
    }
  }
  return ours;
}

Json their_generation(const Config& ours, const Json& came, const Json& config) {
  Json generation = came.is_null() ? Json::object() : came;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id",
                          "forced_bos_token_id", "forced_eos_token_id"}) {
    if (came.is_null() && config.contains(key)) generation[key] = config.at(key);
  }
  if (came.is_null()) return generation;
  Reasons none;
  const Json before = our_generation(came, ours.model_type, none);
  const auto now = flat_keys(ours), usual = flat_keys(default_config(*ours.task));
  for (const SearchRow& row : kRows) {
    const std::string key = concat("generation.", row.key);
    const auto found = now.find(key), fresh = usual.find(key);
    if (found == now.end() || same(found->second, text_of(before.at(row.key)))) continue;
    // A training without search options has our defaults, which nobody chose.
    if (fresh != usual.end() && fresh->second == found->second) continue;
    generation[row.key] = Json::parse(found->second);
  }
  return generation;
}

}  // namespace tapestry::interop
