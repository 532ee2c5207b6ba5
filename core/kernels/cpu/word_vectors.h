// Vectors of four words of 32 bits, as the instructions of ARM64 take them that multiply two rows
// by two columns (SMMLA, BFMMLA), and the same in plain C++, with which loops over them run
// anywhere.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#ifdef __aarch64__
#include <arm_neon.h>
#endif

namespace tapestry::kernels {

struct PlainWords {
  using V = std::array<uint32_t, 4>;

  static V zero() { return {}; }
  static V load(const void* memory) {
    V v;
    std::memcpy(v.data(), memory, sizeof v);
    return v;
  }
  static void store(V v, void* memory) { std::memcpy(memory, v.data(), sizeof v); }
  /// The words of a and b in turn: the first two of each, the last two.
  static V low_words(V a, V b) { return {a[0], b[0], a[1], b[1]}; }
  static V high_words(V a, V b) { return {a[2], b[2], a[3], b[3]}; }
  /// Two words of a, then two of b: the first ones, the last ones.
  static V low_halves(V a, V b) { return {a[0], a[1], b[0], b[1]}; }
  static V high_halves(V a, V b) { return {a[2], a[3], b[2], b[3]}; }
};

#ifdef __aarch64__
struct NeonWords {
  using V = uint32x4_t;

  static V zero() { return vdupq_n_u32(0); }
  static V load(const void* memory) { return vld1q_u32(static_cast<const uint32_t*>(memory)); }
  static void store(V v, void* memory) { vst1q_u32(static_cast<uint32_t*>(memory), v); }
  static V low_words(V a, V b) { return vzip1q_u32(a, b); }
  static V high_words(V a, V b) { return vzip2q_u32(a, b); }
  static V low_halves(V a, V b) {
    return vreinterpretq_u32_u64(vzip1q_u64(vreinterpretq_u64_u32(a), vreinterpretq_u64_u32(b)));
  }
  static V high_halves(V a, V b) {
    return vreinterpretq_u32_u64(vzip2q_u64(vreinterpretq_u64_u32(a), vreinterpretq_u64_u32(b)));
  }
};
#endif

}  // namespace tapestry::kernels
