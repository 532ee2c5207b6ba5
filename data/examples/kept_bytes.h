// Estimates the memory of corpora without reading them.
#pragma once

#include <cstdint>
#include <vector>

#include "data/images/images.h"

namespace tapestry {

/// Bytes that stay in memory during training: exact for the pixels of images, approximate for
/// questions with the places of their tokens. 0 for other texts, and for files that cannot be read,
/// or only once.
int64_t kept_bytes(const std::vector<CorpusSpec>& specs, const ImageSize& size);

/// Approximate bytes of the tokens of texts: four for each token, which is a byte of text for
/// characters, or else four bytes. Dropped lines count, too.
int64_t token_file_bytes(const std::vector<CorpusSpec>& specs, bool characters);

}  // namespace tapestry
