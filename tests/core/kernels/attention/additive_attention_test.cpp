#include "core/kernels/attention/additive_attention.h"

#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

using ReferenceReals = std::vector<double>;

constexpr int64_t kBatch = 4, kQueries = 2;
const int32_t kLengths[kBatch] = {0, 1, 5, 3};  // of 5 keys

// The definition, in double.
template <class T>
struct AdditiveProblem {
  explicit AdditiveProblem(int64_t size)
      : size(size),
        q(random_values<T>(kBatch * kQueries * size, 1)),
        k(random_values<T>(kBatch * keys * size, 2)),
        values(random_values<T>(kBatch * keys * value_size, 3)),
        v(random_values<T>(size, 4, -1, 1)),
        d_out(random_values<T>(kBatch * kQueries * value_size, 5)),
        out(kBatch * kQueries * value_size),
        weights(kBatch * kQueries * keys),
        dq(q.size()),
        dk(k.size()),
        d_values(values.size()),
        dv(v.size()) {
    for (int64_t row = 0; row < kBatch * kQueries; ++row) solve(row, row / kQueries);
    shape.batch = kBatch, shape.queries = kQueries, shape.keys = keys;
    shape.size = size, shape.value_size = value_size;
    shape.key_lengths = lengths.data();
  }

  void solve(int64_t row, int64_t b) {
    const int64_t real = kLengths[b];
    double *const w = &weights[row * keys], sum = 0, mean = 0;
    for (int64_t j = 0; j < real; ++j) {
      double score = 0;
      for (int64_t i = 0; i < size; ++i) score += as_double(v[i]) * unit(row, b, j, i);
      sum += w[j] = std::exp(score);
    }
    ReferenceReals dw(keys), saved(keys);  // backward has the rounded weights
    for (int64_t j = 0; j < real; ++j) {
      w[j] /= sum;
      saved[j] = as_double(static_cast<T>(w[j]));
      for (int64_t e = 0; e < value_size; ++e) {
        const int64_t at = (b * keys + j) * value_size + e;
        const double g = as_double(d_out[row * value_size + e]), value = as_double(values[at]);
        out[row * value_size + e] += w[j] * value;
        d_values[at] += saved[j] * g;
        dw[j] += g * value;
      }
      mean += saved[j] * dw[j];
    }
    for (int64_t j = 0; j < real; ++j) {
      const double ds = saved[j] * (dw[j] - mean);
      for (int64_t i = 0; i < size; ++i) {
        const double t = unit(row, b, j, i), g = ds * as_double(v[i]) * (1 - t * t);
        dv[i] += ds * t;
        dq[row * size + i] += g;
        dk[(b * keys + j) * size + i] += g;
      }
    }
  }
  double unit(int64_t row, int64_t b, int64_t j, int64_t i) const {
    return std::tanh(as_double(q[row * size + i]) + as_double(k[(b * keys + j) * size + i]));
  }

  static constexpr int64_t keys = 5, value_size = 9;
  int64_t size;
  Values<T> q, k, values, v, d_out;
  const Values<int32_t> lengths{kLengths, kLengths + kBatch};
  ReferenceReals out, weights, dq, dk, d_values, dv;
  AdditiveAttentionShape shape;
};

// BFloat16: float's arithmetic on the same numbers, and one rounding, by half a unit.
template <class T>
double rounding_units(double of_wider) {
  return std::is_same_v<T, BFloat16> ? 0.51 : of_wider;
}

template <class T>
class AdditiveAttentionTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(AdditiveAttentionTest, DeviceTypes);

TYPED_TEST(AdditiveAttentionTest, EqualsTheDefinition) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t size : {1, 31, 33, 257}) {
      const AdditiveProblem<T> p(size);
      Values<T> out(p.out.size(), T{7}), weights(p.weights.size(), T{7});
      kernels::additive_attention(
          TestDevice{}, p.shape,
          AdditiveAttentionForward<T>{p.q.data(), p.k.data(), p.values.data(), p.v.data(),
                                      out.data(), weights.data()});
      expect_close(weights, p.weights, rounding_units<T>(20 + size));
      expect_close(out, p.out, rounding_units<T>(20 + size));
    }
  });
}

TYPED_TEST(AdditiveAttentionTest, BackwardEqualsTheDefinition) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t size : {1, 31, 33, 257}) {
      const AdditiveProblem<T> p(size);
      Values<T> weights;
      for (const double weight : p.weights) weights.push_back(static_cast<T>(weight));
      for (const Write write : kBothWrites) {
        const auto before = [&](const ReferenceReals &like) {
          return random_values<T>(static_cast<int64_t>(like.size()), 9);
        };
        Values<T> dq = before(p.dq), dk = before(p.dk), d_values = before(p.d_values);
        Values<T> dv = before(p.dv);
        AdditiveAttentionBackward<T> args{};
        args.q = p.q.data(), args.k = p.k.data(), args.values = p.values.data();
        args.v = p.v.data(), args.weights = weights.data(), args.d_out = p.d_out.data();
        args.dq = dq.data(), args.dk = dk.data(), args.d_values = d_values.data();
        args.dv = dv.data();
        args.dq_write = args.dk_write = args.d_values_write = args.dv_write = write;
        kernels::additive_attention_backward(TestDevice{}, p.shape, args);
        const auto expect = [&](const Values<T> &actual, const ReferenceReals &wanted) {
          expect_close(actual, delivered(wanted, widen(before(wanted)), write),
                       rounding_units<T>(100));
        };
        expect(dq, p.dq);
        expect(dk, p.dk);
        expect(d_values, p.d_values);
        expect(dv, p.dv);
      }
    }
  });
}

TYPED_TEST(AdditiveAttentionTest, SameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  const AdditiveProblem<T> p(67);
  expect_same_for_any_threads([&] {
    const auto n = [](const auto &x) { return static_cast<int64_t>(x.size()); };
    Values<T> all(p.out.size() + p.weights.size() + p.q.size() + p.k.size() + p.values.size() +
                  p.v.size());
    T *const out = all.data();
    T *const weights = out + n(p.out), *const dq = weights + n(p.weights);
    T *const dk = dq + n(p.q), *const d_values = dk + n(p.k), *const dv = d_values + n(p.values);
    kernels::additive_attention(TestDevice{}, p.shape,
                                AdditiveAttentionForward<T>{p.q.data(), p.k.data(), p.values.data(),
                                                            p.v.data(), out, weights});
    kernels::additive_attention_backward(
        TestDevice{}, p.shape,
        AdditiveAttentionBackward<T>{p.q.data(), p.k.data(), p.values.data(), p.v.data(), weights,
                                     p.d_out.data(), dq, Write::kSet, dk, Write::kSet, d_values,
                                     Write::kSet, dv, Write::kSet});
    return all;
  });
}

}  // namespace
}  // namespace tapestry
