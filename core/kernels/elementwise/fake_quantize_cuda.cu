#include <bit>

#include "core/kernels/cuda/rows.cuh"
#include "core/kernels/elementwise/fake_quantize.h"

namespace tapestry {
namespace {

constexpr int kGroup = 32;  // columns that int4 rounds together

template <class T>
__device__ float as_float(T x) {
  return static_cast<float>(widen(x));
}

// Group g of x (rows, cols), `width` columns or those that are left.
struct GroupPlace {
  int64_t begin, count;
  __device__ GroupPlace(int64_t g, int64_t cols, int64_t width) {
    const int64_t groups = (cols + width - 1) / width, first = g % groups * width;
    begin = g / groups * cols + first;
    count = width < cols - first ? width : cols - first;
  }
};

// A warp or a block for each group: quantize_row() of its numbers, back in their type.
template <class Row, class T>
__global__ void int8_kernel(const T* x, T* y, int64_t groups, int64_t cols, int64_t width) {
  const int64_t group = Row::row();
  if (group >= groups) return;
  const GroupPlace place(group, cols, width);
  // The bits of floats without their signs are ordered like them, a NaN above all.
  int32_t largest = 0;
  for (int64_t i = Row::rank(); i < place.count; i += Row::kCount) {
    const float size = std::fabs(as_float(x[place.begin + i]));
    largest = MaxOf()(largest, std::bit_cast<int32_t>(size));
  }
  const auto max = std::bit_cast<float>(Row::reduce(largest, MaxOf(), int32_t{0}));
  constexpr float kLeast = 0x1p-100F, kMost = 3.402823466e38F;
  const bool zero = max < kLeast, finite = max <= kMost;
  const float factor = zero ? 0 : 127 / max, scale = zero ? 0 : max / 127;
  for (int64_t i = Row::rank(); i < place.count; i += Row::kCount) {
    const float q = std::rint(as_float(x[place.begin + i]) * factor);
    y[place.begin + i] = narrow<T>(static_cast<Wider<T>>(finite ? scale * q : max - max));
  }
}

// A thread for each group: round_to_int4() of its numbers, back in their type.
template <class T>
__global__ void int4_kernel(const T* x, T* y, int64_t groups, int64_t cols) {
  for (int64_t group = global_thread(); group < groups; group += global_threads()) {
    const GroupPlace place(group, cols, kGroup);
    float peak = 0;
    for (int64_t i = 0; i < place.count; ++i) {
      const float w = as_float(x[place.begin + i]);
      if (!(std::fabs(w) <= std::fabs(peak))) peak = w;
    }
    const float factor = peak != 0 ? -8 / peak : 0;
    float products = 0, squares = 0, rounded[kGroup];
    for (int64_t i = 0; i < place.count; ++i) {
      const float w = as_float(x[place.begin + i]);
      rounded[i] = std::fmin(std::fmax(std::rint(w * factor), -8.0F), 7.0F);
      products += rounded[i] * w, squares += rounded[i] * rounded[i];
    }
    const float scale = peak == 0 ? 0 : products / squares;
    const float stored = widen(narrow<BFloat16>(scale));
    for (int64_t i = 0; i < place.count; ++i) {
      y[place.begin + i] = narrow<T>(static_cast<Wider<T>>(stored * rounded[i]));
    }
  }
}

}  // namespace

namespace kernels {

template <class T>
void fake_quantize(Cuda, Rounding rounding, const T* x, T* y, int64_t rows, int64_t cols) {
  const int64_t width = rounding == Rounding::kInt8 ? cols : kGroup;
  const int64_t groups = rows * (cols == 0 ? 0 : (cols + width - 1) / width);
  if (groups == 0) return;
  if (rounding == Rounding::kInt4) {
    launch({.kernel = "fake_quantize", .grid = blocks_for(groups)}, int4_kernel<T>, x, y, groups,
           cols);
    return;
  }
  with_row_threads(groups, width, [&](auto row, unsigned grid) {
    launch({.kernel = "fake_quantize", .grid = grid}, int8_kernel<decltype(row), T>, x, y, groups,
           cols, width);
  });
}

#define TAPESTRY_FAKE_QUANTIZE(T) \
  template void fake_quantize(Cuda, Rounding, const T*, T*, int64_t, int64_t);
TAPESTRY_FAKE_QUANTIZE(float)
TAPESTRY_FAKE_QUANTIZE(double)
TAPESTRY_FAKE_QUANTIZE(BFloat16)

}  // namespace kernels
}  // namespace tapestry
