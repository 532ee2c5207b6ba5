// The languages of models, which their names and labels tell, and the model for a request's.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/commands/serve/service.h"

namespace tapestry {

/// "de", "deu".
bool is_language_code(std::string_view text);

/// Target languages by source language, of the models that are named like de-en.
std::map<std::string, std::set<std::string>> served_languages(const Service& service);

struct DetectedLanguage {
  std::string code;
  double probability = 0;
};
/// The languages of a text, the most probable first, by a served classification model whose labels
/// are all codes of languages; nullopt if there is none. A translation model tells nothing: it
/// gives each sentence a translation, and its source side no probability. Throws as Turns::Turn.
std::optional<std::vector<DetectedLanguage>> detected_languages(const Service& service,
                                                                const std::string& text,
                                                                const CallEnd& end);

struct ChosenTranslator {
  std::shared_ptr<ServedModel> model;
  std::optional<DetectedLanguage> detected = {};  ///< if the source language was not given
};
/// The model that a call names, or that has its languages. Throws HttpError(400, 404).
ChosenTranslator translator_of(const Service& service, const Call& call, const std::string& text);

std::vector<std::string> lines_of_text(const std::string& text);

}  // namespace tapestry
