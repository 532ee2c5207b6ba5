// The hard alignments of translations with their sources, from the models' attention.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/tasks/answers/alignment.h"
#include "apps/tasks/answers/translator.h"

namespace tapestry {

struct TranslationsToAlign {
  const std::vector<std::vector<int32_t>>& sources;
  /// The sources' tokens in their texts: then words are aligned. Null: tokens are.
  const std::vector<PlacedText>* places = nullptr;
  const std::vector<std::vector<Hypothesis>>& results;  ///< of each source
  int64_t layer = 0;                                    ///< as in source_attention()
  int64_t batch_size = 64;
};

/// The alignments of each source's results.
std::vector<std::vector<Alignment>> align_results(const Translator& models,
                                                  const TranslationsToAlign& translations);

}  // namespace tapestry
