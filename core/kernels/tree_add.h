// Sums of gradients in an order that the number of ranks does not change.
#pragma once

#include <span>

#include "core/kernels/common.h"

namespace tapestry {

/// The operands that one call may have.
inline constexpr size_t kMostTreeOperands = 256;

namespace kernels {

/// out[i] = T(0, R) of x_0[i] .. x_{R-1}[i], 1 <= R <= kMostTreeOperands, with T(a, a + 1) = x_a
/// and T(a, b) = T(a, m) + T(m, b), m = a + the largest power of two below b - a. So any 2^k
/// operands that begin at a multiple of 2^k are added among themselves first, wherever that
/// happens. Sums are in Wider<T>, one rounding for each addition. `out` may be one of the x.
template <class T>
void tree_add(Cpu, std::span<const T* const> x, Wider<T>* out, int64_t n);
template <class T>
void tree_add(Cuda, std::span<const T* const> x, Wider<T>* out, int64_t n);

/// out[i] = (x[i] + sums_0[i]) + sums_1[i] + .., from left to right: what a binary counter over the
/// parts of a sum adds when one more part arrives (optim/gradient_exchange.h). Without sums x is
/// only copied. `out` may be one of the sums; at most 32 of them.
template <class T>
void add_in_order(Cpu, const T* x, std::span<const Wider<T>* const> sums, Wider<T>* out, int64_t n);
template <class T>
void add_in_order(Cuda, const T* x, std::span<const Wider<T>* const> sums, Wider<T>* out,
                  int64_t n);

}  // namespace kernels
}  // namespace tapestry
