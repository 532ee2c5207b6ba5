#include "core/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/cpu/parallel.h"
#include "core/kernels/cpu/class_pieces.h"
#include "core/kernels/cpu/simd_select.h"
#include "core/kernels/cross_entropy_rows.h"
#include "core/profile.h"
#include "core/scratch.h"
#include "core/shapes_only.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/cross_entropy_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"
#include "core/kernels/cpu/unary_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

// Sums in Wider<T> have at most this many terms; longer ones continue in double.
constexpr int64_t kShortSum = 1024;

template <class T, class Load>
PieceStats<T> exponentials_of(Load load, int64_t n, T* e) {
  const Tag<T> d;
  const T infinity = std::numeric_limits<T>::infinity();
  PieceStats<T> stats;
  auto largest = hn::Set(d, -infinity);
  for (int64_t begin = 0; begin < n; begin += kShortSum) {
    LineSums<T> total;
    each_line<T>(std::min(kShortSum, n - begin), [&](auto io, int64_t i, auto part) HWY_ATTR {
      const auto v = load(io, begin + i);
      largest = hn::Max(largest, io.or_else(d, v, largest));
      total[part] = hn::Add(total[part], v);  // lanes that do not exist hold 0
    });
    stats.total += static_cast<double>(total.total());
  }
  stats.max = max_lanes(d, largest);
  // If all are -inf the sum must be 0, not that of e^(inf - inf).
  const auto shift = hn::Set(d, stats.max == -infinity ? T{0} : stats.max);
  for (int64_t begin = 0; begin < n; begin += kShortSum) {
    LineSums<T> sum;
    each_line<T>(std::min(kShortSum, n - begin), [&](auto io, int64_t i, auto part) HWY_ATTR {
      const auto power = exp_negative(d, hn::Sub(load(io, begin + i), shift));
      sum[part] = hn::Add(sum[part], io.or_else(d, power, hn::Zero(d)));
      if (e != nullptr) io.store(d, power, e + begin + i);
    });
    stats.sum += static_cast<double>(sum.total());
  }
  return stats;
}

template <class T>
PieceStats<Wider<T>> exponentials(const T* z, const Wider<T>* bias, int64_t n, Wider<T>* e) {
  const Tag<T> d;
  if (bias == nullptr) {
    return exponentials_of<Wider<T>>([&](auto io, int64_t i) HWY_ATTR { return io.load(d, z + i); },
                                     n, e);
  }
  return exponentials_of<Wider<T>>(
      [&](auto io, int64_t i) HWY_ATTR { return hn::Add(io.load(d, z + i), io.load(d, bias + i)); },
      n, e);
}

template <class T>
void cap(Wider<T> softcap, const Wider<T>* bias, int64_t n, T* z, Wider<T>* slopes) {
  const Tag<T> d;
  const auto caps = hn::Set(d, softcap), shares = hn::Set(d, 1 / softcap);
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    auto v = io.load(d, z + i);
    if (bias != nullptr) v = hn::Add(v, io.load(d, bias + i));
    const auto t = simd::Tanh::f(d, hn::Mul(v, shares));
    io.store(d, hn::Mul(caps, t), z + i);
    if (slopes != nullptr) io.store(d, simd::Tanh::df(d, t), slopes + i);
  });
}

template <class T>
void gradient(const Wider<T>* e, Wider<T> factor, Wider<T> spread, int64_t n, T* dz) {
  const Tag<T> d;
  const auto factors = hn::Set(d, factor), spreads = hn::Set(d, spread);
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    io.store(d, hn::MulSub(io.load(d, e + i), factors, spreads), dz + i);
  });
}

template <class T>
void multiply(const Wider<T>* x, int64_t n, T* y) {
  const Tag<T> d;
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    io.store(d, hn::Mul(io.load(d, y + i), io.load(d, x + i)), y + i);
  });
}

template <class T>
void add(const Wider<T>* x, int64_t n, Wider<T>* y) {
  const Tag<T> d;
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    io.store(d, hn::Add(io.load(d, y + i), io.load(d, x + i)), y + i);
  });
}

template <class T>
void sum(const Wider<T>* parts, int64_t stride, int64_t count, int64_t n, T* y) {
  const Tag<T> d;
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    auto total = io.load(d, parts + i);
    for (int64_t p = 1; p < count; ++p) total = hn::Add(total, io.load(d, parts + p * stride + i));
    io.store(d, total, y + i);
  });
}

template <class T>
constexpr CrossEntropyPasses<T> kPasses = {exponentials<T>, cap<T>, gradient<T>,
                                           multiply<T>,     add<T>, sum<T>};

const PerType<CrossEntropyPasses>* passes() {
  static constexpr PerType<CrossEntropyPasses> functions = {kPasses<float>, kPasses<double>,
                                                            kPasses<BFloat16>};
  return &functions;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {

HWY_EXPORT(passes);

constexpr int64_t kElementsPerTask = 1 << 15;

// `e`: memory for the exponentials, which may be that of dz; null if dz is.
template <class T, class W = Wider<T>>
RowLoss cross_entropy_row(const CrossEntropyShape& shape, const T* z, int32_t target, double weight,
                          double grad_scale, W* e, T* dz) {
  const CrossEntropyPasses<T>& passes = cross_entropy_passes<T>();
  const auto target_logit = static_cast<W>(z[target]);
  const PieceStats<W> stats = passes.exponentials(z, nullptr, shape.classes, e);
  // For ties the logits before the target are read again, so dz may not be z.
  const auto is_equal = [&](T logit) { return static_cast<W>(logit) == target_logit; };
  const bool leads = target_logit == stats.max && std::none_of(z, z + target, is_equal);
  const RowLoss result =
      row_loss(shape, target_logit, stats.max, stats.sum, stats.total, leads, weight);
  if (dz == nullptr) return result;
  grad_scale *= weight;
  const auto factor = static_cast<W>(grad_scale / stats.sum);
  const double uniform = shape.label_smoothing / static_cast<double>(shape.classes);
  const auto spread = static_cast<W>(grad_scale * uniform);
  // The target's two parts are rounded to T only as their sum.
  W of_target;
  cross_entropy_passes<W>().gradient(e + target, factor, spread, 1, &of_target);
  of_target -= static_cast<W>(grad_scale * (1 - shape.label_smoothing));
  passes.gradient(e, factor, spread, shape.classes, dz);
  dz[target] = static_cast<T>(of_target);
  return result;
}

}  // namespace

template <>
const CrossEntropyPasses<float>& cross_entropy_passes() {
  return HWY_DYNAMIC_DISPATCH(passes)()->float32;
}
template <>
const CrossEntropyPasses<double>& cross_entropy_passes() {
  return HWY_DYNAMIC_DISPATCH(passes)()->float64;
}
template <>
const CrossEntropyPasses<BFloat16>& cross_entropy_passes() {
  return HWY_DYNAMIC_DISPATCH(passes)()->bfloat16;
}

CrossEntropySums total_loss(const RowLoss* rows, int64_t count) {
  if (ShapesOnly::is_on()) return {};  // nothing was computed
  CrossEntropySums sums;
  for (int64_t r = 0; r < count; ++r) {
    sums.loss += rows[r].loss;
    sums.nll += rows[r].nll;
    sums.correct += rows[r].correct;
  }
  return sums;
}

namespace kernels {

template <class T>
double log_sum_exp(Cpu, const T* logits, int64_t classes) {
  const CrossEntropyPasses<T>& passes = cross_entropy_passes<T>();
  const Cut pieces = class_pieces(classes);
  Scratch<PieceStats<Wider<T>>> stats(pieces.count());
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t p = 0; p < pieces.count(); ++p) {
    const Range piece = pieces[p];
    stats[p] = passes.exponentials(logits + piece.begin, nullptr, piece.size(), nullptr);
    max = std::max<double>(max, stats[p].max);
  }
  for (int64_t p = 0; p < pieces.count(); ++p) {
    // A piece of -inf alone adds nothing, and its difference could be NaN.
    if (stats[p].sum != 0) sum += stats[p].sum * std::exp(stats[p].max - max);
  }
  return max + std::log(sum);
}

template <class T>
void cross_entropy(Cpu, const CrossEntropyShape& shape, const T* logits, const RowTargets& targets,
                   double grad_scale, T* dlogits, CrossEntropySums* sums) {
  const ProfileScope profile(Part::kClassifier);
  Scratch<RowLoss> losses(shape.rows);
  const int64_t classes = shape.classes;
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, classes));
  // Exponentials are wider than bfloat16 gradients.
  constexpr bool kInPlace = std::is_same_v<T, Wider<T>>;
  parallel_ranges(shape.rows, grain, [&](int64_t begin, int64_t end) {
    Scratch<Wider<T>> row(kInPlace || dlogits == nullptr ? 0 : classes);
    for (int64_t r = begin; r < end; ++r) {
      T* const dz = dlogits != nullptr ? dlogits + r * classes : nullptr;
      if (const int32_t target = targets.targets[r]; target != shape.ignore_index) {
        Wider<T>* e = dz != nullptr ? row.data() : nullptr;
        if constexpr (kInPlace) e = dz;
        losses[r] = cross_entropy_row(shape, logits + r * classes, target, targets.weight(r),
                                      grad_scale, e, dz);
      } else {
        losses[r] = {};
        if (dz != nullptr) std::fill_n(dz, classes, T{0});
      }
    }
  });
  *sums = total_loss(losses.data(), shape.rows);
}

template double log_sum_exp(Cpu, const float*, int64_t);
template double log_sum_exp(Cpu, const double*, int64_t);
template double log_sum_exp(Cpu, const BFloat16*, int64_t);
template void cross_entropy(Cpu, const CrossEntropyShape&, const float*, const RowTargets&, double,
                            float*, CrossEntropySums*);
template void cross_entropy(Cpu, const CrossEntropyShape&, const double*, const RowTargets&, double,
                            double*, CrossEntropySums*);
template void cross_entropy(Cpu, const CrossEntropyShape&, const BFloat16*, const RowTargets&,
                            double, BFloat16*, CrossEntropySums*);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
