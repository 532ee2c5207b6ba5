// y = act(x W^T + b) with a packed matrix of weights: for inference, where x has few rows.
#pragma once

#include "core/kernels/common.h"
#include "core/kernels/elementwise/activation.h"
#include "core/kernels/packed/packed_matrix.h"

namespace tapestry {

/// x (rows, K), W (N, K), bias (N) or null, y (rows, N). The softcap is for searches
/// (packed_top_logits.h).
struct PackedLinear {
  int64_t rows = 0;
  const float* x = nullptr;
  const PackedMatrix& weight;
  const float* bias = nullptr;
  Activation activation = Activation::kNone;
  float* y = nullptr;
  double softcap = 0;  ///< of logits (cross_entropy.h); 0: none
};

namespace kernels {

/// A row of y depends on its row of x only: neither on the other rows nor on the threads. Of
/// float32 and bfloat16 weights the products of an element are added in ascending k, in float32.
/// With int8 weights each row of x is rounded, too (quantize.h); the sums of products are exact
/// integers, then y = act(sum * scale of x * scale of W + b), so that the bits are equal on all
/// processors. With int4 weights 32 columns of a row of x are rounded together, with a scale of
/// their own, and their sum, an integer, is added to those before as sum * (scale of x * scale of
/// W).
void packed_linear(Cpu, const PackedLinear& args);

}  // namespace kernels
}  // namespace tapestry
