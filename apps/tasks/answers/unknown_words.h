// Words of a source that the models do not know, in its translation.
#pragma once

#include <cstdint>
#include <string>

#include "apps/tasks/answers/unit_alignment.h"

namespace tapestry {

/// Writes each word of the source that has an unknown token as it stands there: in the place of the
/// unit of the translation that is aligned with it, if several are, of the one that gives it most
/// attention; if none is, before the unit that is aligned with what follows the word, or at the
/// end. A word stands between white space, without signs at its ends that are known.
void copy_unknown_words(const PartToAlign& part, const UnitAttention& attention, int32_t unknown,
                        AlignedText& translation);

/// True if some text has unknown tokens: not of a tokenizer that writes characters as bytes.
bool has_unknown_tokens(const Tokenizer& tokenizer);

}  // namespace tapestry
