// core/cuda/ptx/fast_math.h on the CPU.
#pragma once

#include <cmath>

namespace tapestry {

inline float fast_exp2(float x) { return std::exp2(x); }
inline float fast_tanh(float x) { return std::tanh(x); }

}  // namespace tapestry
