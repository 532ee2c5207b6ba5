// A translation whose units are aligned with those of its source.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/markup/text_units.h"

namespace tapestry {

struct AlignedText {
  /// A unit of the source and one of the text, from 0.
  using Pair = std::pair<int32_t, int32_t>;

  std::string text = {};
  std::vector<TextUnit> units = {};
  std::vector<Pair> pairs = {};
  /// For units of the source that are in no pair: where they would be, were they translated.
  std::vector<Pair> guesses = {};

  /// Appends the translation of what follows in the same source, behind a gap.
  void append(const AlignedText& next, std::string_view gap);
};

}  // namespace tapestry
