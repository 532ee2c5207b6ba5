// Attention with masks, biases and values of another size, against the definition.
#include "tests/core/kernels/attention/attention_testing.h"

namespace tapestry {
namespace {

constexpr DenseMask kAdded = DenseMask::kAdded, kSeen = DenseMask::kSeen;

template <class T>
class AttentionMasksTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(AttentionMasksTest, DeviceTypes);

template <class T>
void check_all(const std::vector<AttentionCase>& cases) {
  on_every_target([&] {
    for (const AttentionCase& c : cases) {
      check<T>(c, tolerance<T>(80));
      check<T>(c, tolerance<T>(80), /*padding=*/8);
    }
  });
}

// Every shape of a dense mask; a seventh of the rows sees nothing.
TYPED_TEST(AttentionMasksTest, DenseMasks) {
  std::vector<AttentionCase> cases;
  for (const DenseMask mask : {kAdded, kSeen}) {
    for (const auto& [by_batch, by_head] :
         {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
      const AttentionExtras extras{
          .mask = mask, .mask_by_batch = by_batch, .mask_by_head = by_head};
      cases.push_back({"plain", 2, 21, 37, 2, 2, 8, false, {}, 0, extras});
      cases.push_back({"one query", 3, 1, 40, 2, 1, 16, false, {40, 7, 0}, 0, extras});
      cases.push_back(
          {"causal, lengths, grouped, dropout", 2, 33, 33, 4, 2, 16, true, {33, 9}, 0.3f, extras});
    }
    cases.push_back({"many blocks", 1, 150, 300, 1, 1, 8, true, {}, 0, {.mask = mask}});
  }
  check_all<TypeParam>(cases);
}

TYPED_TEST(AttentionMasksTest, Windows) {
  std::vector<AttentionCase> cases;
  for (const bool causal : {false, true}) {
    for (const int64_t window : {1, 2, 7, 33, 1000}) {
      cases.push_back({"self", 2, 33, 33, 2, 2, 8, causal, {}, 0, {.window = window}});
      cases.push_back(
          {"fewer queries", 2, 7, 40, 2, 1, 8, causal, {40, 11}, 0, {.window = window}});
      cases.push_back({"more queries", 1, 40, 9, 2, 2, 8, causal, {}, 0, {.window = window}});
      cases.push_back({"one query", 3, 1, 200, 2, 1, 32, causal, {}, 0, {.window = window}});
      cases.push_back({"dropout", 1, 70, 72, 2, 1, 32, causal, {}, 0.3f, {.window = window}});
    }
    cases.push_back({"many blocks", 1, 400, 400, 1, 1, 8, causal, {}, 0, {.window = 50}});
    cases.push_back({"many blocks, offset", 1, 300, 500, 2, 1, 8, causal, {}, 0, {.window = 130}});
    cases.push_back({"many heads", 4, 200, 200, 2, 2, 8, causal, {}, 0, {.window = 20}});
  }
  check_all<TypeParam>(cases);
}

TYPED_TEST(AttentionMasksTest, Prefixes) {
  check_all<TypeParam>({
      {"self", 3, 33, 33, 2, 2, 8, true, {}, 0, {.prefix_lengths = {0, 12, 33}}},
      {"beyond the keys", 2, 20, 20, 2, 1, 8, true, {20, 15}, 0, {.prefix_lengths = {99, 17}}},
      {"fewer queries", 2, 5, 40, 2, 2, 8, true, {}, 0, {.prefix_lengths = {38, 2}}},
      {"more queries", 2, 40, 9, 2, 2, 8, true, {}, 0, {.prefix_lengths = {4, 0}}},
      {"one query", 2, 1, 40, 2, 2, 8, true, {}, 0, {.prefix_lengths = {4, 40}}},
      {"window", 2, 50, 50, 2, 2, 8, true, {}, 0, {.window = 9, .prefix_lengths = {30, 5}}},
      {"without a causal mask", 1, 9, 9, 1, 1, 8, false, {}, 0, {.prefix_lengths = {4}}},
      {"many blocks", 1, 300, 300, 2, 1, 8, true, {}, 0.1f, {.prefix_lengths = {201}}},
  });
}

TYPED_TEST(AttentionMasksTest, RelativeBiases) {
  std::vector<AttentionCase> cases;
  for (const int64_t reach : {1, 2, 9, 64, 500}) {
    cases.push_back({"self", 2, 33, 33, 2, 2, 8, false, {}, 0, {.reach = reach}});
    cases.push_back({"causal, grouped", 2, 33, 40, 4, 2, 8, true, {40, 9}, 0.2f, {.reach = reach}});
    cases.push_back({"more queries", 1, 40, 9, 2, 2, 8, false, {}, 0, {.reach = reach}});
    cases.push_back({"one query", 2, 1, 40, 2, 2, 16, false, {}, 0, {.reach = reach}});
    cases.push_back({"many blocks", 1, 200, 300, 2, 1, 8, false, {}, 0, {.reach = reach}});
  }
  cases.push_back({"no key", 2, 3, 0, 2, 2, 4, false, {}, 0, {.reach = 4}});
  check_all<TypeParam>(cases);
}

TYPED_TEST(AttentionMasksTest, ValuesOfAnotherSize) {
  std::vector<AttentionCase> cases;
  for (const auto& [size, value_size] :
       {std::pair{8, 3}, {3, 8}, {16, 40}, {32, 64}, {65, 17}, {8, 130}, {256, 1}}) {
    cases.push_back(
        {"causal", 2, 20, 31, 4, 2, size, true, {31, 7}, 0.2f, {.value_size = value_size}});
    cases.push_back({"one query", 2, 1, 70, 2, 1, size, true, {}, 0, {.value_size = value_size}});
    cases.push_back({"no key", 2, 3, 0, 2, 2, size, false, {}, 0, {.value_size = value_size}});
  }
  cases.push_back({"many blocks", 1, 150, 300, 2, 1, 8, true, {}, 0, {.value_size = 20}});
  check_all<TypeParam>(cases);
}

TYPED_TEST(AttentionMasksTest, AllTogether) {
  std::vector<AttentionCase> cases;
  for (const DenseMask mask : {kAdded, kSeen}) {
    const AttentionExtras extras{.value_size = 12,
                                 .window = 30,
                                 .prefix_lengths = {20, 0},
                                 .mask = mask,
                                 .mask_by_batch = true,
                                 .mask_by_head = true,
                                 .reach = 11};
    cases.push_back({"few heads", 2, 90, 150, 2, 1, 8, true, {150, 80}, 0.2f, extras});
    cases.push_back({"many heads", 2, 70, 70, 8, 4, 8, true, {70, 33}, 0.2f, extras});
    cases.push_back({"few queries", 2, 3, 50, 4, 2, 8, true, {50, 49}, 0.2f, extras});
  }
  check_all<TypeParam>(cases);
}

TYPED_TEST(AttentionMasksTest, LeavesOutWhatIsNotAskedFor) {
  using T = TypeParam;
  const Problem<T> p({"parts", 2, 70, 150, 4, 2, 16, true, {}, 0.1f, {.reach = 9}});
  const Forward<T> f(p);
  const Naive naive(p);
  const double units = tolerance<T>(80).gradients;
  for (int parts = 0; parts < 16; ++parts) {
    SCOPED_TRACE(parts);
    Operand<T> dq = p.like_q(6), dk = p.like_k(7), dv = p.like_v(8);
    Values<T> d_relative = p.like_relative(9);
    AttentionBackward<T> args = backward_args(p, f);
    if ((parts & 1) != 0) args.dq = dq.output();
    if ((parts & 2) != 0) args.dk = dk.output();
    if ((parts & 4) != 0) args.dv = dv.output();
    if ((parts & 8) != 0) args.d_relative = d_relative.data();
    kernels::attention_backward(TestDevice{}, p.shape, args);
    if ((parts & 1) != 0) expect_operand(dq, naive.dq, p.like_q(6), Write::kSet, units);
    if ((parts & 2) != 0) expect_operand(dk, naive.dk, p.like_k(7), Write::kSet, units);
    if ((parts & 4) != 0) expect_operand(dv, naive.dv, p.like_v(8), Write::kSet, units);
    if ((parts & 8) != 0) expect_close(wider(d_relative), naive.d_relative, 4 * units);
  }
}

// Only a key that no mask hides reaches the output, whatever the others hold.
TYPED_TEST(AttentionMasksTest, HiddenScoresMayBeAnything) {
  using T = TypeParam;
  for (const int64_t queries : {1, 20}) {
    const AttentionCase c = {"hidden", 1, queries, 40, 1, 1, 8, false, {}, 0, {.mask = kSeen}};
    Problem<T> p(c);
    for (int64_t t = 0; t < queries; ++t) p.seen[p.mask_index(0, 0, t, 5)] = 0;
    const Forward<T> clean(p);
    for (int64_t i = 0; i < 8; ++i) p.k.data[p.k.index(0, 5, 0, i)] = static_cast<T>(1e30f);
    const Forward<T> f(p);
    EXPECT_EQ(widen(wider(f.out.data)), widen(wider(clean.out.data)));
  }
}

TYPED_TEST(AttentionMasksTest, SameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  const AttentionExtras extras{.window = 40, .mask = kAdded, .reach = 9};
  const AttentionCase cases[] = {{"few heads", 1, 150, 300, 2, 1, 16, true, {}, 0.1f, extras},
                                 {"many heads", 6, 40, 40, 4, 2, 16, false, {}, 0.1f, extras}};
  for (const AttentionCase& c : cases) {
    SCOPED_TRACE(c.name);
    const Problem<T> p(c);
    expect_same_for_any_threads([&] {
      const Forward<T> f(p);
      Operand<T> dq = p.like_q(6), dk = p.like_k(7), dv = p.like_v(8);
      Values<T> d_relative = p.like_relative(9);
      AttentionBackward<T> args = backward_args(p, f);
      args.dq = dq.output();
      args.dk = dk.output();
      args.dv = dv.output();
      args.d_relative = d_relative.data();
      kernels::attention_backward(TestDevice{}, p.shape, args);
      finish_work();
      Values<T> all = f.out.data;
      for (const Values<T>* part : {&std::as_const(dq.data), &std::as_const(dk.data),
                                    &std::as_const(dv.data), &std::as_const(d_relative)}) {
        all.insert(all.end(), part->begin(), part->end());
      }
      return all;
    });
  }
}

}  // namespace
}  // namespace tapestry
