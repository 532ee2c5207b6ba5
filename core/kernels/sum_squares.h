#pragma once

#include <span>
#include <vector>

#include "core/kernels/common.h"

namespace tapestry {

/// The elements of one tensor.
template <class T>
struct ElementSpan {
  const T* x;
  int64_t n;
};

namespace kernels {

/// *result (in device memory) = the sum of x^2 over all elements of all tensors, in double: partial
/// sums of fixed chunks, added in order, so that it does not depend on the number of threads. It is
/// finite if and only if every element is (in float64 the sum may also overflow), so one pass gives
/// both the global norm and the check for finite gradients, see GradientTransform::squared_norm.
template <class T>
void sum_squares(Cpu, std::span<const ElementSpan<T>> tensors, double* result);
template <class T>
void sum_squares(Cuda, std::span<const ElementSpan<T>> tensors, double* result);

/// A tensor's part of the sum, and the number of its zeros.
struct TensorSquares {
  double squares = 0;
  int64_t zeros = 0;
};
/// The same pass and bits; `each` also receives the part of each tensor.
template <class T>
void sum_squares(Cpu, std::span<const ElementSpan<T>> tensors, double* result,
                 std::span<TensorSquares> each);

/// The first half of it for one tensor of a list, whose elements begin `offset` elements behind
/// those of the first one: pieces[i] is what it adds to chunk offset / kSquaresChunk + i. So the
/// sum has the same bits when tensors come one by one, in any order.
template <class T>
void piece_squares(Cpu, const ElementSpan<T>& tensor, int64_t offset,
                   std::vector<TensorSquares>& pieces);

// The two halves of it for one array, of which each rank of several may have a part: the sums of
// the chunks are functions of their elements, wherever they are computed.

inline constexpr int64_t kSquaresChunk = 16384;

/// sums[c] = the sum of x^2 over elements [c, c + 1) * kSquaresChunk of n.
template <class T>
void chunk_squares(Cpu, const T* x, int64_t n, double* sums);
template <class T>
void chunk_squares(Cuda, const T* x, int64_t n, double* sums);

/// *result = the sum of `count` numbers, on a CPU one after the other. All in device memory.
void add_chunks(Cpu, const double* sums, int64_t count, double* result);
void add_chunks(Cuda, const double* sums, int64_t count, double* result);

}  // namespace kernels
}  // namespace tapestry
