// Rotary positions against their definition, and what follows from it.
#include <algorithm>

#include "nn/attention/attention.h"
#include "tests/nn/models/models.h"
#include "tests/nn/pytorch_fixture.h"

namespace tapestry {
namespace {

using test::distance;

constexpr RopeLayout kLayouts[] = {RopeLayout::kHalf, RopeLayout::kInterleaved};

TEST(RotaryPositions, TableIsTheDefinition) {
  const Tensor table = rope_table(5, 6, /*theta=*/7, DType::kFloat64);
  ASSERT_EQ(table.shape(), (Shape{5, 6}));
  for (int64_t p = 0; p < 5; ++p) {
    for (int64_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(p) / std::pow(7.0, 2.0 * i / 6);
      EXPECT_NEAR(table.data<double>()[p * 6 + i], std::cos(angle), 1e-15);
      EXPECT_NEAR(table.data<double>()[p * 6 + 3 + i], std::sin(angle), 1e-15);
    }
  }
}

// Of each type, for models with fewer and more positions than the first training
// (tests/fixtures/rope_frequencies.py).
TEST(RotaryPositions, ScaledFrequenciesAreTransformers) {
  std::set<std::string> types;
  for (const auto& row : test::read_fixture("rope_frequencies")) {
    const auto& given = row["scaling"];
    RopeScaling scaling;
    const std::string type = given["type"];
    types.insert(type);
    scaling.type = *std::ranges::find(kRopeScalingTypes, type, [](auto t) { return name_of(t); });
    const auto read = [&](const char* key, auto& value) {
      if (given.contains(key)) given[key].get_to(value);
    };
    read("factor", scaling.factor);
    read("low_freq_factor", scaling.low_freq_factor);
    read("high_freq_factor", scaling.high_freq_factor);
    read("original_max_position_embeddings", scaling.original_max_position_embeddings);
    read("beta_fast", scaling.beta_fast);
    read("beta_slow", scaling.beta_slow);
    read("truncate", scaling.truncate);
    read("attention_factor", scaling.attention_factor);
    read("short_factor", scaling.short_factor);
    read("long_factor", scaling.long_factor);
    const RopeFrequencies w(row["theta"], scaling, row["positions"]);
    const int64_t size = row["size"];
    for (int64_t i = 0; i < size / 2; ++i) {
      const double theirs = row["frequencies"][static_cast<size_t>(i)];
      EXPECT_NEAR(w(i, size), theirs, 2e-6 * theirs) << row.dump();
    }
    EXPECT_NEAR(w.attention_factor(), row["attention_factor"].get<double>(), 1e-6) << row.dump();
    const Tensor table = rope_table(3, size, w, DType::kFloat64);
    EXPECT_NEAR(table.data<double>()[0], w.attention_factor(), 1e-15);
  }
  EXPECT_EQ(types.size() + 1, std::size(kRopeScalingTypes));  // all but none
}

// |rot(x)| = |x|, at any position and in any head.
// The last value that holds, and one beyond it.
TEST(RotaryPositions, ScalingsHaveBounds) {
  using Type = RopeScalingType;
  const auto member = [](const RopeScaling& scaling) {
    std::string wrong;
    scaling.validate(
        OptionReport([&](const std::string& name, const std::string&) { wrong += name + ';'; }));
    return wrong;
  };
  const auto with = [](Type type, auto change) {
    RopeScaling scaling;
    scaling.type = type;
    change(scaling);
    return scaling;
  };
  const auto length = [&](Type type, int64_t most) {
    return member(with(type, [&](auto& s) { s.original_max_position_embeddings = most; }));
  };
  for (const Type type : {Type::kLlama3, Type::kDynamic, Type::kYarn, Type::kLongrope}) {
    const int64_t least = type == Type::kLongrope ? 2 : 1;
    EXPECT_EQ(length(type, least), "") << name_of(type);
    EXPECT_EQ(length(type, least - 1).substr(0, 33), "original_max_position_embeddings;");
  }
  EXPECT_EQ(length(Type::kLinear, 0), "");
  const auto factor = [&](Type type, double f) {
    return member(with(type, [&](auto& s) { s.factor = f; }));
  };
  EXPECT_EQ(factor(Type::kLinear, 1e-9), "");
  EXPECT_EQ(factor(Type::kLinear, 0), "factor;");
  EXPECT_EQ(factor(Type::kDynamic, 1), "");
  EXPECT_EQ(factor(Type::kDynamic, 0.999), "factor;");
  const auto yarn = [&](double fast, double slow, double attention) {
    return member(with(Type::kYarn, [&](auto& s) {
      s.beta_fast = fast, s.beta_slow = slow, s.attention_factor = attention;
    }));
  };
  EXPECT_EQ(yarn(1, 1, 0), "");
  EXPECT_EQ(yarn(0.9, 1, 0), "beta_fast;");
  EXPECT_EQ(yarn(1, 0, 0), "beta_slow;");
  EXPECT_EQ(yarn(1, 1, -0.1), "attention_factor;");
  const auto llama3 = [&](double low, double high) {
    return member(
        with(Type::kLlama3, [&](auto& s) { s.low_freq_factor = low, s.high_freq_factor = high; }));
  };
  EXPECT_EQ(llama3(1, 1.1), "");
  EXPECT_EQ(llama3(1, 1), "high_freq_factor;");
  EXPECT_EQ(llama3(0, 1), "low_freq_factor;");
  EXPECT_EQ(member(with(Type::kLongrope, [](auto& s) { s.long_factor = {1, 0}; })), "long_factor;");
}

TEST(RotaryPositions, KeepTheNorm) {
  const int64_t heads = 3, size = 10, length = 490;
  const Tensor x = test::uniform({1, length, heads * size}, 3);
  for (const RopeLayout layout : kLayouts) {
    const Tensor y = rope(x, rope_table(length, size, 10000, DType::kFloat64),
                          {.heads = heads, .layout = layout})
                         .value();
    for (int64_t head = 0; head < length * heads; ++head) {
      double before = 0, after = 0;
      for (int64_t i = head * size; i < (head + 1) * size; ++i) {
        before += x.data<double>()[i] * x.data<double>()[i];
        after += y.data<double>()[i] * y.data<double>()[i];
      }
      ASSERT_NEAR(after, before, 1e-13) << "head " << head;
    }
    EXPECT_GT(distance(x, y), 0.1);
  }
}

// q . k of a query at m and a key at n.
TEST(RotaryPositions, ScoresDependOnTheDistanceAlone) {
  const int64_t length = 7, size = 10;
  const Tensor table = rope_table(length, size, 10000, DType::kFloat64);
  const Tensor q = test::uniform({1, size}, 1), k = test::uniform({1, size}, 2);
  for (const RopeLayout layout : kLayouts) {
    // The same vector at every position.
    const auto turned = [&](const Tensor& x) {
      Tensor rows = Tensor::empty({1, length, size}, DType::kFloat64);
      for (int64_t p = 0; p < length; ++p) {
        rows.reshape({length, size}).slice(p, p + 1).copy_from(x);
      }
      return rope(rows, table, {.heads = 1, .layout = layout});
    };
    const Tensor scores = matmul(turned(q), turned(k), {.trans_b = true}).value();
    const auto score = [&](int64_t m, int64_t n) { return scores.data<double>()[m * length + n]; };
    EXPECT_NEAR(score(0, 0), matmul(q, k, {.trans_b = true}).value().item(), 1e-14);
    for (int64_t m = 0; m < length; ++m) {
      for (int64_t n = 0; n < length; ++n) {
        EXPECT_NEAR(score(m, n), m >= n ? score(m - n, 0) : score(0, n - m), 1e-14);
      }
    }
    EXPECT_GT(std::abs(score(3, 0) - score(0, 3)), 1e-3) << "and on its direction";
    EXPECT_GT(std::abs(score(3, 0) - score(2, 0)), 1e-3);
  }
}

struct SmallAttention {
  explicit SmallAttention(RopeLayout layout, int64_t positions = 32)
      : layer({.hidden_size = 24,
               .heads = 4,
               .kv_heads = 2,
               .rope_positions = positions,
               .rope_layout = layout},
              store.root()) {
    test::disturb(store);
  }
  ParamStore store{5, DType::kFloat64};
  SelfAttention layer;
};

// The layer's own parts, with all positions shifted.
Var shifted(const SelfAttention& layer, const Var& x, int64_t offset, bool causal) {
  const Var packed =
      rope(layer.qkv(x), layer.rope_angles.rows(offset + x.shape()[1]).value(),
           {.heads = 4 + 2, .position_offset = offset, .layout = layer.options.rope_layout});
  return layer.out(attention(packed, {.heads = 4, .kv_heads = 2, .causal = causal}));
}

TEST(RotaryPositions, ShiftingAllPositionsChangesNothing) {
  const Tensor x = test::uniform({2, 5, 24}, 1);
  for (const RopeLayout layout : kLayouts) {
    const SmallAttention built(layout), still(layout, /*positions=*/0);
    for (const bool causal : {false, true}) {
      const Tensor y = built.layer(x, {}, causal).value();
      for (const int64_t offset : {0, 1, 19, 27, 5000}) {
        EXPECT_LT(distance(y, shifted(built.layer, x, offset, causal).value()), 1e-13) << offset;
      }
      EXPECT_GT(distance(y, still.layer(x, {}, causal).value()), 1e-3) << "positions are felt";
    }
  }
}

TEST(RotaryPositions, LayoutsAreAPermutationOfTheColumns) {
  const SmallAttention half(RopeLayout::kHalf), interleaved(RopeLayout::kInterleaved);
  // Elements i and i + K/2 of a head of queries or keys become 2i and 2i + 1; values stay.
  const int64_t size = 6, turned = (4 + 2) * size;
  for (const std::string name : {"qkv.weight", "qkv.bias"}) {
    const Tensor& from = half.store.at(name).var.value();
    const Tensor& to = interleaved.store.at(name).var.value();
    for (int64_t row = 0; row < turned; ++row) {
      const int64_t i = row % size, first = row - i;
      const int64_t other = first + (i < size / 2 ? 2 * i : 2 * (i - size / 2) + 1);
      to.slice(other, other + 1).copy_from(from.slice(row, row + 1));
    }
  }
  const Tensor x = test::uniform({2, 5, 24}, 1);
  for (const bool causal : {false, true}) {
    EXPECT_LT(distance(half.layer(x, {}, causal).value(), interleaved.layer(x, {}, causal).value()),
              1e-13);
  }
}

}  // namespace
}  // namespace tapestry
