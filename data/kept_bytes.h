// What corpora take of memory, for whoever reads none of them.
#pragma once

#include <cstdint>
#include <vector>

#include "data/images.h"

namespace tapestry {

/// Bytes that stay in memory while these corpora are trained on: the pixels of images, exactly, and
/// about what questions take with the places of their tokens. 0 for other texts, and for what
/// cannot be read or only once.
int64_t kept_bytes(const std::vector<CorpusSpec>& specs, const ImageSize& size);

/// About what the tokens of texts take: four bytes each, and each byte of text is a character, or
/// every four are a piece. Lines that are dropped count, too.
int64_t token_file_bytes(const std::vector<CorpusSpec>& specs, bool characters);

}  // namespace tapestry
