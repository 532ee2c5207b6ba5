#include "core/base/philox.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tapestry {
namespace {

// Philox 4x32-10 as defined by Salmon et al. (2011), section 4.3.
std::vector<uint32_t> reference(std::vector<uint32_t> counter, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;  // the golden ratio
    k1 += 0xBB67AE85;  // sqrt(3) - 1
  }
  return counter;
}

std::vector<uint32_t> draws(const PhiloxKey& key, uint64_t block) {
  const Philox4 bits = philox(key, block);
  return {bits.v, bits.v + 4};
}

// Known answers of Random123's own test (kat_vectors): philox4x32, 10 rounds.
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(draws({0, 0, 0}, 0),
            (std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(draws({~0ull, ~0u, ~0u}, ~0ull),
            (std::vector<uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(draws({0x299f31d0a4093822ull, 0x13198a2e, 0x03707344}, 0x85a308d3243f6a88ull),
            (std::vector<uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, KeyAndBlockGoWhereTheyShould) {
  const PhiloxKey key{0x0123456789abcdefull, 42, 99};
  for (const uint64_t block : {0ull, 1ull, 0x1ffffffffull}) {
    EXPECT_EQ(draws(key, block),
              reference({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 42, 99},
                        0x89abcdef, 0x01234567));
  }
}

TEST(PhiloxTest, BitsAreTheDrawsInOrder) {
  const PhiloxKey key{7, 8, 9};
  for (uint64_t index = 0; index < 40; ++index) {
    EXPECT_EQ(philox_bits(key, index), philox(key, index / 4).v[index % 4]);
  }
}

TEST(PhiloxTest, UniformStaysInItsInterval) {
  EXPECT_EQ(to_uniform(0u), 0);
  EXPECT_LT(to_uniform(~0u), 1);
  EXPECT_EQ(to_uniform(0u, 0u), 0);
  EXPECT_LT(to_uniform(~0u, ~0u), 1);
  EXPECT_EQ(to_uniform(0x80000000u), 0.5f);
  EXPECT_EQ(to_uniform(0x80000000u, 0u), 0.5);
}

TEST(PhiloxTest, NormalHasMeanZeroAndVarianceOne) {
  const int n = 100000;
  double sum = 0, squares = 0, fourth = 0;
  for (int i = 0; i < n; ++i) {
    const double z = philox_normal({1, 2, 3}, static_cast<uint64_t>(i));
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
  }
  EXPECT_NEAR(sum / n, 0, 0.0127);  // four standard deviations
  EXPECT_NEAR(squares / n, 1, 0.018);
  EXPECT_NEAR(fourth / n, 3, 0.124);
}

TEST(PhiloxTest, BelowCoversItsRangeEvenly) {
  std::vector<int> counts(6);
  for (uint64_t i = 0; i < 60000; ++i) {
    const uint64_t v = philox_below({5, 0, 0}, i, 6);
    ASSERT_LT(v, 6u);
    ++counts[v];
  }
  for (const int count : counts) EXPECT_NEAR(count, 10000, 366);  // four standard deviations
  EXPECT_EQ(philox_below({5, 0, 0}, 0, 1), 0u);
}

TEST(PhiloxTest, StreamsDiffer) {
  const auto base = draws({1, 2, 3}, 4);
  EXPECT_NE(base, draws({2, 2, 3}, 4));
  EXPECT_NE(base, draws({1, 3, 3}, 4));
  EXPECT_NE(base, draws({1, 2, 4}, 4));
  EXPECT_NE(base, draws({1, 2, 3}, 5));
}

// FNV-1a's published values.
TEST(PhiloxTest, StreamOfANameIsFnv1a) {
  EXPECT_EQ(stream_of("", 0), 0x811c9dc5u);
  EXPECT_EQ(stream_of("a", 1), 0xe40c292cu);
  EXPECT_EQ(stream_of("foobar", 6), 0xbf9cf968u);
}

}  // namespace
}  // namespace tapestry
