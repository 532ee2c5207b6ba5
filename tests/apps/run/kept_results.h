// What the tests of kept bits look at: a run's weights, and what its commands answer.
#pragma once

#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace tapestry {

/// FNV-1a over names, shapes and bytes.
inline std::string hash_of(const NamedTensors& tensors) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](const void* data, size_t bytes) {
    const auto* const at = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3;
  };
  for (const auto& [name, tensor] : tensors) {
    const std::string shape = tensor.shape().str();
    add(name.data(), name.size());
    add(shape.data(), shape.size());
    add(tensor.raw(), static_cast<size_t>(tensor.bytes()));
  }
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

/// Commands that read the run in the folder "run", each with its standard input.
inline std::vector<std::pair<std::string, std::string>> questions_of(const std::string& task) {
  const std::string lines = "ba ce di\nfo gu ha je\n\nmu lo ki\n";
  const std::string masks = "ba <mask> di\nfo gu <mask>\n";
  if (task == "translation") {
    return {{"translate --model run", lines},
            {"score --model run --source valid.src --target valid.tgt", ""}};
  }
  static const std::set<std::string> kTexts = {"clm", "prompts", "chat", "preference"};
  if (kTexts.contains(task)) {
    return {{"generate --model run --max-new-tokens 8 --top-k 1", lines},
            {"score --model run --target valid.src", ""}};
  }
  static const std::set<std::string> kLabels = {"classification", "tokens", "several"};
  if (kLabels.contains(task)) return {{"classify --model run", lines}};
  if (task == "vectors") return {{"embed --model run", lines}};
  if (task == "questions") {
    return {{"answer --model run", "after ba\tba ce di\nafter gu\tfo gu ha\n"}};
  }
  if (task == "images") {
    return {{"evaluate --model run --images valid-images.gz --labels valid-labels", ""}};
  }
  if (task == "regression") return {{"predict --model run", "0.5\n2\n3.5\n"}};
  return {{"fill-mask --model run", masks}};
}

}  // namespace tapestry
