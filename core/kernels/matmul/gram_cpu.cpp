#include "core/kernels/matmul/gram.h"

#include <algorithm>

#include "core/cpu/parallel.h"
#include "core/kernels/cpu/tile_grid.h"
#include "core/kernels/matmul/gemm.h"

namespace tapestry::kernels {
namespace {

// Rows of C that one product computes, up to the diagonal. With fewer rows less is computed twice,
// but products of few rows are slow.
Cut bands_of(int64_t m) {
  constexpr int64_t kLeast = 64, kMost = 8;
  return {m, std::max(kLeast, (m + kMost - 1) / kMost)};
}

// What is above the diagonal, from below it.
template <class T>
void mirror(T* c, int64_t m) {
  constexpr int64_t kTile = 32;  // both sides of a tile stay in the first cache
  const Cut cut{m, kTile};
  parallel_for(cut.count(), [&](int64_t i) {
    const Range rows = cut[i];
    for (int64_t j = 0; j <= i; ++j) {
      const Range cols = cut[j];
      for (int64_t r = rows.begin; r < rows.end; ++r) {
        const int64_t end = std::min(cols.end, r);
        for (int64_t s = cols.begin; s < end; ++s) c[s * m + r] = c[r * m + s];
      }
    }
  });
}

}  // namespace

template <class T>
void gram(Cpu, const Gram<T>& g) {
  const Cut bands = bands_of(g.m);
  const int64_t lda = g.trans ? g.m : g.k;
  for (int64_t i = 0; i < bands.count(); ++i) {
    const Range rows = bands[i];
    gemm(Cpu{}, Gemm<T>{.m = rows.size(),
                        .n = rows.end,
                        .k = g.k,
                        .a = g.a + rows.begin * (g.trans ? 1 : g.k),
                        .lda = lda,
                        .trans_a = g.trans,
                        .b = g.a,
                        .ldb = lda,
                        .trans_b = !g.trans,
                        .c = g.c + rows.begin * g.m,
                        .ldc = g.m,
                        .alpha = g.alpha,
                        .beta = g.beta});
  }
  mirror(g.c, g.m);
}

template void gram(Cpu, const Gram<float>&);
template void gram(Cpu, const Gram<double>&);
template void gram(Cpu, const Gram<BFloat16>&);

}  // namespace tapestry::kernels
