// Image size and count from file headers, without decoding.
#pragma once

#include "data/images/images.h"

namespace tapestry {

/// Size of a corpus's first image. Throws Error(kData) if it cannot be read.
ImageSize size_of_first_image(const CorpusSpec& spec);

/// Number of images that a corpus takes from its files. Throws Error(kData) if they cannot be read.
int64_t image_count(const CorpusSpec& spec);

}  // namespace tapestry
