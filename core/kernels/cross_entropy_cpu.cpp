#include "core/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/kernels/gemm.h"
#include "core/kernels/simd_select.h"
#include "core/parallel.h"
#include "core/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/cross_entropy_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/simd-inl.h"

#ifndef TAPESTRY_CROSS_ENTROPY_ROWS
#define TAPESTRY_CROSS_ENTROPY_ROWS
namespace tapestry {

struct RowLoss {
  double loss = 0, nll = 0;
  bool correct = false;
};

template <class T>
struct CrossEntropyRows {
  // One row that counts. `dz` (which may be z) receives grad_scale * dz when not null.
  RowLoss (*row)(const CrossEntropyShape& shape, const T* z, int32_t target, double grad_scale,
                 T* dz);
  void (*add)(const T* x, T* y, int64_t n);  // y += x
};

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

template <class T>
RowLoss cross_entropy_row(const CrossEntropyShape& shape, const T* z, int32_t target,
                          double grad_scale, T* dz) {
  const Tag<T> d;
  const int64_t n = shape.classes;
  auto largest = hn::Set(d, z[0]);
  auto totals = hn::Zero(d);
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    const auto v = io.load(d, z + i);
    largest = hn::Max(largest, io.or_else(d, v, largest));
    totals = hn::Add(totals, v);
  });
  const T max = max_lanes(d, largest);
  const T z_target = z[target];
  const double mean = static_cast<double>(sum_lanes(d, totals)) / static_cast<double>(n);
  RowLoss result;
  // On a tie the lowest index wins.
  result.correct = z_target == max && std::find(z, z + target, max) == z + target;

  const auto shift = hn::Set(d, max);
  auto sums = hn::Zero(d);
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    const auto e = exp_negative(d, hn::Sub(io.load(d, z + i), shift));
    sums = hn::Add(sums, io.or_else(d, e, hn::Zero(d)));
    if (dz != nullptr) io.store(d, e, dz + i);
  });
  const double sum = static_cast<double>(sum_lanes(d, sums));
  const double log_sum_exp = static_cast<double>(max) + std::log(sum);
  const double smoothing = shape.label_smoothing;
  result.nll = log_sum_exp - static_cast<double>(z_target);
  result.loss = (1 - smoothing) * result.nll + smoothing * (log_sum_exp - mean);
  if (dz == nullptr) return result;
  const auto scale = hn::Set(d, static_cast<T>(grad_scale / sum));
  const auto spread = hn::Set(d, static_cast<T>(grad_scale * smoothing / static_cast<double>(n)));
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    io.store(d, hn::MulSub(io.load(d, dz + i), scale, spread), dz + i);
  });
  dz[target] -= static_cast<T>(grad_scale * (1 - smoothing));
  return result;
}

template <class T>
void add_row(const T* x, T* y, int64_t n) {
  const Tag<T> d;
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    io.store(d, hn::Add(io.load(d, y + i), io.load(d, x + i)), y + i);
  });
}

template <class T>
constexpr CrossEntropyRows<T> kFunctions = {cross_entropy_row<T>, add_row<T>};

const PerType<CrossEntropyRows>* cross_entropy_rows() {
  static constexpr PerType<CrossEntropyRows> functions = {kFunctions<float>, kFunctions<double>};
  return &functions;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {

HWY_EXPORT(cross_entropy_rows);

template <class T>
const CrossEntropyRows<T>& rows_functions() {
  return HWY_DYNAMIC_DISPATCH(cross_entropy_rows)()->of<T>();
}

constexpr int64_t kRowGrain = 8;

using RowLosses = std::vector<RowLoss, HostAllocator<RowLoss>>;

CrossEntropySums total(const RowLosses& rows) {
  CrossEntropySums sums;
  for (const RowLoss& row : rows) {
    sums.loss += row.loss;
    sums.nll += row.nll;
    sums.correct += row.correct;
  }
  return sums;
}

// Logits of a chunk: about 16 MB of float32, so that they are still in the outer cache when the
// gradients are computed from them, but enough rows for full-speed products.
int64_t chunk_rows(int64_t classes) {
  return std::clamp<int64_t>((int64_t{1} << 22) / std::max<int64_t>(1, classes), 64, 1024);
}

// The rows that count, without those between: pieces of x and targets side by side.
template <class T>
class Chunk {
 public:
  Chunk(const LinearCrossEntropy<T>& args, int64_t capacity)
      : args_(args), gathered_(capacity * args.in), dx_(capacity * args.in) {}

  // Points at `rows` (ascending row numbers). Rows that follow each other are used where they stand.
  void take(const int64_t* rows, int64_t count) {
    rows_ = rows;
    count_ = count;
    dense_ = rows[count - 1] - rows[0] + 1 == count;
    if (dense_) return;
    parallel_ranges(count, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        std::copy_n(args_.x + rows[i] * args_.in, args_.in, gathered_.data() + i * args_.in);
      }
    });
  }
  const T* x() { return dense_ ? args_.x + rows_[0] * args_.in : gathered_.data(); }
  T* dx() { return dense_ ? args_.dx + rows_[0] * args_.in : dx_.data(); }
  void deliver_dx() {
    if (dense_) return;
    parallel_ranges(count_, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        std::copy_n(dx_.data() + i * args_.in, args_.in, args_.dx + rows_[i] * args_.in);
      }
    });
  }

 private:
  const LinearCrossEntropy<T>& args_;
  Scratch<T> gathered_, dx_;
  const int64_t* rows_ = nullptr;
  int64_t count_ = 0;
  bool dense_ = true;
};

template <class T>
void chunk_logits(const CrossEntropyShape& shape, const LinearCrossEntropy<T>& args, const T* x,
                  int64_t rows, T* logits) {
  Gemm<T> g;
  g.m = rows, g.n = shape.classes, g.k = args.in;
  g.a = x, g.lda = args.in;
  g.b = args.weight, g.ldb = args.in, g.trans_b = true;
  g.c = logits, g.ldc = shape.classes;
  kernels::gemm(Cpu{}, g);
}

// dx = dz W and dW += dz^T x of a chunk.
template <class T>
void chunk_gradients(const CrossEntropyShape& shape, const LinearCrossEntropy<T>& args, const T* dz,
                     const T* x, int64_t rows, T* dx, bool first) {
  Gemm<T> g;
  g.m = rows, g.n = args.in, g.k = shape.classes;
  g.a = dz, g.lda = shape.classes;
  g.b = args.weight, g.ldb = args.in;
  g.c = dx, g.ldc = args.in;
  kernels::gemm(Cpu{}, g);
  Gemm<T> w;
  w.m = shape.classes, w.n = args.in, w.k = rows;
  w.a = dz, w.lda = shape.classes, w.trans_a = true;
  w.b = x, w.ldb = args.in;
  w.c = args.d_weight, w.ldc = args.in, w.beta = first ? 0 : 1;
  kernels::gemm(Cpu{}, w);
}

// db (=|+=) column sums of dz, a range of columns per tile.
template <class T>
void add_bias_gradient(const T* dz, int64_t rows, int64_t classes, bool first, T* d_bias) {
  const auto add = rows_functions<T>().add;
  parallel_ranges(classes, 1024, [&](int64_t begin, int64_t end) {
    if (first) std::fill(d_bias + begin, d_bias + end, T{0});
    for (int64_t r = 0; r < rows; ++r) add(dz + r * classes + begin, d_bias + begin, end - begin);
  });
}

}  // namespace

namespace kernels {

template <class T>
CrossEntropySums cross_entropy(Cpu, const CrossEntropyShape& shape, const T* logits,
                               const int32_t* targets, double grad_scale, T* dlogits) {
  const auto row = rows_functions<T>().row;
  RowLosses losses(static_cast<size_t>(shape.rows));
  parallel_ranges(shape.rows, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* const dz = dlogits != nullptr ? dlogits + r * shape.classes : nullptr;
      if (targets[r] != shape.ignore_index) {
        losses[r] = row(shape, logits + r * shape.classes, targets[r], grad_scale, dz);
      } else if (dz != nullptr) {
        std::fill_n(dz, shape.classes, T{0});
      }
    }
  });
  return total(losses);
}

template <class T>
CrossEntropySums linear_cross_entropy(Cpu, const CrossEntropyShape& shape,
                                      const LinearCrossEntropy<T>& args) {
  const CrossEntropyRows<T>& functions = rows_functions<T>();
  const int64_t classes = shape.classes;
  const bool gradients = args.dx != nullptr;
  std::vector<int64_t, HostAllocator<int64_t>> real;
  real.reserve(static_cast<size_t>(shape.rows));
  for (int64_t r = 0; r < shape.rows; ++r) {
    if (args.targets[r] != shape.ignore_index) {
      real.push_back(r);
    } else if (gradients) {
      std::fill_n(args.dx + r * args.in, args.in, T{0});
    }
  }
  const auto count = static_cast<int64_t>(real.size());
  if (count == 0) {
    if (gradients) std::fill_n(args.d_weight, classes * args.in, T{0});
    if (args.d_bias != nullptr) std::fill_n(args.d_bias, classes, T{0});
    return {};
  }
  const int64_t capacity = std::min(count, chunk_rows(classes));
  Scratch<T> logits(capacity * classes);
  Chunk<T> chunk(args, capacity);
  RowLosses losses(static_cast<size_t>(count));
  for (int64_t begin = 0; begin < count; begin += capacity) {
    const int64_t rows = std::min(capacity, count - begin);
    chunk.take(real.data() + begin, rows);
    chunk_logits(shape, args, chunk.x(), rows, logits.data());
    parallel_ranges(rows, kRowGrain, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        T* const z = logits.data() + i * classes;
        if (args.bias != nullptr) functions.add(args.bias, z, classes);
        losses[begin + i] = functions.row(shape, z, args.targets[real[begin + i]], args.grad_scale,
                                          gradients ? z : nullptr);
      }
    });
    if (!gradients) continue;
    chunk_gradients(shape, args, logits.data(), chunk.x(), rows, chunk.dx(), begin == 0);
    chunk.deliver_dx();
    if (args.d_bias != nullptr) {
      add_bias_gradient(logits.data(), rows, classes, begin == 0, args.d_bias);
    }
  }
  return total(losses);
}

template CrossEntropySums cross_entropy(Cpu, const CrossEntropyShape&, const float*, const int32_t*,
                                        double, float*);
template CrossEntropySums cross_entropy(Cpu, const CrossEntropyShape&, const double*,
                                        const int32_t*, double, double*);
template CrossEntropySums linear_cross_entropy(Cpu, const CrossEntropyShape&,
                                               const LinearCrossEntropy<float>&);
template CrossEntropySums linear_cross_entropy(Cpu, const CrossEntropyShape&,
                                               const LinearCrossEntropy<double>&);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
