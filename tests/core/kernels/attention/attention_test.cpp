#include "tests/core/kernels/attention/attention_testing.h"

namespace tapestry {
namespace {

// Made while a test runs: memory for a GPU cannot be allocated before main().
std::vector<AttentionCase> small_cases() {
  return {
      {"one of everything", 1, 1, 1, 1, 1, 1, false, {}, 0},
      {"plain", 2, 31, 33, 3, 3, 32, false, {}, 0},
      {"causal", 2, 33, 33, 2, 2, 16, true, {}, 0},
      {"causal, fewer queries than keys", 1, 7, 40, 2, 2, 8, true, {}, 0},
      {"causal, more queries than keys: the first rows see nothing",
       1,
       40,
       9,
       2,
       2,
       8,
       true,
       {},
       0},
      {"key lengths, one of them 0", 4, 10, 33, 2, 2, 33, false, {33, 1, 0, 17}, 0},
      {"causal with key lengths", 3, 33, 33, 2, 2, 31, true, {5, 0, 33}, 0},
      {"grouped heads", 2, 20, 31, 6, 2, 24, false, {}, 0},
      {"one key/value head", 2, 20, 31, 4, 1, 12, true, {31, 7}, 0},
      {"dropout", 2, 31, 33, 2, 2, 32, false, {}, 0.25f},
      {"dropout, causal, grouped, lengths", 2, 33, 37, 4, 2, 17, true, {37, 11}, 0.5f},
      {"one query: a decoding step", 5, 1, 57, 4, 4, 64, true, {}, 0},
      {"one query, grouped, lengths", 3, 1, 200, 8, 2, 31, false, {200, 3, 0}, 0},
      {"a few queries", 2, 3, 40, 2, 1, 40, true, {}, 0},
      {"no key", 2, 3, 0, 2, 2, 4, false, {}, 0},
  };
}

template <class T>
class AttentionTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(AttentionTest, DeviceTypes);

TYPED_TEST(AttentionTest, EqualsTheDefinitionAndItsDerivative) {
  on_every_target([] {
    for (const AttentionCase& c : small_cases()) check<TypeParam>(c, tolerance<TypeParam>(30));
  });
}

TYPED_TEST(AttentionTest, EveryHeadSize) {
  on_every_target([] {
    for (const int64_t size : {1, 2, 3, 5, 15, 16, 17, 48, 63, 65, 96, 100, 128, 255, 256}) {
      check<TypeParam>({"size", 1, 18, 21, 2, 1, size, true, {}, 0.1f}, tolerance<TypeParam>(30));
    }
  });
}

// Rows that a GPU reads in aligned accesses.
TYPED_TEST(AttentionTest, OneQueryOfEveryHeadSize) {
  on_every_target([] {
    for (const int64_t size : {4, 8, 24, 32, 64, 72, 128, 136, 256}) {
      const AttentionCase cases[] = {
          {"one key", 1, 1, 1, 1, 1, size, false, {}, 0},
          {"many keys, grouped", 2, 1, 300, 4, 2, size, true, {}, 0},
          {"lengths, one of them 0", 4, 1, 70, 2, 2, size, false, {70, 1, 0, 33}, 0},
          {"no key", 2, 1, 0, 2, 2, size, false, {}, 0},
          {"dropout", 2, 1, 40, 2, 1, size, false, {}, 0.3f},
      };
      for (const AttentionCase& c : cases) {
        SCOPED_TRACE(size);
        check<TypeParam>(c, tolerance<TypeParam>(30), /*padding=*/8);
      }
    }
  });
}

TYPED_TEST(AttentionTest, SequencesOfManyBlocks) {
  const AttentionCase cases[] = {
      {"causal", 1, 700, 700, 1, 1, 8, true, {}, 0},
      {"cross with dropout", 1, 300, 517, 2, 1, 9, false, {450}, 0.2f},
      {"causal, fewer queries", 2, 129, 641, 1, 1, 16, true, {641, 300}, 0},
      {"many heads", 3, 257, 257, 4, 4, 16, true, {}, 0},
  };
  on_every_target([&] {
    for (const AttentionCase& c : cases) check<TypeParam>(c, tolerance<TypeParam>(60));
  });
}

// Scores of thousands: the softmax must not overflow, in any order of the key blocks.
TYPED_TEST(AttentionTest, LargeScores) {
  using T = TypeParam;
  for (const bool rising : {false, true}) {
    Problem<T> p({"large", 1, 3, 600, 1, 1, 1, false, {}, 0});
    for (int64_t j = 0; j < 600; ++j) {
      p.k.data[p.k.index(0, j, 0, 0)] =
          static_cast<T>(static_cast<float>(10 * (rising ? j : 600 - j)));
    }
    const float factors[] = {1, -1, 0};
    for (int64_t t = 0; t < 3; ++t) p.q.data[p.q.index(0, t, 0, 0)] = static_cast<T>(factors[t]);
    const Forward<T> f(p);
    for (int64_t t = 0; t < 3; ++t) {
      const auto score = [&](int64_t j) { return factors[t] * p.k.at(0, j, 0, 0); };
      const double largest = std::max(score(0), score(599));
      double sum = 0, total = 0;
      for (int64_t j = 0; j < 600; ++j) {
        const double weight = std::exp(score(j) - largest);
        total += weight;
        sum += weight * p.v.at(0, j, 0, 0);
      }
      EXPECT_NEAR(f.out.at(0, t, 0, 0), sum / total, (std::is_same_v<T, BFloat16> ? 8e-3 : 1e-6));
    }
  }
}

TYPED_TEST(AttentionTest, DoesNotHideNan) {
  using T = TypeParam;
  for (const int64_t queries : {1, 20}) {
    Problem<T> p({"nan", 1, queries, 40, 1, 1, 8, false, {}, 0});
    p.k.data[p.k.index(0, 37, 0, 2)] = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
    const Forward<T> f(p);
    for (int64_t t = 0; t < queries; ++t) EXPECT_TRUE(std::isnan(f.out.at(0, t, 0, 0))) << t;
  }
}

TYPED_TEST(AttentionTest, LeavesOutWhatIsNotAskedFor) {
  using T = TypeParam;
  // A head for each tile, and blocks of keys and of queries.
  for (const auto& [batch, keys] : {std::pair{4, 40}, {1, 200}}) {
    const Problem<T> p({"parts", batch, 83, keys, 4, 2, 16, true, {}, 0.1f});
    const Forward<T> f(p);
    const Naive naive(p);
    const double units = tolerance<T>(30).gradients;
    for (int parts = 0; parts < 8; ++parts) {
      SCOPED_TRACE(parts);
      Operand<T> dq = p.like_q(6), dk = p.like_k(7), dv = p.like_v(8);
      AttentionBackward<T> args = backward_args(p, f);
      if ((parts & 1) != 0) args.dq = dq.output();
      if ((parts & 2) != 0) args.dk = dk.output();
      if ((parts & 4) != 0) args.dv = dv.output();
      kernels::attention_backward(TestDevice{}, p.shape, args);
      if ((parts & 1) != 0) expect_operand(dq, naive.dq, p.like_q(6), Write::kSet, units);
      if ((parts & 2) != 0) expect_operand(dk, naive.dk, p.like_k(7), Write::kSet, units);
      if ((parts & 4) != 0) expect_operand(dv, naive.dv, p.like_v(8), Write::kSet, units);
    }
    Operand<T> out = p.like_out(5);
    kernels::attention<T>(TestDevice{}, p.shape,
                          {p.q.input(), p.k.input(), p.v.input(), out.output(), nullptr});
    EXPECT_EQ(out.data, f.out.data);
  }
}

// q, k and v as column ranges of one fused projection, and their gradients likewise.
TYPED_TEST(AttentionTest, FusedProjection) {
  using T = TypeParam;
  const AttentionCase c = {"fused", 2, 20, 20, 2, 2, 16, true, {}, 0};
  Problem<T> p(c);
  const Naive naive(p);
  const int64_t width = 3 * 32;
  Values<T> qkv(2 * 20 * width), d_qkv(qkv.size());
  const auto range = [&](auto& fused, int part) { return fused.data() + part * 32; };
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t t = 0; t < 20; ++t) {
      for (int64_t i = 0; i < 32; ++i) {
        T* const row = &qkv[(b * 20 + t) * width];
        row[i] = p.q.data[p.q.index(b, t, 0, i)];
        row[32 + i] = p.k.data[p.k.index(b, t, 0, i)];
        row[64 + i] = p.v.data[p.v.index(b, t, 0, i)];
      }
    }
  }
  const auto rows = [&](int part) { return Rows<const T>{range(qkv, part), width, 20 * width}; };
  const auto d_rows = [&](int part) { return Rows<T>{range(d_qkv, part), width, 20 * width}; };
  Operand<T> out = p.like_out(5);
  Values<Wider<T>> lse(2 * 2 * 20);
  kernels::attention<T>(TestDevice{}, p.shape,
                        {rows(0), rows(1), rows(2), out.output(), lse.data()});
  expect_operand(out, naive.out, p.like_out(5), Write::kSet, tolerance<T>(30).out);
  kernels::attention_backward<T>(
      TestDevice{}, p.shape,
      {rows(0), rows(1), rows(2), out.input(), p.d_out.input(), lse.data(), d_rows(0), d_rows(1),
       d_rows(2), Write::kSet, Write::kSet, Write::kSet});
  finish_work();
  const double tolerated = std::is_same_v<T, BFloat16> ? 3e-2 : 1e-5;
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t t = 0; t < 20; ++t) {
      for (int64_t i = 0; i < 32; ++i) {
        const T* const row = &d_qkv[(b * 20 + t) * width];
        EXPECT_NEAR(as_double(row[i]), naive.dq[p.q.index(b, t, 0, i)], tolerated);
        EXPECT_NEAR(as_double(row[32 + i]), naive.dk[p.k.index(b, t, 0, i)], tolerated);
        EXPECT_NEAR(as_double(row[64 + i]), naive.dv[p.v.index(b, t, 0, i)], tolerated);
      }
    }
  }
}

TYPED_TEST(AttentionTest, SameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  const AttentionCase cases[] = {{"few heads", 1, 150, 600, 2, 1, 16, true, {}, 0.1f},
                                 {"many heads", 6, 40, 40, 4, 2, 16, true, {}, 0.1f},
                                 {"decoding", 40, 1, 90, 4, 4, 16, true, {}, 0}};
  for (const AttentionCase& c : cases) {
    SCOPED_TRACE(c.name);
    const Problem<T> p(c);
    expect_same_for_any_threads([&] {
      const Forward<T> f(p);
      Operand<T> dq = p.like_q(6), dk = p.like_k(7), dv = p.like_v(8);
      AttentionBackward<T> args = backward_args(p, f);
      args.dq = dq.output();
      args.dk = dk.output();
      args.dv = dv.output();
      kernels::attention_backward(TestDevice{}, p.shape, args);
      std::vector<double> all = widen(f.log_sum_exp);
      for (const Values<T>* part : {&f.out.data, &std::as_const(dq.data), &std::as_const(dk.data),
                                    &std::as_const(dv.data)}) {
        const std::vector<double> wide = widen(*part);
        all.insert(all.end(), wide.begin(), wide.end());
      }
      return all;
    });
  }
}

}  // namespace
}  // namespace tapestry
