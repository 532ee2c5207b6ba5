// Arithmetic with broadcasting, and the small linear maps that the tape needs. Sums over an axis
// are in reduce.h, reordered axes in permute.h, dropout in dropout.h.
#pragma once

#include "core/kernels/common.h"

namespace tapestry {

enum class Binary { kAdd, kSub, kMul, kDiv };

/// How two operands broadcast to the result of a binary operation: sizes and element strides from
/// the outermost axis; stride 0 on a broadcast axis.
struct BroadcastPlan {
  int64_t size[Shape::kMaxRank] = {1, 1, 1, 1};
  int64_t a_stride[Shape::kMaxRank] = {};
  int64_t b_stride[Shape::kMaxRank] = {};
};

/// The plan for operands of shapes a and b. Throws, naming `who`, when they do not broadcast.
BroadcastPlan broadcast_plan(const char* who, const Shape& a, const Shape& b);

namespace kernels {

/// y = a op b over the plan's sizes (dense result).
template <class T>
void binary(Cpu, Binary op, const BroadcastPlan& plan, const T* a, const T* b, T* y);
template <class T>
void binary(Cuda, Binary op, const BroadcastPlan& plan, const T* a, const T* b, T* y);

/// The gradient of one operand (`wrt` 0: a, 1: b), summed over the axes on which it was broadcast:
/// da (=|+=) sum dy * d(a op b)/da.
template <class T>
void binary_backward(Cpu, Binary op, int wrt, const BroadcastPlan& plan, const T* a, const T* b,
                     const T* dy, T* d_operand, Write write);
template <class T>
void binary_backward(Cuda, Binary op, int wrt, const BroadcastPlan& plan, const T* a, const T* b,
                     const T* dy, T* d_operand, Write write);

/// y (=|+=) alpha * x + beta; y may be x.
template <class T>
void affine(Cpu, double alpha, const T* x, double beta, T* y, int64_t n, Write write = Write::kSet);
template <class T>
void affine(Cuda, double alpha, const T* x, double beta, T* y, int64_t n,
            Write write = Write::kSet);

/// x *= *factor, a number in device memory. x is not touched if the factor is 1.
template <class T>
void scale(Cpu, const T* factor, T* x, int64_t n);
template <class T>
void scale(Cuda, const T* factor, T* x, int64_t n);

/// Under kSet y = mask ? value : x, under kAdd y += mask ? 0 : x. The mask has `mask_n` elements
/// and repeats over x: x[i] has mask element (i / inner) % mask_n, so a mask broadcasts over
/// leading axes and over `inner` trailing elements.
template <class T>
void masked_fill(Cpu, const T* x, const int32_t* mask, int64_t mask_n, int64_t inner, double value,
                 T* y, int64_t n, Write write);
template <class T>
void masked_fill(Cuda, const T* x, const int32_t* mask, int64_t mask_n, int64_t inner, double value,
                 T* y, int64_t n, Write write);

/// The transpose of sum_axis (reduce.h): y (outer, n, inner) (=|+=) scale * x (outer, inner).
template <class T>
void broadcast_axis(Cpu, const T* x, T* y, int64_t outer, int64_t n, int64_t inner, double scale,
                    Write write);
template <class T>
void broadcast_axis(Cuda, const T* x, T* y, int64_t outer, int64_t n, int64_t inner, double scale,
                    Write write);

/// Copies a block of rows between tensors of different width: for r in [0, rows), c in [0, cols):
/// y[r * y_stride + c] (=|+=) x[r * x_stride + c]. concat and slice are made of it.
template <class T>
void copy_block(Cpu, const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t rows,
                int64_t cols, Write write);
template <class T>
void copy_block(Cuda, const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t rows,
                int64_t cols, Write write);

/// y[rows[r] * cols + c] = x[r * x_stride + c] for r in [0, count), c in [0, cols); rows below 0
/// are left out. No row comes twice.
template <class T>
void scatter_rows(Cpu, const T* x, int64_t x_stride, const int32_t* rows, int64_t count, T* y,
                  int64_t cols);
template <class T>
void scatter_rows(Cuda, const T* x, int64_t x_stride, const int32_t* rows, int64_t count, T* y,
                  int64_t cols);

}  // namespace kernels
}  // namespace tapestry
