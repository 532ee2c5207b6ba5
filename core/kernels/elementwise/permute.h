// Reordering of axes.
#pragma once

#include "core/kernels/common.h"

namespace tapestry::kernels {

/// y (=|+=) x with axes reordered: axis i of y is axis order[i] of x. `size` are x's sizes.
template <class T>
void permute(Cpu, const T* x, T* y, const int64_t (&size)[Shape::kMaxRank],
             const int (&order)[Shape::kMaxRank], Write write);
template <class T>
void permute(Cuda, const T* x, T* y, const int64_t (&size)[Shape::kMaxRank],
             const int (&order)[Shape::kMaxRank], Write write);

}  // namespace tapestry::kernels
