// The vector instructions of the CPU kernels: Highway chooses the best that the processor has.
#pragma once

#include <string>

namespace tapestry {

/// What the kernels use here, in Highway's words: "AVX2", "AVX3".
std::string vector_target();

/// Limits the kernels to TAPESTRY_VECTORS, one of those words, if it is set: so a processor gives
/// the bits of an older one. To be called before the first kernel. Throws Error(kConfig) if this
/// processor or this build does not have it.
void limit_vector_target();

}  // namespace tapestry
