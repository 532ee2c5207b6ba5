#include "core/read_rate.h"

#include <algorithm>
#include <limits>

#include "core/base/clock.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/sum_squares.h"
#include "core/scratch.h"

namespace tapestry {
namespace {

// The least of ten times at least, after one that touches the memory. A third of a second: one
// disturbance must not set a yardstick.
template <class F>
double least_seconds(F run) {
  double least = std::numeric_limits<double>::infinity();
  const double least_end = steady_seconds() + 1. / 3;
  for (int i = 0; i < 11 || steady_seconds() < least_end; ++i) {
    const double start = steady_seconds();
    run();
    if (i > 0) least = std::min(least, steady_seconds() - start);
  }
  return least;
}

double gigabytes(int64_t floats) {
  return 1e-9 * static_cast<double>(floats) * static_cast<double>(sizeof(float));
}

}  // namespace

double read_rate() {
  constexpr int64_t kCount = int64_t{1} << 26;
  Scratch<float> x(kCount);
  std::fill_n(x.data(), kCount, 1.0F);
  Scratch<double> sums(kCount / kernels::kSquaresChunk);
  return gigabytes(kCount) /
         least_seconds([&] { kernels::chunk_squares(Cpu{}, x.data(), kCount, sums.data()); });
}

double copy_rate() {
  constexpr int64_t kCount = int64_t{1} << 25;
  Scratch<float> x(kCount), y(kCount);
  std::fill_n(x.data(), kCount, 1.0F);
  return gigabytes(2 * kCount) /
         least_seconds([&] { kernels::affine(Cpu{}, 1.0, x.data(), 0.0, y.data(), kCount); });
}

}  // namespace tapestry
