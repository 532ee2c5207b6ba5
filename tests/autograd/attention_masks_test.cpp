// The fused attention against the composed one, for every mask, bias and size of values, alone and
// together: outputs and all gradients.
#include "tests/autograd/support.h"

namespace tapestry {
namespace {

using test::distance;
using test::uniform;

constexpr int64_t kBatch = 2, kHeads = 4, kSize = 4;

struct MaskSetting {
  const char* name;
  int64_t queries, keys;
  bool causal = false, lengths = false, prefix = false;
  int64_t window = 0, reach = 0, value_size = kSize, kv_heads = kHeads;
  Shape mask = {};
  bool boolean = false;
  double dropout = 0;
};

void PrintTo(const MaskSetting& setting, std::ostream* out) { *out << setting.name; }

// A fifth of the keys is hidden, and all of the last query.
Tensor dense_mask(const Shape& shape, bool boolean) {
  const Tensor draws = uniform(shape, 60, 0, 1), values = uniform(shape, 61);
  const int64_t keys = shape[-1], queries = shape[-2];
  std::vector<double> added;
  std::vector<int32_t> seen;
  for (int64_t i = 0; i < draws.numel(); ++i) {
    const bool hides = draws.data<double>()[i] < 0.2 || i / keys % queries == queries - 1;
    added.push_back(hides ? -INFINITY : values.data<double>()[i]);
    seen.push_back(hides ? 0 : 1);
  }
  return boolean ? test::ints(seen, shape) : test::doubles(added, shape);
}

struct Problem {
  Var q, k, v, relative;
  AttentionOptions options;
  Tensor dy;

  explicit Problem(const MaskSetting& s)
      : q(test::parameter({kBatch, s.queries, kHeads * kSize}, 50, -2, 2)),
        k(test::parameter({kBatch, s.keys, s.kv_heads * kSize}, 51, -2, 2)),
        v(test::parameter({kBatch, s.keys, s.kv_heads * s.value_size}, 52)),
        relative(s.reach > 0 ? test::parameter({kHeads, 2 * s.reach - 1}, 53) : Var()),
        dy(uniform({kBatch, s.queries, kHeads * s.value_size}, 54)) {
    options.heads = kHeads;
    options.kv_heads = s.kv_heads;
    options.causal = s.causal;
    options.dropout = s.dropout;
    options.window = s.window;
    options.relative_bias = relative;
    const auto length = [](int64_t n) { return static_cast<int32_t>(n); };
    if (s.lengths) options.key_lengths = test::ints({length(s.keys), length(s.keys / 2)}, {2});
    if (s.prefix) options.prefix_lengths = test::ints({length(s.keys / 3), 0}, {2});
    if (s.mask.rank() > 0) options.mask = dense_mask(s.mask, s.boolean);
  }

  // The output and the gradients of q, k, v and the relative bias.
  template <class F>
  std::vector<Tensor> by_tape(F&& attend) const {
    std::vector<Var> inputs{q, k, v};
    if (relative.defined()) inputs.push_back(relative);
    for (const Var& x : inputs) x.zero_grad();
    Tape tape({.seed = 9, .step = 2, .stream = 0});
    const Var y = attend();
    tape.backward(y, dy);
    std::vector<Tensor> results{y.value()};
    for (const Var& x : inputs) results.push_back(x.grad().clone());
    return results;
  }
};

void expect_all_near(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_LT(distance(a[i], b[i]), 1e-10) << "result " << i;
}

class AttentionMasks : public ::testing::TestWithParam<MaskSetting> {};

TEST_P(AttentionMasks, FusedEqualsComposed) {
  const Problem p(GetParam());
  expect_all_near(p.by_tape([&] { return attention(p.q, p.k, p.v, p.options); }),
                  p.by_tape([&] { return attention_reference(p.q, p.k, p.v, p.options).out; }));
}

TEST_P(AttentionMasks, PackedEqualsSeparate) {
  const Problem p(GetParam());
  const auto separate = p.by_tape([&] { return attention(p.q, p.k, p.v, p.options); });
  expect_all_near(p.by_tape([&] {
    return attention(p.q, concat({p.k, p.v}, 2), p.options);
  }),
                  separate);
  if (GetParam().queries != GetParam().keys) return;
  AttentionOptions options = p.options;
  options.value_size = GetParam().value_size;
  expect_all_near(p.by_tape([&] {
    return attention(concat({p.q, p.k, p.v}, 2), options);
  }),
                  separate);
}

TEST_P(AttentionMasks, RowsThatSeeNothingGiveZero) {
  if (GetParam().mask.rank() == 0) return;
  const Problem p(GetParam());
  const int64_t queries = GetParam().queries;
  for (const Tensor& x : {p.by_tape([&] { return attention(p.q, p.k, p.v, p.options); })[0],
                          p.by_tape([&] { return attention(p.q, p.k, p.v, p.options); })[1]}) {
    const Tensor last = test::columns(x, queries - 1, queries);
    EXPECT_EQ(distance(last, Tensor::zeros(last.shape(), DType::kFloat64)), 0);
  }
}

// With one group the composed attention draws its dropout in the fused one's order.
INSTANTIATE_TEST_SUITE_P(
    Settings, AttentionMasks,
    ::testing::Values(
        MaskSetting{.name = "window", .queries = 9, .keys = 9, .window = 3},
        MaskSetting{
            .name = "window_causal", .queries = 150, .keys = 150, .causal = true, .window = 20},
        MaskSetting{.name = "window_tail", .queries = 3, .keys = 12, .causal = true, .window = 4},
        MaskSetting{.name = "prefix", .queries = 9, .keys = 9, .causal = true, .prefix = true},
        MaskSetting{.name = "values_wide", .queries = 5, .keys = 7, .value_size = 9},
        MaskSetting{
            .name = "values_narrow", .queries = 7, .keys = 7, .causal = true, .value_size = 3},
        MaskSetting{.name = "relative", .queries = 9, .keys = 9, .reach = 4},
        MaskSetting{
            .name = "relative_causal", .queries = 140, .keys = 140, .causal = true, .reach = 90},
        MaskSetting{.name = "relative_tail", .queries = 3, .keys = 12, .reach = 6, .kv_heads = 2},
        MaskSetting{.name = "added", .queries = 5, .keys = 7, .mask = {5, 7}},
        MaskSetting{.name = "added_batch", .queries = 5, .keys = 7, .mask = {2, 5, 7}},
        MaskSetting{.name = "added_heads", .queries = 5, .keys = 7, .mask = {1, 4, 5, 7}},
        MaskSetting{
            .name = "added_all", .queries = 5, .keys = 7, .kv_heads = 2, .mask = {2, 4, 5, 7}},
        MaskSetting{.name = "seen", .queries = 5, .keys = 7, .mask = {5, 7}, .boolean = true},
        MaskSetting{
            .name = "seen_batch", .queries = 5, .keys = 7, .mask = {2, 5, 7}, .boolean = true},
        MaskSetting{.name = "seen_one_head",
                    .queries = 5,
                    .keys = 7,
                    .mask = {2, 1, 5, 7},
                    .boolean = true},
        MaskSetting{.name = "seen_all",
                    .queries = 5,
                    .keys = 7,
                    .kv_heads = 2,
                    .mask = {2, 4, 5, 7},
                    .boolean = true},
        MaskSetting{.name = "everything",
                    .queries = 70,
                    .keys = 130,
                    .causal = true,
                    .lengths = true,
                    .prefix = true,
                    .window = 50,
                    .reach = 20,
                    .value_size = 6,
                    .kv_heads = 1,
                    .mask = {2, 4, 70, 130},
                    .dropout = 0.2},
        MaskSetting{.name = "everything_boolean",
                    .queries = 20,
                    .keys = 20,
                    .causal = true,
                    .lengths = true,
                    .prefix = true,
                    .window = 8,
                    .reach = 5,
                    .value_size = 6,
                    .kv_heads = 1,
                    .mask = {20, 20},
                    .boolean = true,
                    .dropout = 0.2}),
    [](const auto& info) { return std::string(info.param.name); });

// Each query has its own number of keys, anywhere in the rows of a cache, and stands at the last.
TEST(AttentionCache, KeyRowsSayWhereTheKeysAre) {
  const Problem p({.name = "", .queries = 1, .keys = 9, .causal = true, .window = 4, .reach = 4});
  const std::vector<int32_t> lengths = {7, 2};
  static_assert(kBatch == 2);
  // Key j of element b is row 10 + 2 j of b = 0 and row 29 - 2 j of b = 1; the others are not read.
  const int64_t width = p.k.shape()[2];
  Tensor k = Tensor::full({1, 30, width}, NAN, DType::kFloat64), v = k.clone();
  std::vector<int32_t> rows;
  for (int32_t b = 0; b < 2; ++b) {
    for (int32_t j = 0; j < 9; ++j) {
      rows.push_back(j >= lengths[b] ? 0 : b == 0 ? 10 + 2 * j : 29 - 2 * j);
      if (j >= lengths[b]) continue;
      for (int64_t i = 0; i < width; ++i) {
        const int64_t from = (b * 9 + j) * width + i, to = rows.back() * width + i;
        k.data<double>()[to] = p.k.value().data<double>()[from];
        v.data<double>()[to] = p.v.value().data<double>()[from];
      }
    }
  }
  AttentionOptions options = p.options;
  options.key_rows = test::ints(rows, {2, 9});
  options.key_lengths = test::ints(lengths, {2});
  const Tensor found = attention(p.q, k, v, options).value();
  for (int64_t b = 0; b < 2; ++b) {
    const auto own = [&](const Var& x, int64_t count) {
      return slice(Var(x.value().slice(b, b + 1)), 1, 0, count);
    };
    const Tensor expected =
        attention(own(p.q, 1), own(p.k, lengths[b]), own(p.v, lengths[b]), p.options).value();
    EXPECT_LT(distance(found.slice(b, b + 1), expected), 1e-14) << b;
  }
  EXPECT_EQ(test::error_of([&] {
              const Tape tape;
              attention(p.q, k, v, options);
            }),
            "[attention] no gradient flows through key_rows.");
}

}  // namespace
}  // namespace tapestry
