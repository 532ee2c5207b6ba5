#include "core/read_rate.h"

#include <algorithm>
#include <limits>

#include "core/base/clock.h"
#include "core/kernels/sum_squares.h"
#include "core/scratch.h"

namespace tapestry {

double read_rate() {
  constexpr int64_t kCount = int64_t{1} << 26;
  Scratch<float> x(kCount);
  std::fill_n(x.data(), kCount, 1.0F);
  Scratch<double> sums(kCount / kernels::kSquaresChunk);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 11; ++i) {
    const double start = steady_seconds();
    kernels::chunk_squares(Cpu{}, x.data(), kCount, sums.data());
    if (i > 0) best = std::min(best, steady_seconds() - start);
  }
  return 1e-9 * static_cast<double>(kCount * static_cast<int64_t>(sizeof(float))) / best;
}

}  // namespace tapestry
