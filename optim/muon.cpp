#include "optim/muon.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <span>
#include <type_traits>
#include <utility>

#include "core/cpu/parallel.h"
#include "core/dispatch_device.h"
#include "core/kernels/elementwise/convert.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/elementwise/unary.h"
#include "core/kernels/matmul/gemm.h"
#include "core/kernels/matmul/gram.h"
#include "core/kernels/optimizer_functors.h"
#include "core/kernels/reduce.h"
#include "core/kernels/sum_squares.h"
#include "core/profile.h"
#include "core/shapes_only.h"

namespace tapestry {
namespace {

struct Quintic {
  double a, b, c;
};

// Of step t = 0, 1, ...
Quintic quintic_of(NewtonSchulz polynomials, int64_t t) {
  if (polynomials == NewtonSchulz::kQuintic) return {3.4445, -4.7750, 2.0315};
  // Optimal one after the other for singular values from 1e-3 up, with a cushion for roundings
  // (Amsel et al. 2025, "The Polar Express"; the numbers that modded-nanogpt trains with). The last
  // is the one that further steps come to, whose fixed point is 1.
  static constexpr std::array<Quintic, 6> kPolarExpress = {
      {{8.156554524902461, -22.48329292557795, 15.878769915207462},
       {4.042929935166739, -2.808917465908714, 0.5000178451051316},
       {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
       {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
       {2.3465413258596377, -1.7097828382687081, 0.42323551169305323},
       {1.875, -1.25, 0.375}}};
  return kPolarExpress[static_cast<size_t>(std::min(t, std::ssize(kPolarExpress) - 1))];
}

// What the norm of a matrix is multiplied by before it is divided by it: singular values above 1
// would grow without bounds.
double safety_of(NewtonSchulz polynomials) {
  return polynomials == NewtonSchulz::kPolarExpress ? 1.02 : 1;
}

// A smaller norm counts as this (torch.optim.Muon's eps).
constexpr double kLeastNorm = 1e-7;

// Elements that are worked on at a time: of matrices in one launch, their directions.
constexpr int64_t kMostElements = int64_t{1} << 22;

// A matrix whose products are smaller is left to one thread, and others to the others.
constexpr double kSharedFlops = 64e6;

bool is_worth_all_threads(int64_t rows, int64_t cols) {
  const double n = static_cast<double>(std::min(rows, cols));
  return 2 * n * n * static_cast<double>(std::max(rows, cols)) >= kSharedFlops;
}

int64_t smaller_of(const Tensor& matrix) { return std::min(matrix.shape()[0], matrix.shape()[1]); }

// Elements of a direction in a row of them: each begins as aligned as kernels like it.
int64_t room_of(const Tensor& matrix) {
  constexpr int64_t kAligned = 16;
  return (matrix.numel() + kAligned - 1) / kAligned * kAligned;
}

// What one thread works in: memory for the largest of the matrices that it is used for. T is the
// type of products, W the wider one, which may be the same.
template <class T, class W>
struct Workspace {
  Workspace(std::span<const MuonMatrix> matrices, const std::vector<size_t>& used,
            bool scales_rows) {
    int64_t elements = 0, grams = 0, rows = 0;
    for (const size_t i : used) {
      const Tensor& matrix = matrices[i].param;
      elements = std::max(elements, matrix.numel());
      grams = std::max(grams, smaller_of(matrix) * smaller_of(matrix));
      rows = std::max(rows, matrix.shape()[0]);
    }
    const Device device = matrices.front().param.device();
    const auto take = [&](int64_t count, DType type) {
      return Tensor::empty({count}, type, device);
    };
    x = take(elements, dtype_of<T>), y = take(elements, dtype_of<T>);
    gram = take(grams, dtype_of<T>), polynomial = take(grams, dtype_of<T>);
    numbers = take(2, DType::kFloat64), number = take(1, dtype_of<W>);
    if (scales_rows || !std::is_same_v<T, W>) wide = take(elements, dtype_of<W>);
    if (scales_rows) means = take(rows, dtype_of<W>), factors = take(rows, dtype_of<W>);
  }

  Tensor x, y, gram, polynomial, wide;
  Tensor numbers, number;
  Tensor means, factors;
};

// *x = max(*x, least)
template <class D>
void raise_to(D device, double least, double* x) {
  if constexpr (std::is_same_v<D, Cpu>) {
    *x = std::max(*x, least);
  } else {
    kernels::affine(device, 1, x, -least, x, 1);
    kernels::unary(device, Activation::kRelu, x, x, 1);
    kernels::affine(device, 1, x, least, x, 1);
  }
}

template <class W, class D>
void take_norm(D device, const W* x, int64_t n, double* norm) {
  const ElementSpan<W> all{x, n};
  kernels::sum_squares<W>(device, std::span(&all, 1), norm);
  kernels::unary(device, Unary::kSqrt, norm, norm, 1);
}

template <class T, class D>
void copy(D device, const T* from, T* to, int64_t n) {
  kernels::affine(device, 1, from, 0, to, n);
}

// The matrix divided by its norm, in place, and then as T in space.x.
template <class T, class W, class D>
void normalize(D device, W* matrix, int64_t n, const MuonOptions& options,
               const Workspace<T, W>& space) {
  double* const norm = space.numbers.template data<double>();
  W* const divisor = space.number.template data<W>();
  take_norm(device, matrix, n, norm);
  if (const double safety = safety_of(options.ns_coefficients); safety != 1) {
    kernels::affine(device, safety, norm, 0, norm, 1);
  }
  raise_to(device, kLeastNorm, norm);
  kernels::convert(device, norm, divisor, 1);
  const BroadcastPlan plan = broadcast_plan("muon", {n}, {1});
  if constexpr (std::is_same_v<T, W>) {
    kernels::binary(device, Binary::kDiv, plan, matrix, divisor, space.x.template data<T>());
  } else {
    W* const scaled = space.wide.template data<W>();
    kernels::binary(device, Binary::kDiv, plan, matrix, divisor, scaled);
    kernels::convert(device, scaled, space.x.template data<T>(), n);
  }
}

// a X + (b G + c G^2) X, G = X X^T; of a tall X the same from the other side, G = X^T X. From
// space.x to space.x.
template <class T, class W, class D>
void newton_schulz(D device, int64_t rows, int64_t cols, const MuonOptions& options,
                   Workspace<T, W>& space) {
  const bool tall = rows > cols;
  const int64_t n = std::min(rows, cols), k = std::max(rows, cols);
  T* const gram = space.gram.template data<T>();
  T* const polynomial = space.polynomial.template data<T>();
  for (int64_t step = 0; step < options.ns_steps; ++step) {
    const auto [a, b, c] = quintic_of(options.ns_coefficients, step);
    const T* const x = space.x.template data<T>();
    T* const y = space.y.template data<T>();
    kernels::gram(device, Gram<T>{.m = n, .k = k, .a = x, .trans = tall, .c = gram});
    copy(device, gram, polynomial, n * n);
    kernels::gram(device,
                  Gram<T>{.m = n, .k = n, .a = gram, .c = polynomial, .alpha = c, .beta = b});
    copy(device, x, y, rows * cols);
    kernels::gemm(device, Gemm<T>{.m = rows,
                                  .n = cols,
                                  .k = n,
                                  .a = tall ? x : polynomial,
                                  .lda = n,
                                  .b = tall ? polynomial : x,
                                  .ldb = cols,
                                  .c = y,
                                  .ldc = cols,
                                  .beta = a});
    std::swap(space.x, space.y);
  }
}

// Each row divided by its root mean square over time; the norm of the whole stays.
template <class T, class W, class D>
void scale_rows(D device, W* matrix, const MuonMatrix& of, const MuonOptions& options,
                const GradientTransform& when, const Workspace<T, W>& space) {
  const int64_t rows = of.param.shape()[0], cols = of.param.shape()[1], n = rows * cols;
  double* const norms = space.numbers.template data<double>();
  W* const scaled = space.wide.template data<W>();
  W* const means = space.means.template data<W>();
  W* const factors = space.factors.template data<W>();
  W* const ratio = space.number.template data<W>();
  kernels::binary(device, Binary::kMul, broadcast_plan("muon", {n}, {n}), matrix, matrix, scaled);
  kernels::sum_axis(device, scaled, means, rows, cols, 1, 1 / static_cast<double>(cols),
                    Write::kSet);
  const ParameterUpdate<W> update{.step = MuonRowsStep{options.normuon_beta2},
                                  .param = factors,
                                  .grad = means,
                                  .state = {of.row_squares.data<W>()},
                                  .n = rows};
  kernels::optimizer_step<W>(device, std::span(&update, 1), when);
  take_norm(device, matrix, n, norms);
  kernels::binary(device, Binary::kMul, broadcast_plan("muon", {rows, cols}, {rows, 1}), matrix,
                  factors, scaled);
  take_norm(device, scaled, n, norms + 1);
  constexpr double kNotZero = 1e-30;  // a matrix of zeros stays one
  raise_to(device, kNotZero, norms + 1);
  kernels::binary(device, Binary::kDiv, broadcast_plan("muon", {1}, {1}), norms, norms + 1, norms);
  kernels::convert(device, norms, ratio, 1);
  kernels::binary(device, Binary::kMul, broadcast_plan("muon", {n}, {1}), scaled, ratio, matrix);
}

template <class T, class W, class D>
void orthogonalize(D device, W* matrix, const MuonMatrix& of, const MuonOptions& options,
                   const GradientTransform& when, Workspace<T, W>& space) {
  const int64_t rows = of.param.shape()[0], cols = of.param.shape()[1];
  normalize(device, matrix, rows * cols, options, space);
  newton_schulz(device, rows, cols, options, space);
  const T* const x = space.x.template data<T>();
  if constexpr (std::is_same_v<T, W>) {
    copy(device, x, matrix, rows * cols);
  } else {
    kernels::convert(device, x, matrix, rows * cols);
  }
  if (options.scales_rows()) scale_rows(device, matrix, of, options, when, space);
}

// The directions of some matrices, one after the other in `directions`. On a CPU each thread takes
// the next matrix; those that are worth all threads come one by one.
template <class T, class W, class D>
void orthogonalize_all(D device, std::span<const MuonMatrix> matrices, W* directions,
                       const MuonOptions& options, const GradientTransform& when) {
  std::vector<W*> places;
  std::vector<size_t> small, large;
  for (size_t i = 0; i < matrices.size(); ++i) {
    const Tensor& param = matrices[i].param;
    places.push_back(directions);
    directions += room_of(param);
    const bool shared =
        !std::is_same_v<D, Cpu> || is_worth_all_threads(param.shape()[0], param.shape()[1]);
    (shared ? large : small).push_back(i);
  }
  if (!large.empty()) {
    Workspace<T, W> space(matrices, large, options.scales_rows());
    for (const size_t i : large) {
      orthogonalize<T, W>(device, places[i], matrices[i], options, when, space);
    }
  }
  const auto workers = std::min<size_t>(small.size(), static_cast<size_t>(num_threads()));
  std::vector<Workspace<T, W>> spaces;
  for (size_t w = 0; w < workers; ++w) spaces.emplace_back(matrices, small, options.scales_rows());
  std::atomic<size_t> next = 0;
  parallel_for(static_cast<int64_t>(workers), [&](int64_t worker) {
    for (size_t s; (s = next++) < small.size();) {
      const size_t i = small[s];
      orthogonalize<T, W>(device, places[i], matrices[i], options, when,
                          spaces[static_cast<size_t>(worker)]);
    }
  });
}

// One launch of matrices.
template <class T, class D>
void step_some(D device, std::span<const MuonMatrix> matrices, double momentum,
               const MuonOptions& options, const GradientTransform& transform) {
  using W = Wider<T>;
  int64_t elements = 0;
  for (const MuonMatrix& matrix : matrices) elements += room_of(matrix.param);
  const Tensor directions = Tensor::empty({elements}, dtype_of<W>, matrices.front().param.device());
  std::vector<Tensor> gradients;  // as W
  std::vector<ParameterUpdate<W>> momenta;
  std::vector<ParameterUpdate<T>> updates;
  W* direction = directions.data<W>();
  for (const MuonMatrix& m : matrices) {
    const int64_t rows = m.param.shape()[0], cols = m.param.shape()[1], n = rows * cols;
    gradients.push_back(m.gradient.to(dtype_of<W>));
    momenta.push_back({.step = MuonMomentumStep{momentum, options.nesterov},
                       .param = direction,
                       .grad = gradients.back().template data<W>(),
                       .state = {m.momentum.template data<W>()},
                       .n = n});
    ParameterUpdate<T>& update = updates.emplace_back();
    update.step =
        MuonStep{.learning_rate = m.learning_rate * rate_factor(options.adjust_lr_fn, rows, cols),
                 .shrink = 1 - m.learning_rate * m.weight_decay,
                 .cautious = options.cautious_weight_decay};
    update.param = m.param.template data<T>();
    if constexpr (std::is_same_v<T, W>) {
      update.grad = direction;
    } else {
      update.wide_grad = direction;
    }
    update.n = n;
    if (m.master.defined()) update.master = m.master.template data<W>();
    direction += room_of(m.param);
  }
  // What comes behind the momentum takes the gradients' norm only to know whether it is finite.
  const GradientTransform when{.squared_norm = transform.squared_norm};
  kernels::optimizer_step<W>(device, momenta, transform);
  orthogonalize_all<T, W>(device, matrices, directions.data<W>(), options, when);
  kernels::optimizer_step<T>(device, updates, when);
}

}  // namespace

void MuonOptions::validate(const OptionReport& report) const {
  report.expect(normuon_beta2 >= 0 && normuon_beta2 < 1, "normuon_beta2", "must be in [0, 1), got ",
                normuon_beta2, '.');
  report.expect(ns_steps >= 1 && ns_steps <= kMostSteps, "ns_steps", "must be from 1 to ",
                kMostSteps, ", got ", ns_steps, '.');
}

double rate_factor(RateByShape rule, int64_t rows, int64_t cols) {
  const auto r = static_cast<double>(rows), c = static_cast<double>(cols);
  switch (rule) {
    case RateByShape::kOriginal:
      return std::sqrt(std::max(1.0, r / c));
    case RateByShape::kMatchRmsAdamW:
      return 0.2 * std::sqrt(std::max(r, c));
    case RateByShape::kSpectralUnclamped:
      break;
  }
  return std::sqrt(r / c);
}

double orthogonal_flops(int64_t rows, int64_t cols, const MuonOptions& options) {
  const auto n = static_cast<double>(std::min(rows, cols));
  const auto k = static_cast<double>(std::max(rows, cols));
  return static_cast<double>(options.ns_steps) * 2 * n * n * (k + n + k);
}

void muon_step(const std::vector<MuonMatrix>& matrices, double momentum, const MuonOptions& options,
               const GradientTransform& transform) {
  const ProfileScope profile(Part::kOptimizer);
  const std::span<const MuonMatrix> all(matrices);
  for (size_t first = 0, last = 0; first < all.size(); first = last) {
    for (int64_t elements = 0; last < all.size(); ++last) {
      elements += all[last].param.numel();
      if (last > first && elements > kMostElements) break;
    }
    dispatch(all[first].param, [&](auto device, auto type) {
      using T = decltype(type);
      if constexpr (std::is_same_v<decltype(device), Cpu>) {
        if (!gradient_scale(transform).finite && !ShapesOnly::is_on()) return;
      }
      step_some<T>(device, all.subspan(first, last - first), momentum, options, transform);
    });
  }
}

Tensor orthogonalized(const Tensor& matrix, const MuonOptions& options) {
  const Tensor result = matrix.to(wider(matrix.dtype())).clone();
  MuonOptions plain = options;
  plain.normuon_beta2 = 0;  // it has a state
  dispatch(matrix, [&](auto device, auto type) {
    using T = decltype(type);
    const MuonMatrix one{.param = matrix};
    orthogonalize_all<T, Wider<T>>(device, std::span(&one, 1), result.template data<Wider<T>>(),
                                   plain, {});
  });
  return result;
}

}  // namespace tapestry
