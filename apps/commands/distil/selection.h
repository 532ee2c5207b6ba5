// Which translations become a student's corpus.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "apps/commands/distil/translated_pieces.h"

namespace tapestry {

/// By the translations' scores; at most one of the two.
struct SelectionOptions {
  std::optional<double> min_score = {};  ///< the least to keep
  std::optional<double> keep = {};       ///< the share of the translations to keep, the best
};

struct SelectionCounts {
  int64_t sources = 0;
  int64_t kept = 0;  ///< translations
  std::array<int64_t, kLeftOut.size()> left_out = {};
  int64_t spaced = 0;  ///< texts whose tabs or line ends became spaces
};

inline constexpr const char* kDistilledCorpus = "corpus.tsv";
inline constexpr const char* kLeftOutFile = "left_out.tsv";

/// Writes both files into the folder: kDistilledCorpus (source, translation and, if `weighted`, the
/// weight of the pair) and kLeftOutFile (reason, score, source, translation). Throws Error(kData)
/// if nothing is kept.
SelectionCounts write_selection(const TranslatedPieces& pieces, const SelectionOptions& options,
                                bool weighted, const std::string& folder);

}  // namespace tapestry
