// How each section of a config is read, in the order of its keys. Every bind_... reads one section
// into the options of the libraries and complains about values that do not fit together.
#pragma once

#include <ranges>

#include "apps/config/config.h"
#include "apps/config/reader.h"

namespace tapestry {

/// Choices that are their own values.
inline std::vector<ConfigChoice<std::string>> names(std::initializer_list<const char*> list) {
  std::vector<ConfigChoice<std::string>> choices;
  for (const char* name : list) choices.push_back({name, name});
  return choices;
}

/// Choices whose names name_of() gives.
template <class Values>
auto named(const Values& values) {
  std::vector<ConfigChoice<std::ranges::range_value_t<Values>>> choices;
  for (const auto& value : values) choices.push_back({name_of(value), value});
  return choices;
}

/// Complains at `key` of what options.validate() says, unless there are more than `problems`
/// complaints by now: it would say the same again.
template <class Options>
void complain_unless_valid(ConfigSection& s, size_t problems, const char* key,
                           const Options& options) {
  if (s.problems() > problems) return;
  try {
    options.validate();
  } catch (const Error& error) {
    s.complain(key, error.what());
  }
}

void bind_data(ConfigSection& s, Config& config);
/// Corpora: pairs of sentences; text without translations; texts or images with a class each.
void bind_pairs(ConfigSection& s, CorpusSpec& corpus);
void bind_text(ConfigSection& s, CorpusSpec& corpus);
void bind_labelled(ConfigSection& s, CorpusSpec& corpus);
/// The key `range` of a part of a file.
void bind_range(ConfigSection& s, CorpusSpec& corpus, bool applies);
/// The keys of images in the sections data.train, data and model.
void bind_image_corpus(ConfigSection& s, CorpusSpec& corpus);
void bind_image_data(ConfigSection& s, Config& config);
void bind_image_model(ConfigSection& s, Config& config);
void bind_tokenizer(ConfigSection& s, Config& config);
void bind_masking(ConfigSection& s, Config& config);
void bind_denoising(ConfigSection& s, Config& config);
void bind_model(ConfigSection& s, Config& config);
void bind_training(ConfigSection& s, Config& config);
void bind_generation(ConfigSection& s, Config& config);
void bind_evaluation(ConfigSection& s, Config& config);

}  // namespace tapestry
