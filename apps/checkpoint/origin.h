// The files that a model came with from elsewhere (TokenizerPair::came_with).
#pragma once

#include <nlohmann/json.hpp>

#include "data/tokenizers/tokenizer.h"

namespace tapestry {

/// The JSON object of a file; null if there is no such file, or it is no object.
inline nlohmann::ordered_json object_of_origin(const TokenizerPair& tokenizers, const char* name) {
  using Json = nlohmann::ordered_json;
  const auto file = tokenizers.came_with.find(name);
  if (file == tokenizers.came_with.end()) return {};
  Json json = Json::parse(file->second, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : Json();
}

}  // namespace tapestry
