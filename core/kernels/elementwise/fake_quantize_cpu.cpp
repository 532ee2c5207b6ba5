#include <algorithm>

#include "core/cpu/parallel.h"
#include "core/kernels/elementwise/fake_quantize.h"
#include "core/kernels/packed/packed_matrix.h"
#include "core/kernels/packed/quantize.h"
#include "core/scratch.h"

namespace tapestry {
namespace {

void round_group(Rounding rounding, float* x, int64_t n, uint8_t* q) {
  if (rounding == Rounding::kInt4) {
    const BFloat16 scale(kernels::round_to_int4(x, n, q));
    for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(scale) * static_cast<float>(q[i] - 8);
    return;
  }
  const float scale = kernels::quantize_row(x, n, 0, q);
  for (int64_t i = 0; i < n; ++i) x[i] = scale * static_cast<float>(static_cast<int8_t>(q[i]));
}

}  // namespace

template <class T>
void kernels::fake_quantize(Cpu, Rounding rounding, const T* x, T* y, int64_t rows, int64_t cols) {
  constexpr int64_t kLeastElements = 1 << 14;  // of a task
  const int64_t width = rounding == Rounding::kInt8 ? cols : PackedMatrix::kInt4Columns;
  const int64_t grain = std::max<int64_t>(1, kLeastElements / std::max<int64_t>(1, cols));
  parallel_ranges(rows, grain, [&](int64_t begin, int64_t end) {
    Scratch<float> row(cols);
    Scratch<uint8_t> q(cols);
    for (int64_t r = begin; r < end; ++r) {
      std::transform(x + r * cols, x + (r + 1) * cols, row.data(),
                     [](T v) { return static_cast<float>(v); });
      for (int64_t c = 0; c < cols; c += width) {
        round_group(rounding, row.data() + c, std::min(width, cols - c), q.data());
      }
      std::transform(row.data(), row.data() + cols, y + r * cols,
                     [](float v) { return static_cast<T>(v); });
    }
  });
}

#define TAPESTRY_FAKE_QUANTIZE(T) \
  template void kernels::fake_quantize(Cpu, Rounding, const T*, T*, int64_t, int64_t);
TAPESTRY_FAKE_QUANTIZE(float)
TAPESTRY_FAKE_QUANTIZE(double)
TAPESTRY_FAKE_QUANTIZE(BFloat16)

}  // namespace tapestry
