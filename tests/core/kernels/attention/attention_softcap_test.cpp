// Scores behind a softcap, in every way through the kernels.
#include "tests/core/kernels/attention/attention_testing.h"

namespace tapestry {
namespace {

template <class T>
class AttentionSoftcapTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(AttentionSoftcapTest, DeviceTypes);

// Scores of a few units, of which some are far above the cap.
TYPED_TEST(AttentionSoftcapTest, EqualsTheDefinitionAndItsDerivative) {
  const AttentionExtras small{.softcap = 0.5}, large{.softcap = 3};
  const AttentionCase cases[] = {
      {"one of everything", 1, 1, 1, 1, 1, 1, false, {}, 0, small},
      {"plain", 2, 31, 33, 3, 3, 32, false, {}, 0, small},
      {"causal, grouped, dropout, lengths", 2, 33, 37, 4, 2, 17, true, {37, 11}, 0.5f, small},
      {"a step of decoding", 5, 1, 57, 4, 2, 64, true, {}, 0, small},
      {"lengths, one of them 0", 4, 10, 33, 2, 2, 33, false, {33, 1, 0, 17}, 0, large},
      {"a few queries", 2, 3, 40, 2, 1, 40, true, {}, 0, large},
      {"tensor cores have this size", 1, 70, 70, 2, 1, 64, true, {}, 0, large},
      {"many blocks", 1, 300, 517, 2, 1, 9, true, {450}, 0.2f, small},
      {"many heads", 3, 140, 140, 4, 4, 16, true, {}, 0, large},
      {"values of another size", 2, 20, 20, 2, 2, 8, true, {}, 0, {.value_size = 5, .softcap = 1}},
  };
  on_every_target([&] {
    for (const AttentionCase& c : cases) check<TypeParam>(c, tolerance<TypeParam>(40));
  });
}

// What is added to the scores is added to the capped ones, and its gradient knows no cap.
TYPED_TEST(AttentionSoftcapTest, StandsInFrontOfMasksAndBiases) {
  const AttentionCase cases[] = {
      {"added", 2, 20, 33, 2, 2, 16, false, {}, 0, {.mask = DenseMask::kAdded, .softcap = 0.5}},
      {"seen, some rows see nothing",
       2,
       40,
       40,
       2,
       1,
       16,
       true,
       {},
       0.1f,
       {.mask = DenseMask::kSeen, .mask_by_batch = true, .softcap = 0.5}},
      {"relative", 2, 70, 150, 2, 2, 16, true, {}, 0, {.window = 60, .reach = 5, .softcap = 0.5}},
      {"relative, one query", 2, 1, 30, 2, 2, 16, true, {}, 0, {.reach = 5, .softcap = 0.5}},
  };
  on_every_target([&] {
    for (const AttentionCase& c : cases) check<TypeParam>(c, tolerance<TypeParam>(40));
  });
}

// A cap that no score comes near changes nothing that counts.
TYPED_TEST(AttentionSoftcapTest, AHighCapIsNone) {
  using T = TypeParam;
  const Problem<T> plain({"plain", 2, 20, 33, 2, 2, 16, true, {}, 0});
  const Problem<T> capped({"capped", 2, 20, 33, 2, 2, 16, true, {}, 0, {.softcap = 1e5}});
  const Forward<T> a(plain), b(capped);
  finish_work();
  for (size_t i = 0; i < a.out.data.size(); ++i) {
    EXPECT_NEAR(as_double(a.out.data[i]), as_double(b.out.data[i]),
                (std::is_same_v<T, BFloat16> ? 1e-2 : 1e-5));
  }
}

}  // namespace
}  // namespace tapestry
