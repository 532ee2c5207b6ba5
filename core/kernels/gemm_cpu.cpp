#include "core/kernels/gemm.h"

#include <algorithm>
#include <type_traits>

#include "core/blas_cpu.h"
#include "core/kernels/cpu/rounded_product.h"
#include "core/kernels/cpu/tile_grid.h"
#include "core/kernels/gemm_common.h"
#include "core/parallel.h"
#include "core/profile.h"
#include "core/scratch.h"

namespace tapestry::kernels {
namespace {

// The destination of a tile's result.
template <class T>
struct Target {
  T* c;  // element (0, 0) of the whole product
  int64_t ldc;
  double beta;
};

template <class T>
void scale_tile(Range rows, Range cols, const Target<T>& target) {
  const T beta = static_cast<T>(target.beta);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    T* c = target.c + i * target.ldc;
    for (int64_t j = cols.begin; j < cols.end; ++j) c[j] = beta == 0 ? T{0} : beta * c[j];
  }
}

// One product of the batch, restricted to a tile.
template <class T>
void multiply_tile(const Gemm<T>& g, int64_t item, Range rows, Range cols, Range inner,
                   const Target<T>& target) {
  if (rows.size() <= 0 || cols.size() <= 0) return;
  if (inner.size() <= 0) return scale_tile(rows, cols, target);
  const T* a = g.a + item * g.stride_a;
  const T* b = g.b + item * g.stride_b;
  const BlasProduct<T> product{
      .m = static_cast<int>(rows.size()),
      .n = static_cast<int>(cols.size()),
      .k = static_cast<int>(inner.size()),
      .a = g.trans_a ? a + inner.begin * g.lda + rows.begin : a + rows.begin * g.lda + inner.begin,
      .lda = static_cast<int>(g.lda),
      .trans_a = g.trans_a,
      .b = g.trans_b ? b + cols.begin * g.ldb + inner.begin : b + inner.begin * g.ldb + cols.begin,
      .ldb = static_cast<int>(g.ldb),
      .trans_b = g.trans_b,
      .c = target.c + rows.begin * target.ldc + cols.begin,
      .ldc = static_cast<int>(target.ldc),
      .alpha = g.alpha,
      .beta = target.beta,
  };
  if constexpr (std::is_same_v<T, float>) {
    if (g.precision == Precision::kBfloat16) return rounded_product(product);
  }
  blas_product(product);
}

// Small products: a task takes several of the batch.
template <class T>
void multiply_batch(const Gemm<T>& g) {
  const double flops = 2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) *
                       static_cast<double>(std::max<int64_t>(g.k, 1));
  const int64_t group = std::max<int64_t>(1, static_cast<int64_t>(kLeastTileFlops / flops));
  parallel_ranges(g.batch, group, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      multiply_tile(g, item, {0, g.m}, {0, g.n}, {0, g.k},
                    {g.c + item * g.stride_c, g.ldc, g.beta});
    }
  });
}

// The first piece of k is written to C, each other piece to a partial product.
template <class T>
struct Partials {
  Partials(const Gemm<T>& g, const TileGrid& grid)
      : extra(grid.k.count() - 1), item_size(g.m * g.n), data(extra * item_size * g.batch) {}

  T* operator()(int64_t item, int64_t piece) {
    return data.data() + (item * extra + piece - 1) * item_size;
  }

  int64_t extra;  // pieces beside the first
  int64_t item_size;
  Scratch<T> data;
};

// C += the partial products, in their order.
template <class T>
void add_partials(const Gemm<T>& g, Partials<T>& partials) {
  constexpr int64_t kElementsPerTask = 1 << 15;
  const int64_t rows_per_task = std::max<int64_t>(1, kElementsPerTask / g.n);
  parallel_ranges(g.batch * g.m, rows_per_task, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t item = row / g.m, i = row % g.m;
      T* __restrict c = g.c + item * g.stride_c + i * g.ldc;
      for (int64_t piece = 1; piece <= partials.extra; ++piece) {
        const T* __restrict partial = partials(item, piece) + i * g.n;
        for (int64_t j = 0; j < g.n; ++j) c[j] += partial[j];
      }
    }
  });
}

template <class T>
void multiply_grid(const Gemm<T>& g, const TileGrid& grid) {
  Partials<T> partials(g, grid);
  const int64_t rows = grid.m.count(), cols = grid.n.count(), pieces = grid.k.count();
  parallel_for(g.batch * grid.tiles(), [&](int64_t tile) {
    // Along columns first: neighbouring tiles of a thread share rows, which other kernels left in
    // its cache.
    const int64_t i = tile / cols % rows, j = tile % cols;
    const int64_t piece = tile / (rows * cols) % pieces, item = tile / (rows * cols * pieces);
    const Target<T> target = piece == 0 ? Target<T>{g.c + item * g.stride_c, g.ldc, g.beta}
                                        : Target<T>{partials(item, piece), g.n, 0};
    multiply_tile(g, item, grid.m[i], grid.n[j], grid.k[piece], target);
  });
  if (partials.extra > 0) add_partials(g, partials);
}

}  // namespace

template <class T>
void gemm(Cpu, const Gemm<T>& args) {
  const ProfileScope profile(Part::kProducts);
  check_arguments(args);
  if (args.m == 0 || args.n == 0 || args.batch == 0) return;
  const Gemm<T> g = merged(args);
  if constexpr (std::is_same_v<T, float>) {
    if (runs_on_tiles(g.precision)) return tile_gemm(g);
  }
  if (g.k == 0) return multiply_batch(g);
  const TileGrid grid = tile_grid(g.m, g.n, g.k, g.batch, /*may_cut_k=*/true);
  if (grid.tiles() == 1) return multiply_batch(g);
  multiply_grid(g, grid);
}

template <class T>
void gemm_tile(Cpu, const Gemm<T>& args) {
  check_arguments(args);
  check(args.batch == 1, "gemm_tile", "expected batch 1, got ", args.batch, '.');
  multiply_tile(args, 0, {0, args.m}, {0, args.n}, {0, args.k}, {args.c, args.ldc, args.beta});
}

template void gemm(Cpu, const Gemm<float>&);
template void gemm(Cpu, const Gemm<double>&);
template void gemm_tile(Cpu, const Gemm<float>&);
template void gemm_tile(Cpu, const Gemm<double>&);

}  // namespace tapestry::kernels
