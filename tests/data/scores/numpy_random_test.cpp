// Expected values: NumPy 2.4, as in
//   numpy.random.default_rng(12345).bit_generator.random_raw(3)
#include "data/scores/numpy_random.h"

#include <gmock/gmock.h>

namespace tapestry {
namespace {

using testing::ElementsAre;

std::vector<uint32_t> below(NumpyRandom& random, uint32_t bound, size_t count) {
  std::vector<uint32_t> out(count);
  random.fill_below(bound, out);
  return out;
}

TEST(NumpyRandom, SeedsGiveNumpysStream) {
  NumpyRandom random(12345);
  EXPECT_EQ(random.next64(), 0x3a32b18db2ffc19du);
  EXPECT_EQ(random.next64(), 0x51171315c9e4c4deu);
  EXPECT_EQ(random.next64(), 0xcc2024823444efd9u);
  NumpyRandom zero(0);
  EXPECT_EQ(zero.next64(), 11749869230777074271u);
  EXPECT_EQ(zero.next64(), 4976686463289251617u);
  NumpyRandom two_words((uint64_t{1} << 40) + 5);
  EXPECT_EQ(two_words.next64(), 87427594128977387u);
  EXPECT_EQ(two_words.next64(), 6872972437549564694u);
}

// rng.choice(7, size=(2, 8), replace=True), then rng.choice(1000, size=6)
TEST(NumpyRandom, ChoicesWithReplacement) {
  NumpyRandom random(12345);
  EXPECT_THAT(below(random, 7, 16), ElementsAre(4, 1, 5, 2, 1, 5, 4, 4, 6, 2, 5, 2, 3, 4, 1, 1));
  EXPECT_THAT(below(random, 1, 3), ElementsAre(0, 0, 0));  // draws nothing
  EXPECT_THAT(below(random, 1000, 6), ElementsAre(229, 672, 613, 941, 706, 248));
}

// numpy.random.default_rng(7).choice(3_000_000_000, size=100_000): three of ten draws are rejected.
TEST(NumpyRandom, BiasedDrawsAreRejected) {
  NumpyRandom random(7);
  const std::vector<uint32_t> drawn = below(random, 3'000'000'000, 100'000);
  EXPECT_THAT(std::vector(drawn.begin(), drawn.begin() + 3),
              ElementsAre(2834714867, 2052539810, 2691641402));
  EXPECT_THAT(std::vector(drawn.end() - 3, drawn.end()),
              ElementsAre(1011917419, 2356708080, 2789084861));
  uint64_t sum = 0;
  for (const uint32_t value : drawn) sum += value;
  EXPECT_EQ(sum, 149908795222734u);
}

}  // namespace
}  // namespace tapestry
