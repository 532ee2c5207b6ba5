// core/cuda/ptx/warpgroup_mma.h on the CPU: async.cpp.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace cuda_emulation {

void issue_product(float (*c)[4], int pieces, uint64_t a, uint64_t b, bool transposed_a,
                   bool transposed_b, bool add);
void issue_product(float (*c)[4], int pieces, const uint32_t (&a)[4], uint64_t b, bool transposed_b,
                   bool add);
void begin_group_of_products();
void end_group_of_products();
void wait_for_groups(int left);

}  // namespace cuda_emulation

namespace tapestry {

inline constexpr bool kHasWgmma = true;

template <class Word, int kPieces>
void hold(Word (&)[kPieces][4]) {}

inline void begin_products() { cuda_emulation::begin_group_of_products(); }
inline void end_products() { cuda_emulation::end_group_of_products(); }
template <int kLeft>
void wait_for_products() {
  cuda_emulation::wait_for_groups(kLeft);
}

template <bool kTransposedA, bool kTransposedB, int kPieces>
void multiply(float (&c)[kPieces][4], uint64_t a, uint64_t b, bool add) {
  static_assert(kPieces == 8 || kPieces == 16);
  cuda_emulation::issue_product(c, kPieces, a, b, kTransposedA, kTransposedB, add);
}
template <bool kTransposedB, int kPieces>
void multiply(float (&c)[kPieces][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  static_assert(kPieces == 8 || kPieces == 16);
  cuda_emulation::issue_product(c, kPieces, a, b, kTransposedB, add);
}

template <int kRegisters>
void give_registers_back() {}
template <int kRegisters>
void take_registers() {}

}  // namespace tapestry
