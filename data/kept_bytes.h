// What corpora take of memory, for whoever reads none of them.
#pragma once

#include <cstdint>
#include <vector>

#include "data/images.h"

namespace tapestry {

/// Bytes that stay in memory while these corpora are trained on: the pixels of images, exactly, and
/// about what questions take with the places of their tokens. Tokens of other texts are in a mapped
/// file. 0 for what cannot be opened.
int64_t kept_bytes(const std::vector<CorpusSpec>& specs, const ImageSize& size);

/// About what the tokens of texts take in the mapped file: four bytes for each character, or for
/// each piece, of which four bytes of text make one. Lines that are dropped count, too.
int64_t token_file_bytes(const std::vector<CorpusSpec>& specs, bool characters);

}  // namespace tapestry
