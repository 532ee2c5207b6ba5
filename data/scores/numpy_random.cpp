#include "data/scores/numpy_random.h"

#include <array>
#include <bit>
#include <vector>

namespace tapestry {
namespace {

// SeedSequence: a hash of the seed's words over a pool of four words, and a second hash that draws
// any number of words from the pool.
class SeedWords {
 public:
  explicit SeedWords(uint64_t seed) {
    const std::array words = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
    for (size_t i = 0; i < pool_.size(); ++i) {
      pool_[i] = hashed(i < words.size() ? words[i] : 0, kMultiplyPool);
    }
    for (size_t from = 0; from < pool_.size(); ++from) {
      for (size_t to = 0; to < pool_.size(); ++to) {
        if (from != to) pool_[to] = mixed(pool_[to], hashed(pool_[from], kMultiplyPool));
      }
    }
    constant_ = 0x8b51f9dd;
  }

  uint64_t next() {
    const uint64_t low = next32();
    return low | uint64_t{next32()} << 32;
  }

 private:
  static constexpr uint32_t kMultiplyPool = 0x931e8875;
  static constexpr uint32_t kMultiplyOutput = 0x58f38ded;

  uint32_t hashed(uint32_t value, uint32_t multiplier) {
    value ^= constant_;
    constant_ *= multiplier;
    value *= constant_;
    return value ^ value >> 16;
  }
  static uint32_t mixed(uint32_t a, uint32_t b) {
    const uint32_t value = 0xca01f9ddu * a - 0x4973f715u * b;
    return value ^ value >> 16;
  }
  uint32_t next32() { return hashed(pool_[next_++ % pool_.size()], kMultiplyOutput); }

  std::array<uint32_t, 4> pool_{};
  uint32_t constant_ = 0x43b0d7e5;
  size_t next_ = 0;
};

}  // namespace

NumpyRandom::NumpyRandom(uint64_t seed) {
  SeedWords words(seed);
  const auto next128 = [&] {
    const Uint128 high = words.next();
    return high << 64 | words.next();
  };
  const Uint128 start = next128();
  increment_ = next128() << 1 | 1;
  step();
  state_ += start;
  step();
}

void NumpyRandom::step() {
  constexpr Uint128 kMultiplier = Uint128{0x2360ED051FC65DA4} << 64 | 0x4385DF649FCCF645;
  state_ = state_ * kMultiplier + increment_;
}

uint64_t NumpyRandom::next64() {
  step();
  const auto high = static_cast<uint64_t>(state_ >> 64);
  return std::rotr(high ^ static_cast<uint64_t>(state_), static_cast<int>(high >> 58));
}

uint32_t NumpyRandom::next32() {
  if (has_kept_) {
    has_kept_ = false;
    return kept_;
  }
  const uint64_t next = next64();
  kept_ = static_cast<uint32_t>(next >> 32);
  has_kept_ = true;
  return static_cast<uint32_t>(next);
}

void NumpyRandom::fill_below(uint32_t bound, std::span<uint32_t> out) {
  if (bound == 1) {  // NumPy draws nothing then
    for (uint32_t& value : out) value = 0;
    return;
  }
  const uint32_t biased = (0u - bound) % bound;  // remainders that would come once too often
  for (uint32_t& value : out) {
    uint64_t product;
    do {
      product = uint64_t{next32()} * bound;
    } while (static_cast<uint32_t>(product) < biased);
    value = static_cast<uint32_t>(product >> 32);
  }
}

}  // namespace tapestry
