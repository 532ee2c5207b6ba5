// Counter-based random numbers (Philox 4x32-10, Salmon et al. 2011): a draw is a pure function of
// (seed, step, stream, index), the same on every device and for any number of threads.
#pragma once

#include <cmath>
#include <cstdint>

#include <Random123/philox.h>

#include "core/base/host_device.h"

namespace tapestry {

/// Names one stream of draws. Each user of random numbers in a step has its own `stream`.
struct PhiloxKey {
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t stream = 0;
};

struct Philox4 {
  uint32_t v[4];
};

/// Draws 4 * block to 4 * block + 3 of the stream.
TAPESTRY_HOST_DEVICE inline Philox4 philox(const PhiloxKey& key, uint64_t block) {
  using Generator = r123::Philox4x32;
  const Generator::ctr_type counter = {
      {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), key.step, key.stream}};
  const Generator::key_type seed = {
      {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)}};
  const auto bits = Generator()(counter, seed);
  return {{bits[0], bits[1], bits[2], bits[3]}};
}

/// Draw `index` of the stream: 32 random bits.
TAPESTRY_HOST_DEVICE inline uint32_t philox_bits(const PhiloxKey& key, uint64_t index) {
  const Philox4 bits = philox(key, index / 4);
  // Shifts, because an indexed array would not stay in a GPU's registers.
  const uint64_t low = static_cast<uint64_t>(bits.v[1]) << 32 | bits.v[0];
  const uint64_t high = static_cast<uint64_t>(bits.v[3]) << 32 | bits.v[2];
  return static_cast<uint32_t>(((index & 2) != 0 ? high : low) >> (index & 1) * 32);
}

/// Uniform in [0, 1) with 24 bits.
TAPESTRY_HOST_DEVICE inline float to_uniform(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

/// Uniform in [0, 1) with 53 bits from two draws.
inline double to_uniform(uint32_t high, uint32_t low) {
  return static_cast<double>((static_cast<uint64_t>(high) << 32 | low) >> 11) * 0x1p-53;
}

/// Standard normal draw `index` (Box-Muller on one block of four draws).
inline double philox_normal(const PhiloxKey& key, uint64_t index) {
  const Philox4 bits = philox(key, index);
  const double radius = std::sqrt(-2.0 * std::log(1.0 - to_uniform(bits.v[0], bits.v[1])));
  return radius * std::cos(6.283185307179586477 * to_uniform(bits.v[2], bits.v[3]));
}

/// Uniform integer in [0, bound) from draw block `index`, with a bias below 2^-64 * bound.
inline uint64_t philox_below(const PhiloxKey& key, uint64_t index, uint64_t bound) {
  const Philox4 bits = philox(key, index);
  const uint64_t word = static_cast<uint64_t>(bits.v[0]) << 32 | bits.v[1];
  return static_cast<uint64_t>((static_cast<unsigned __int128>(word) * bound) >> 64);
}

/// FNV-1a: a stable stream number for a name.
inline uint32_t stream_of(const char* name, size_t length) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < length; ++i) {
    hash = (hash ^ static_cast<unsigned char>(name[i])) * 16777619u;
  }
  return hash;
}

}  // namespace tapestry
