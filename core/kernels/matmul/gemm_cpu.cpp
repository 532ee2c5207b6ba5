#include "core/kernels/matmul/gemm.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "core/cpu/parallel.h"
#include "core/kernels/cpu/linear_rows.h"
#include "core/kernels/cpu/ordered_product.h"
#include "core/kernels/cpu/rounded_product.h"
#include "core/kernels/cpu/tile_grid.h"
#include "core/kernels/cpu/tile_product.h"
#include "core/kernels/matmul/gemm_common.h"
#include "core/profile.h"
#include "core/scratch.h"

namespace tapestry::kernels {
namespace {

// Destination of a tile's sums: element (0, 0) of the whole product.
template <class W>
struct Target {
  W* c;
  int64_t ldc;
  double beta;
};

template <class W>
void scale_tile(Range rows, Range cols, const Target<W>& target) {
  const W beta = static_cast<W>(target.beta);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    W* c = target.c + i * target.ldc;
    for (int64_t j = cols.begin; j < cols.end; ++j) c[j] = beta == 0 ? W{0} : beta * c[j];
  }
}

template <class T>
Factor left_of(const Gemm<T>& g, int64_t item) {
  return {g.a + item * g.stride_a, g.lda, !g.trans_a};
}
template <class T>
Factor right_of(const Gemm<T>& g, int64_t item) {
  return {g.b + item * g.stride_b, g.ldb, g.trans_b};
}
// One product of the batch, restricted to a tile. Of bfloat16, without alpha.
template <class T>
void multiply_tile(const Gemm<T>& g, int64_t item, Range rows, Range cols, Range inner,
                   const Target<Wider<T>>& target) {
  if (rows.size() <= 0 || cols.size() <= 0) return;
  if (inner.size() <= 0) return scale_tile(rows, cols, target);
  Wider<T>* const c = target.c + rows.begin * target.ldc + cols.begin;
  if constexpr (std::is_same_v<T, BFloat16>) {
    rounded_product({.m = rows.size(),
                     .n = cols.size(),
                     .k = inner.size(),
                     .a = left_of(g, item).from(rows.begin, inner.begin),
                     .b = right_of(g, item).from(cols.begin, inner.begin),
                     .c = c,
                     .ldc = target.ldc,
                     .add = target.beta != 0});
  } else {
    const T* a = g.a + item * g.stride_a;
    const T* b = g.b + item * g.stride_b;
    a += g.trans_a ? inner.begin * g.lda + rows.begin : rows.begin * g.lda + inner.begin;
    b += g.trans_b ? cols.begin * g.ldb + inner.begin : inner.begin * g.ldb + cols.begin;
    product(BlasProduct<T>{.m = static_cast<int>(rows.size()),
                           .n = static_cast<int>(cols.size()),
                           .k = static_cast<int>(inner.size()),
                           .a = a,
                           .lda = static_cast<int>(g.lda),
                           .trans_a = g.trans_a,
                           .b = b,
                           .ldb = static_cast<int>(g.ldb),
                           .trans_b = g.trans_b,
                           .c = c,
                           .ldc = static_cast<int>(target.ldc),
                           .alpha = g.alpha,
                           .beta = target.beta});
  }
}

// c = alpha sums + beta c, a tile of a product whose sums lie elsewhere.
template <class T>
void deliver(const Gemm<T>& g, int64_t item, Range rows, Range cols, const float* sums,
             int64_t stride) {
  const auto deliver_row = linear_rows_functions<T>().deliver;
  T* const c = g.c + item * g.stride_c + cols.begin;
  for (int64_t i = rows.begin; i < rows.end; ++i, sums += stride) {
    deliver_row(sums, static_cast<float>(g.alpha), static_cast<float>(g.beta), c + i * g.ldc,
                cols.size());
  }
}

// A tile of the product with all of k.
template <class T>
void multiply_whole_tile(const Gemm<T>& g, int64_t item, Range rows, Range cols) {
  if constexpr (std::is_same_v<T, Wider<T>>) {
    multiply_tile(g, item, rows, cols, {0, g.k}, {g.c + item * g.stride_c, g.ldc, g.beta});
  } else {
    Gemm<T> part = g;
    part.a += g.trans_a ? rows.begin : rows.begin * g.lda;
    part.b += g.trans_b ? cols.begin * g.ldb : cols.begin;
    Scratch<Wider<T>> sums(rows.size() * cols.size());
    multiply_tile(part, item, {0, rows.size()}, {0, cols.size()}, {0, g.k},
                  {sums.data(), cols.size(), 0});
    deliver(g, item, rows, cols, sums.data(), cols.size());
  }
}

// Small products: a task takes several of the batch.
template <class T>
void multiply_batch(const Gemm<T>& g) {
  const double flops = 2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) *
                       static_cast<double>(std::max<int64_t>(g.k, 1));
  const int64_t group = std::max<int64_t>(1, static_cast<int64_t>(kLeastTileFlops / flops));
  parallel_ranges(g.batch, group, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      multiply_whole_tile(g, item, {0, g.m}, {0, g.n});
    }
  });
}

// The partial products of the pieces of k. The first is C itself, but of bfloat16, which keeps all
// its sums here.
template <class T>
struct Partials {
  using W = Wider<T>;
  static constexpr int64_t kFirst = std::is_same_v<T, W> ? 1 : 0;

  Partials(const Gemm<T>& g, const TileGrid& grid)
      : count(grid.k.count()), item_size(g.m * g.n), data((count - kFirst) * item_size * g.batch) {}

  W* operator()(int64_t item, int64_t piece) {
    return data.data() + (item * (count - kFirst) + piece - kFirst) * item_size;
  }

  int64_t count;  // pieces
  int64_t item_size;
  Scratch<W> data;
};

// Adds the partial products in their order, and delivers the sum.
template <class T>
void add_partials(const Gemm<T>& g, Partials<T>& partials) {
  using W = Wider<T>;
  constexpr int64_t kElementsPerTask = 1 << 15;
  const int64_t rows_per_task = std::max<int64_t>(1, kElementsPerTask / g.n);
  parallel_ranges(g.batch * g.m, rows_per_task, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t item = row / g.m, i = row % g.m;
      W* __restrict sum;
      if constexpr (std::is_same_v<T, W>) {
        sum = g.c + item * g.stride_c + i * g.ldc;
      } else {
        sum = partials(item, 0) + i * g.n;
      }
      for (int64_t piece = 1; piece < partials.count; ++piece) {
        const W* __restrict partial = partials(item, piece) + i * g.n;
        for (int64_t j = 0; j < g.n; ++j) sum[j] += partial[j];
      }
      if constexpr (!std::is_same_v<T, W>) deliver(g, item, {i, i + 1}, {0, g.n}, sum, g.n);
    }
  });
}

template <class T>
void multiply_grid(const Gemm<T>& g, const TileGrid& grid) {
  const int64_t rows = grid.m.count(), cols = grid.n.count(), pieces = grid.k.count();
  std::optional<Partials<T>> partials;
  if (pieces > 1) partials.emplace(g, grid);
  parallel_for(g.batch * grid.tiles(), [&](int64_t tile) {
    // Along columns first: neighbouring tiles of a thread share rows, which other kernels left in
    // its cache.
    const int64_t i = tile / cols % rows, j = tile % cols;
    const int64_t piece = tile / (rows * cols) % pieces, item = tile / (rows * cols * pieces);
    if (pieces == 1) return multiply_whole_tile(g, item, grid.m[i], grid.n[j]);
    Target<Wider<T>> target{nullptr, g.n, 0};
    if constexpr (std::is_same_v<T, Wider<T>>) {
      if (piece == 0) target = {g.c + item * g.stride_c, g.ldc, g.beta};
    }
    if (target.c == nullptr) target.c = (*partials)(item, piece);
    multiply_tile(g, item, grid.m[i], grid.n[j], grid.k[piece], target);
  });
  if (partials) add_partials(g, *partials);
}

// A product of the batch that is worth all threads by itself.
constexpr double kSharedFlops = 32e6;

template <class T>
void gemm_on_tiles(const Gemm<T>& g) {
  const auto multiply = [&](int64_t item) {
    TileOperand a(TileOperand::Side::kLeft, g.m, g.k, kTileForm<T>);
    TileOperand b(TileOperand::Side::kRight, g.n, g.k, kTileForm<T>);
    pack_operands({{a, left_of(g, item)}, {b, right_of(g, item)}});
    multiply_tiles({{.a = a.view(),
                     .b = b.view(),
                     .take = [&](Range rows, Range cols, const float* sums, int64_t stride) {
                       deliver(g, item, rows, cols, sums, stride);
                     }}});
  };
  const double flops =
      2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
  if (g.batch > 1 && flops < kSharedFlops) return parallel_for(g.batch, multiply);
  for (int64_t item = 0; item < g.batch; ++item) multiply(item);
}

}  // namespace

template <class T>
void gemm(Cpu, const Gemm<T>& args) {
  const ProfileScope profile(Part::kProducts);
  check_arguments(args);
  if (args.m == 0 || args.n == 0 || args.batch == 0) return;
  const Gemm<T> g = merged(args);
  if constexpr (!std::is_same_v<T, double>) {
    if (runs_on_tiles<T>(g.precision)) return gemm_on_tiles(g);
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
  multiply_whole_tile(args, 0, {0, args.m}, {0, args.n});
}

template void gemm(Cpu, const Gemm<float>&);
template void gemm(Cpu, const Gemm<double>&);
template void gemm(Cpu, const Gemm<BFloat16>&);
template void gemm_tile(Cpu, const Gemm<float>&);
template void gemm_tile(Cpu, const Gemm<double>&);
template void gemm_tile(Cpu, const Gemm<BFloat16>&);

}  // namespace tapestry::kernels
