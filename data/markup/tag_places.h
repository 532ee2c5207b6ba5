// Where the tags of a source stand in its translation.
#pragma once

#include <cstdint>
#include <vector>

#include "data/markup/aligned_text.h"
#include "data/markup/marked_text.h"

namespace tapestry {

/// What stands between two units of a translation, in its order: numbers of the source's tags.
struct TagGap {
  std::vector<int32_t> left = {};   ///< at the unit before, before the white space
  std::vector<int32_t> right = {};  ///< at the unit behind
};

/// For n units n + 1 gaps, in which each tag stands once.
///
/// A pair encloses the units that are aligned with those it enclosed, and what stands between them;
/// at an end of the text (or of a block) also its unaligned ones. If none is aligned, their guesses
/// count, inside of the pair around it. Of two pairs that do not overlap in the source, but would
/// here, the first also encloses the other. All other tags, and pairs that enclose nothing, stand
/// before the first unit that is aligned with the next one of the source that has any, inside of
/// the same pair, else at that pair's end; a closing tag without a partner, an entity that stood at
/// the end of a word, and a tag between a word and a sign that is aligned with nothing, behind the
/// last one of the unit before.
std::vector<TagGap> tag_places(const MarkedText& source, const AlignedText& translation);

}  // namespace tapestry
