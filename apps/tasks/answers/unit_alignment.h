// Translations whose words are aligned with those of their sources, by the models' attention: what
// markup and unknown words are put in by.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/tasks/answers/translator.h"
#include "data/markup/aligned_text.h"
#include "data/markup/marked_text.h"
#include "data/tokenizers/words/placed_text.h"

namespace tapestry {

/// A translation of a source, or of a part of it such as a sentence.
struct PartToAlign {
  const MarkedText* source = nullptr;
  size_t begin = 0;                    ///< byte of the source's text where the part begins
  const PlacedText* placed = nullptr;  ///< the tokens that the models read, placed in the part
  std::vector<int32_t> tokens = {};    ///< of the translation
};

struct UnitAlignmentOptions {
  bool copy_unknown = false;  ///< as copy_unknown_words()
  int64_t layer = 0;          ///< as in source_attention()
  int64_t batch_size = 64;
};

/// The mean attention that the tokens of each unit of a translation give to each unit of its part,
/// the sum over its tokens. A token of several units counts to each.
struct UnitAttention {
  size_t first = 0;    ///< the part's first unit among the source's
  size_t sources = 0;  ///< units of the part
  std::vector<TextUnit> targets = {};
  std::vector<double> weights = {};  ///< (targets, sources + 1); the last: to no unit

  double at(size_t target, size_t source) const { return weights[target * (sources + 1) + source]; }
};

/// Each unit of a translation is aligned to the unit of the source that has most of its attention,
/// the first of equals, or to nothing if most goes to the source's end and white space. For a unit
/// of the source that gets none the one that gives it most is guessed. Pairs count the source's
/// units, not the part's. Where nothing is to be put in, there are no units and no pairs.
std::vector<AlignedText> align_units(const Translator& models,
                                     const std::vector<PartToAlign>& parts,
                                     const UnitAlignmentOptions& options);

/// `weights` as source_attention() gives them, for tokens of the translation that are placed in it.
UnitAttention unit_attention(const PartToAlign& part, const PlacedText& translation,
                             const Tensor& weights);
AlignedText aligned_text(const UnitAttention& attention, std::string text);

}  // namespace tapestry
