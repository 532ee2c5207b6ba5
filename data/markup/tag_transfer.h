// Puts the markup of a source into its translation.
#pragma once

#include <functional>
#include <string>

#include "data/markup/aligned_text.h"
#include "data/markup/marked_text.h"

namespace tapestry {

/// What becomes of a piece of the translation's text on its way out.
using TextOut = std::function<std::string(std::string_view)>;

/// The translation with each tag of its source once, byte for byte, where tag_places() puts it, and
/// with the white space around it that the model did not read. Characters that the source wrote as
/// entities are written so again, as far as the translation has them; XML's others stand where a
/// tag would. `written` makes the rest of the text; of HTML also &, < and > become entities. A \n
/// between blocks is dropped.
std::string with_markup(const MarkedText& source, const AlignedText& translation,
                        const TextOut& written);

}  // namespace tapestry
