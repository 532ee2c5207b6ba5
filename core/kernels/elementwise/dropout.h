// Dropout as an operation of its own. Most kernels with dropout have it fused.
#pragma once

#include "core/kernels/common.h"

namespace tapestry::kernels {

/// y (=|+=) dropout(x), n elements, draw i for element i; its own backward (dy -> dx). y may be x.
template <class T>
void dropout(Cpu, const Dropout& dropout, const T* x, T* y, int64_t n, Write write);
template <class T>
void dropout(Cuda, const Dropout& dropout, const T* x, T* y, int64_t n, Write write);

}  // namespace tapestry::kernels
