// A random order of many rows that needs no memory; private to data/.
#pragma once

#include <bit>
#include <cstdint>

#include "core/base/philox.h"

namespace tapestry {

/// A pseudo-random permutation of [0, size): a Feistel network (Luby and Rackoff 1988) whose rounds
/// are draws of Philox, on the numbers of the next power of two; results outside go through it
/// again until one is inside (Black and Rogaway 2002), at most every second one.
class Permutation {
 public:
  Permutation(int64_t size, const PhiloxKey& key)
      : size_(static_cast<uint64_t>(size)),
        key_(key),
        bits_(std::bit_width(static_cast<uint64_t>(size - 1))) {}

  int64_t operator()(int64_t i) const {
    auto value = static_cast<uint64_t>(i);
    do {
      value = mix(value);
    } while (value >= size_);
    return static_cast<int64_t>(value);
  }

 private:
  static constexpr uint64_t kRounds = 4;

  uint64_t mix(uint64_t value) const {
    // The halves have different sizes if the number of bits is odd, and change places.
    int low_bits = bits_ / 2;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const int high_bits = bits_ - low_bits;
      const uint64_t low = value & ((uint64_t{1} << low_bits) - 1), high = value >> low_bits;
      const Philox4 bits = philox(key_, round << 56 | low);
      const uint64_t draw = static_cast<uint64_t>(bits.v[0]) << 32 | bits.v[1];
      const uint64_t mixed = high ^ (draw & ((uint64_t{1} << high_bits) - 1));
      value = low << high_bits | mixed;
      low_bits = high_bits;
    }
    return value;
  }

  uint64_t size_;
  PhiloxKey key_;
  int bits_;
};

}  // namespace tapestry
