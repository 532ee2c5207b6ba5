// The size and the normalisation of images in Hugging Face's folders: some keys of config.json, and
// preprocessor_config.json.
#pragma once

#include "apps/interop/architectures/architectures.h"
#include "data/images/images.h"

namespace tapestry::interop {

inline constexpr const char* kPreprocessorFile = "preprocessor_config.json";

/// The section data.image that these files mean; `processor` is an object, without keys where there
/// is no such file.
Json our_image_format(const Json& config, const Json& processor, Reasons& reasons);

void add_image_size(const ImageSize& size, Json& config);
/// Their preprocessor for this format. Of the one that the model came with (null: none) it keeps
/// the keys that do not follow from the format, and those that mean it.
Json their_preprocessor(const ImageFormat& format, const Json& came);

}  // namespace tapestry::interop
