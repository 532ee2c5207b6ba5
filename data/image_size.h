// The size and number of images, for whoever reads none of them.
#pragma once

#include "data/images.h"

namespace tapestry {

/// Of the first image of a corpus. Throws Error(kData) where it cannot be read.
ImageSize size_of_first_image(const CorpusSpec& spec);

/// How many images a corpus takes from its files. Throws likewise.
int64_t image_count(const CorpusSpec& spec);

}  // namespace tapestry
