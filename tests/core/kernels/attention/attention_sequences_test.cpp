// Sequences end to end: each is attended as if it were padded to the longest, in a batch of its own
// rows.
#include "tests/core/kernels/attention/attention_testing.h"

namespace tapestry {
namespace {

// The sequences of a padded problem, whose key_lengths are their lengths, end to end.
template <class T>
struct Joined {
  const Problem<T>& padded;
  Values<int32_t> starts{0};
  AttentionShape shape;
  Operand<T> q, k, v, d_out, out, dq, dk, dv;
  Values<Wider<T>> log_sum_exp;
  Values<T> d_relative;

  explicit Joined(const Problem<T>& p, const Values<int32_t>& lengths)
      : padded(p),
        starts(starts_of(lengths)),
        shape(p.shape),
        q(join(p.q)),
        k(join(p.k)),
        v(join(p.v)),
        d_out(join(p.d_out)),
        out(like(d_out, 5)),
        dq(like(q, 6)),
        dk(like(k, 7)),
        dv(like(v, 8)),
        log_sum_exp(static_cast<size_t>(p.shape.heads * starts.back())),
        d_relative(p.like_relative(9)) {
    shape.key_lengths = nullptr;
    shape.starts = starts.data();
    shape.rows = starts.back();
    shape.longest = p.shape.queries;
    kernels::attention<T>(
        TestDevice{}, shape,
        {q.input(), k.input(), v.input(), out.output(), log_sum_exp.data(), padded.bias()});
  }

  void go_back(Write write) {
    AttentionBackward<T> args = {};
    args.q = q.input(), args.k = k.input(), args.v = v.input();
    args.out = out.input(), args.d_out = d_out.input();
    args.log_sum_exp = log_sum_exp.data();
    args.dq = dq.output(), args.dk = dk.output(), args.dv = dv.output();
    args.dq_write = args.dk_write = args.dv_write = args.d_relative_write = write;
    args.bias = padded.bias();
    if (padded.reach > 0) args.d_relative = d_relative.data();
    kernels::attention_backward(TestDevice{}, shape, args);
    finish_work();
  }

  static Values<int32_t> starts_of(const Values<int32_t>& lengths) {
    Values<int32_t> starts{0};
    for (const int32_t length : lengths) starts.push_back(starts.back() + length);
    return starts;
  }
  Operand<T> like(const Operand<T>& x, uint64_t seed) const {
    return {1, x.rows, x.heads, x.size, 3, seed};
  }
  // Calls f(index in the joined rows, index in the padded batch) for each element.
  template <class F>
  void each_element(const Operand<T>& joined, const Operand<T>& batch, F f) const {
    for (size_t b = 0; b + 1 < starts.size(); ++b) {
      for (int64_t t = 0; t < starts[b + 1] - starts[b]; ++t) {
        for (int64_t h = 0; h < joined.heads; ++h) {
          for (int64_t i = 0; i < joined.size; ++i) {
            f(joined.index(0, starts[b] + t, h, i), batch.index(static_cast<int64_t>(b), t, h, i));
          }
        }
      }
    }
  }
  Operand<T> join(const Operand<T>& batch) const {
    Operand<T> joined(1, starts.back(), batch.heads, batch.size, 3, 40);
    each_element(joined, batch, [&](int64_t to, int64_t from) {
      joined.data[static_cast<size_t>(to)] = batch.data[static_cast<size_t>(from)];
    });
    return joined;
  }
  // The elements of a padded result that belong to a sequence, where the joined ones lie.
  template <class N>
  std::vector<double> joined_result(const Operand<T>& joined, const Operand<T>& batch,
                                    const N& result) const {
    std::vector<double> elements(joined.data.size());
    each_element(joined, batch, [&](int64_t to, int64_t from) {
      elements[static_cast<size_t>(to)] = static_cast<double>(result[static_cast<size_t>(from)]);
    });
    return elements;
  }
};

struct SequenceCase {
  const char* name;
  Values<int32_t> lengths;
  int64_t heads, kv_heads, head_size;
  bool causal;
  AttentionExtras extras = {};
};

AttentionCase padded_case(const SequenceCase& c) {
  const int64_t longest = *std::max_element(c.lengths.begin(), c.lengths.end());
  const auto batch = static_cast<int64_t>(c.lengths.size());
  return {c.name,      batch,    longest,   longest, c.heads, c.kv_heads,
          c.head_size, c.causal, c.lengths, 0,       c.extras};
}

std::vector<SequenceCase> sequence_cases() {
  return {
      {"one", {7}, 2, 2, 8, false},
      {"one token each", {1, 1, 1}, 2, 1, 16, true},
      {"few", {2, 3, 1}, 4, 2, 16, true},
      {"many lengths", {33, 1, 70, 2, 128, 65}, 2, 2, 32, false},
      {"many lengths, causal, grouped", {33, 1, 70, 2, 128, 65}, 4, 2, 64, true},
      {"blocks of keys and of queries", {300, 40}, 1, 1, 16, true},
      {"window", {90, 12, 41}, 2, 2, 16, true, {.window = 9}},
      {"prefix", {20, 12, 41}, 2, 2, 16, true, {.prefix_lengths = {4, 12, 0}}},
      {"softcap", {20, 12, 41, 3}, 2, 1, 16, true, {.softcap = 0.5}},
      {"values of another size", {20, 12, 3}, 2, 2, 16, false, {.value_size = 5}},
      {"relative", {70, 12, 41, 1}, 2, 2, 16, false, {.reach = 9}},
  };
}

template <class T>
class AttentionSequencesTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(AttentionSequencesTest, DeviceTypes);

// Rows behind the end of a sequence give no gradient, as in a model.
template <class T>
void clear_padding(Operand<T>& x, const Values<int32_t>& lengths) {
  for (size_t b = 0; b < lengths.size(); ++b) {
    for (int64_t t = lengths[b]; t < x.rows; ++t) {
      for (int64_t h = 0; h < x.heads; ++h) {
        for (int64_t i = 0; i < x.size; ++i) {
          x.data[static_cast<size_t>(x.index(static_cast<int64_t>(b), t, h, i))] = T{};
        }
      }
    }
  }
}

TYPED_TEST(AttentionSequencesTest, EqualTheDefinitionAndItsDerivative) {
  using T = TypeParam;
  on_every_target([] {
    for (const SequenceCase& c : sequence_cases()) {
      SCOPED_TRACE(c.name);
      const AttentionCase whole = padded_case(c);
      Problem<T> p(whole);
      clear_padding(p.d_out, c.lengths);
      const Naive naive(p);
      const Tolerance units = tolerance<T>(60);
      for (const Write write : kBothWrites) {
        Joined<T> joined(p, c.lengths);
        joined.go_back(write);
        const auto expect = [&](const Operand<T>& actual, const Operand<T>& batch,
                                const std::vector<double>& all, uint64_t seed) {
          expect_operand(actual, joined.joined_result(actual, batch, all),
                         joined.like(actual, seed), write, units.gradients);
        };
        expect_operand(joined.out, joined.joined_result(joined.out, p.d_out, naive.out),
                       joined.like(joined.out, 5), Write::kSet, units.out);
        expect(joined.dq, p.q, naive.dq, 6);
        expect(joined.dk, p.k, naive.dk, 7);
        expect(joined.dv, p.v, naive.dv, 8);
        if (p.reach == 0) continue;
        expect_close(joined.d_relative,
                     delivered(naive.d_relative, widen(p.like_relative(9)), write),
                     4 * units.gradients);
      }
    }
  });
}

TYPED_TEST(AttentionSequencesTest, SameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  for (const Values<int32_t>& lengths : {Values<int32_t>{150, 20}, {9, 40, 40, 1, 3, 17, 28, 30}}) {
    AttentionCase c = padded_case({"threads", lengths, 2, 1, 16, true});
    c.p = 0.1f;
    const Problem<T> p(c);
    expect_same_for_any_threads([&] {
      Joined<T> joined(p, lengths);
      joined.go_back(Write::kSet);
      Values<T> all = joined.out.data;
      for (const auto* x : {&joined.dq, &joined.dk, &joined.dv}) {
        all.insert(all.end(), x->data.begin(), x->data.end());
      }
      return all;
    });
  }
}

}  // namespace
}  // namespace tapestry
