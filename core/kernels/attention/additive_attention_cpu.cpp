#include "core/kernels/attention/additive_attention.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "core/cpu/parallel.h"
#include "core/kernels/cpu/simd_select.h"
#include "core/kernels/reduce.h"
#include "core/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/attention/additive_attention_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"

#ifndef TAPESTRY_ADDITIVE_ROWS
#define TAPESTRY_ADDITIVE_ROWS
namespace tapestry {

// Vectors of n elements.
template <class T>
struct AdditiveFunctions {
  using W = Wider<T>;
  /// v . tanh(q + k)
  W (*score)(const T* q, const T* k, const T* v, int64_t n);
  /// g = ds * v * (1 - t^2) with t = tanh(q + k): dq += g, dk (=|+=) g, dv += ds * t. A null dk is
  /// not computed.
  void (*score_backward)(const T* q, const T* k, const T* v, W ds, W* dq, W* dk, Write dk_write,
                         W* dv, int64_t n);
  W (*dot)(const T* a, const T* b, int64_t n);
  /// y (=|+=) alpha * x
  void (*add)(W alpha, const T* x, W* y, int64_t n, Write write);
  /// y (=|+=) x
  void (*deliver)(const W* x, T* y, int64_t n, Write write);
};

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

// tanh(x) = (1 - e) / (1 + e) with e = exp(-2 |x|), and the sign of x. Its absolute error is that
// of rounding, which is enough in a sum of such terms.
template <class D, class V>
HWY_INLINE V absolute_tanh(D d, V x) {
  const V one = hn::Set(d, 1);
  const V e = exp_negative(d, hn::Mul(hn::Set(d, -2), hn::Abs(x)));
  return hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), x);
}

template <class T>
Wider<T> score(const T* q, const T* k, const T* v, int64_t n) {
  const Tag<T> d;
  LineSums<T> sums;
  each_line<T>(n, [&](auto io, int64_t i, auto part) HWY_ATTR {
    const auto t = absolute_tanh(d, hn::Add(io.load(d, q + i), io.load(d, k + i)));
    sums[part] = hn::MulAdd(io.load(d, v + i), t, sums[part]);
  });
  return sums.total();
}

template <class T>
void score_backward(const T* q, const T* k, const T* v, Wider<T> ds, Wider<T>* dq, Wider<T>* dk,
                    Write dk_write, Wider<T>* dv, int64_t n) {
  const Tag<T> d;
  const auto scale = hn::Set(d, ds);
  const auto one = hn::Set(d, 1);
  const auto each = [&](auto to_key) HWY_ATTR {
    each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
      const auto t = absolute_tanh(d, hn::Add(io.load(d, q + i), io.load(d, k + i)));
      const auto g = hn::Mul(hn::Mul(scale, io.load(d, v + i)), hn::NegMulAdd(t, t, one));
      io.store(d, hn::Add(io.load(d, dq + i), g), dq + i);
      io.store(d, hn::MulAdd(scale, t, io.load(d, dv + i)), dv + i);
      to_key(io, g, i);
    });
  };
  if (dk == nullptr) return each([](auto, auto, int64_t) HWY_ATTR {});
  with_write(dk_write, [&](auto mode) HWY_ATTR {
    each([&](auto io, auto g, int64_t i) HWY_ATTR { deliver(mode, io, d, g, dk + i); });
  });
}

template <class T>
Wider<T> dot(const T* a, const T* b, int64_t n) {
  const Tag<T> d;
  LineSums<T> sums;
  each_line<T>(n, [&](auto io, int64_t i, auto part) HWY_ATTR {
    sums[part] = hn::MulAdd(io.load(d, a + i), io.load(d, b + i), sums[part]);
  });
  return sums.total();
}

template <class T>
void add(Wider<T> alpha, const T* x, Wider<T>* y, int64_t n, Write write) {
  const Tag<T> d;
  const auto factor = hn::Set(d, alpha);
  with_write(write, [&](auto mode) HWY_ATTR {
    each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
      deliver(mode, io, d, hn::Mul(factor, io.load(d, x + i)), y + i);
    });
  });
}

template <class T>
void deliver_sums(const Wider<T>* x, T* y, int64_t n, Write write) {
  const Tag<T> d;
  with_write(write, [&](auto mode) HWY_ATTR {
    each_vector(
        d, n, [&](auto io, int64_t i) HWY_ATTR { deliver(mode, io, d, io.load(d, x + i), y + i); });
  });
}

template <class T>
constexpr AdditiveFunctions<T> kFunctions = {score<T>, score_backward<T>, dot<T>, add<T>,
                                             deliver_sums<T>};

const PerType<AdditiveFunctions>* additive_functions() {
  static constexpr PerType<AdditiveFunctions> functions = {kFunctions<float>, kFunctions<double>,
                                                           kFunctions<BFloat16>};
  return &functions;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {

HWY_EXPORT(additive_functions);

template <class T>
const AdditiveFunctions<T>& functions() {
  return HWY_DYNAMIC_DISPATCH(additive_functions)()->of<T>();
}

int64_t real_keys(const AdditiveAttentionShape& s, int64_t b) {
  if (s.key_lengths == nullptr) return s.keys;
  return std::clamp<int64_t>(s.key_lengths[b], 0, s.keys);
}

// In place; n may be 0.
template <class W>
void softmax_row(W* w, int64_t n) {
  if (n == 0) return;
  const W largest = *std::max_element(w, w + n);
  W sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += w[j] = std::exp(w[j] - largest);
  for (int64_t j = 0; j < n; ++j) w[j] /= sum;
}

// Sums of many terms, which n elements of a tensor receive by `write` at the end. They grow in the
// tensor itself if it is as wide as they are. Null if the tensor is.
template <class T>
class Sums {
  using W = Wider<T>;
  static constexpr bool kInPlace = std::is_same_v<T, W>;

 public:
  Sums(T* out, int64_t n, Write write)
      : out_(out), n_(n), write_(write), memory_(kInPlace || out == nullptr ? 0 : n) {}

  W* data() {
    if (out_ == nullptr) return nullptr;
    if constexpr (kInPlace) {
      return out_;
    } else {
      return memory_.data();
    }
  }
  /// How the first terms are added.
  Write first() const { return kInPlace ? write_ : Write::kSet; }
  void deliver(const AdditiveFunctions<T>& f) {
    if (!kInPlace && out_ != nullptr) f.deliver(memory_.data(), out_, n_, write_);
  }

 private:
  T* out_;
  int64_t n_;
  Write write_;
  Scratch<W> memory_;
};

}  // namespace

namespace kernels {

template <class T>
void additive_attention(Cpu, const AdditiveAttentionShape& s,
                        const AdditiveAttentionForward<T>& args) {
  const AdditiveFunctions<T>& f = functions<T>();
  parallel_for(s.batch * s.queries, [&](int64_t row) {
    const int64_t b = s.memory(row / s.queries), real = real_keys(s, b);
    const T *const q = args.q + row * s.size, *const k = args.k + b * s.keys * s.size;
    const T* const values = args.values + b * s.keys * s.value_size;
    Sums<T> weights(args.weights + row * s.keys, s.keys, Write::kSet);
    Sums<T> outputs(args.out + row * s.value_size, s.value_size, Write::kSet);
    auto *const w = weights.data(), *const out = outputs.data();
    for (int64_t j = 0; j < real; ++j) w[j] = f.score(q, k + j * s.size, args.v, s.size);
    softmax_row(w, real);
    std::fill(w + real, w + s.keys, Wider<T>{0});
    if (real == 0) std::fill_n(out, s.value_size, Wider<T>{0});
    for (int64_t j = 0; j < real; ++j) {
      f.add(w[j], values + j * s.value_size, out, s.value_size, j == 0 ? Write::kSet : Write::kAdd);
    }
    weights.deliver(f), outputs.deliver(f);
  });
}

// One task per batch element: its queries add to its keys' gradients in order.
template <class T>
void additive_attention_backward(Cpu, const AdditiveAttentionShape& s,
                                 const AdditiveAttentionBackward<T>& args) {
  using W = Wider<T>;
  const AdditiveFunctions<T>& f = functions<T>();
  Scratch<W> dv_parts(s.batch * s.size);
  parallel_for(s.batch, [&](int64_t b) {
    const int64_t real = real_keys(s, b);
    const T* const k = args.k + b * s.keys * s.size;
    const T* const values = args.values + b * s.keys * s.value_size;
    T* const dk = args.dk == nullptr ? nullptr : args.dk + b * s.keys * s.size;
    T* const d_values =
        args.d_values == nullptr ? nullptr : args.d_values + b * s.keys * s.value_size;
    W* const dv = dv_parts.data() + b * s.size;
    std::fill_n(dv, s.size, W{0});
    // Keys that no query sees get gradient 0.
    const int64_t seen = s.queries == 0 ? 0 : real;
    if (dk != nullptr && args.dk_write == Write::kSet) {
      std::fill(dk + seen * s.size, dk + s.keys * s.size, T{0});
    }
    if (d_values != nullptr && args.d_values_write == Write::kSet) {
      std::fill(d_values + seen * s.value_size, d_values + s.keys * s.value_size, T{0});
    }
    Sums<T> dk_sums(dk, seen * s.size, args.dk_write);
    Sums<T> d_values_sums(d_values, seen * s.value_size, args.d_values_write);
    Scratch<W> ds(std::max<int64_t>(1, real)), dq(s.size);
    for (int64_t t = 0; t < s.queries; ++t) {
      const int64_t row = b * s.queries + t;
      const T *const w = args.weights + row * s.keys, *const q = args.q + row * s.size;
      const T* const d_out = args.d_out + row * s.value_size;
      const auto mode = [&](Write write) { return t == 0 ? write : Write::kAdd; };
      W sum = 0;
      for (int64_t j = 0; j < real; ++j) {
        ds[j] = f.dot(d_out, values + j * s.value_size, s.value_size);
        sum += static_cast<W>(w[j]) * ds[j];
      }
      std::fill_n(dq.data(), s.size, W{0});
      for (int64_t j = 0; j < real; ++j) {
        const auto weight = static_cast<W>(w[j]);
        f.score_backward(q, k + j * s.size, args.v, weight * (ds[j] - sum), dq.data(),
                         dk == nullptr ? nullptr : dk_sums.data() + j * s.size,
                         mode(dk_sums.first()), dv, s.size);
        if (d_values != nullptr) {
          f.add(weight, d_out, d_values_sums.data() + j * s.value_size, s.value_size,
                mode(d_values_sums.first()));
        }
      }
      if (args.dq != nullptr) f.deliver(dq.data(), args.dq + row * s.size, s.size, args.dq_write);
    }
    dk_sums.deliver(f), d_values_sums.deliver(f);
  });
  if (args.dv != nullptr) {
    sum_axis(Cpu{}, dv_parts.data(), args.dv, 1, s.batch, s.size, 1.0, args.dv_write);
  }
}

template void additive_attention(Cpu, const AdditiveAttentionShape&,
                                 const AdditiveAttentionForward<float>&);
template void additive_attention(Cpu, const AdditiveAttentionShape&,
                                 const AdditiveAttentionForward<double>&);
template void additive_attention(Cpu, const AdditiveAttentionShape&,
                                 const AdditiveAttentionForward<BFloat16>&);
template void additive_attention_backward(Cpu, const AdditiveAttentionShape&,
                                          const AdditiveAttentionBackward<float>&);
template void additive_attention_backward(Cpu, const AdditiveAttentionShape&,
                                          const AdditiveAttentionBackward<double>&);
template void additive_attention_backward(Cpu, const AdditiveAttentionShape&,
                                          const AdditiveAttentionBackward<BFloat16>&);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
