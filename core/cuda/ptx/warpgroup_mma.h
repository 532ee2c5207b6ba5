// The PTX instructions by which four warps multiply on the tensor cores of sm_90a (PTX ISA,
// "Asynchronous warpgroup level matrix instructions"). A warpgroup is four consecutive warps from a
// multiple of four on; all its lanes call these functions. The tests run the kernels with functions
// of the same names that compute on the CPU.
//
// Operands in shared memory are given by descriptors (core/kernels/cuda/panel_tile.cuh). A product
// gives 64 rows: warp w of the group has rows [16 w, 16 w + 16), as pieces of 8 columns with the
// layout of c of mma.m16n8k16 (warp_mma.h). A left operand in registers has the layout of its a.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace tapestry {

/// True if this code is compiled for a GPU with warpgroup products. Elsewhere their kernels are
/// empty: `if constexpr (kHasWgmma)`.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
inline constexpr bool kHasWgmma = true;
#else
inline constexpr bool kHasWgmma = false;
#endif

/// Keeps the compiler from moving uses of the registers `pieces` (a product's result or left
/// operand) across this point.
template <class Word, int kPieces>
__device__ void hold(Word (&pieces)[kPieces][4]) {
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if constexpr (std::is_same_v<Word, float>) {
        asm volatile("" : "+f"(pieces[i][e])::"memory");
      } else {
        asm volatile("" : "+r"(pieces[i][e])::"memory");
      }
    }
  }
}

/// Before the first product of a group: the registers are as they should be.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// The products since the last call are one group.
__device__ inline void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most kLeft of the last groups run. Until then nobody may touch their registers or
/// write to their operands.
template <int kLeft>
__device__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// Operands of the assembler: the registers of eight pieces, and their numbers.
#define TAPESTRY_PIECE(c, i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define TAPESTRY_8_PIECES(c, i)                                                     \
  TAPESTRY_PIECE(c, i), TAPESTRY_PIECE(c, i + 1), TAPESTRY_PIECE(c, i + 2),         \
      TAPESTRY_PIECE(c, i + 3), TAPESTRY_PIECE(c, i + 4), TAPESTRY_PIECE(c, i + 5), \
      TAPESTRY_PIECE(c, i + 6), TAPESTRY_PIECE(c, i + 7)
#define TAPESTRY_FIRST_32                                                  \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TAPESTRY_NEXT_32                                                             \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

/// c (64 x kColumns, 64 or 128) = a b or, with `add`, += a b, both in shared memory: a (64 x 16)
/// and b (16 x kColumns). By default they are stored with the 16 contiguous; transposed, with their
/// other dimension.
template <bool kTransposedA, bool kTransposedB, int kPieces>
__device__ void multiply(float (&c)[kPieces][4], uint64_t a, uint64_t b, bool add) {
  static_assert(kPieces == 8 || kPieces == 16);
  if constexpr (kPieces == 8) {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" TAPESTRY_FIRST_32
        "}, %32, %33, add, 1, 1, %35, %36;\n"
        "}\n"
        : TAPESTRY_8_PIECES(c, 0)
        : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(kTransposedA ? 1 : 0),
          "n"(kTransposedB ? 1 : 0)
        : "memory");
  } else {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" TAPESTRY_FIRST_32
        ", " TAPESTRY_NEXT_32
        "}, %64, %65, add, 1, 1, %67, %68;\n"
        "}\n"
        : TAPESTRY_8_PIECES(c, 0), TAPESTRY_8_PIECES(c, 8)
        : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(kTransposedA ? 1 : 0),
          "n"(kTransposedB ? 1 : 0)
        : "memory");
  }
}

/// Overload with a in registers.
template <bool kTransposedB, int kPieces>
__device__ void multiply(float (&c)[kPieces][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  static_assert(kPieces == 8 || kPieces == 16);
  if constexpr (kPieces == 8) {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" TAPESTRY_FIRST_32
        "}, {%32, %33, %34, %35}, %36, add, 1, 1, %38;\n"
        "}\n"
        : TAPESTRY_8_PIECES(c, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)),
          "n"(kTransposedB ? 1 : 0)
        : "memory");
  } else {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" TAPESTRY_FIRST_32
        ", " TAPESTRY_NEXT_32
        "}, {%64, %65, %66, %67}, %68, add, 1, 1, %70;\n"
        "}\n"
        : TAPESTRY_8_PIECES(c, 0), TAPESTRY_8_PIECES(c, 8)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)),
          "n"(kTransposedB ? 1 : 0)
        : "memory");
  }
}

#undef TAPESTRY_PIECE
#undef TAPESTRY_8_PIECES
#undef TAPESTRY_FIRST_32
#undef TAPESTRY_NEXT_32

/// Sets the number of registers of each thread of the warpgroup (a multiple of 8). The kernel needs
/// __launch_bounds__(threads, 1).
template <int kRegisters>
__device__ void give_registers_back() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace tapestry
