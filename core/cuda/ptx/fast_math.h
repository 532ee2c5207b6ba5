// Instructions for functions of float with fewer digits than those of <cmath> (PTX ISA, "Floating
// point instructions"). The tests run the kernels with functions of the same names that compute on
// the CPU.
#pragma once

#include <cuda_runtime.h>

namespace tapestry {

/// 2^x within 2 units in the last place; subnormal results become 0.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// tanh(x) within 1e-6
__device__ inline float fast_tanh(float x) {
  const float power = fast_exp2(x * 2.88539008f);  // e^2x
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(1 + power));
  return fmaf(-2, reciprocal, 1);
}

}  // namespace tapestry
