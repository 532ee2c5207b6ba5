// The draws of numpy.random.default_rng(seed), so that resampled figures equal those of programs
// that draw with NumPy.
#pragma once

#include <cstdint>
#include <span>

namespace tapestry {

/// PCG64 (O'Neill 2014: 128-bit congruential state, XSL-RR output) seeded by NumPy's SeedSequence.
class NumpyRandom {
 public:
  explicit NumpyRandom(uint64_t seed);

  uint64_t next64();
  /// Halves of next64(), the low one first.
  uint32_t next32();
  /// Fills `out` as integers(0, bound) and choice(bound, replace=True) do, for 1 <= bound <= 2^32 -
  /// 1 (Lemire 2019: multiply, and draw again if the remainder is biased).
  void fill_below(uint32_t bound, std::span<uint32_t> out);

 private:
  __extension__ using Uint128 = unsigned __int128;
  void step();

  Uint128 state_ = 0;
  Uint128 increment_ = 0;
  uint32_t kept_ = 0;
  bool has_kept_ = false;
};

}  // namespace tapestry
