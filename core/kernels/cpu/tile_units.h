// What multiplies tiles. A unit has
//   open(), close(): it may be used between them, on this thread
//   multiply_block(block, c, ldc, add): c (32, 32) (=|+=) the product of the block, of which only
//     block.rows and block.cols are wanted; what lies beyond may be written
// or eight registers of 16 rows of 64 bytes, or as many rows as open(config) says, with which
// tile_product-inl.h does that:
//   prefetch(memory): a line that will be written
//   fetch(memory): a tile that will be loaded
//   zero<C>(), load<R>(memory, bytes between rows), store<C>(memory, bytes between rows)
//   multiply<C, A, B>(): C (16, 16 float) += A (16, 32 bfloat16) B (16 pairs of 32, 16 columns)
//   multiply_bytes<C, A, B>(): C (16, 16 int32) += A (16, 64 unsigned bytes) B (16 fours of the 64
//     signed ones, 16 columns)
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/kernels/cpu/tile_operand.h"

namespace tapestry::kernels {

/// Two strips of A and two of B, all of one form.
struct TileBlock {
  const BFloat16* a;
  int64_t a_strip;  ///< elements between the strips
  const BFloat16* b;
  int64_t b_strip;
  int64_t tiles;
  TileForm form;
  int64_t rows, cols;  ///< wanted, at least one of each
};

/// Palette 1: eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  std::array<uint8_t, 14> reserved{};
  std::array<uint16_t, 16> bytes_per_row{64, 64, 64, 64, 64, 64, 64, 64};
  std::array<uint8_t, 16> rows{16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);
inline constexpr TileConfig kTileConfig{};

#ifdef __x86_64__
/// AMX, in assembly: the intrinsics of GCC 12 tell the compiler of 8 of the 64 bytes that the
/// configuration has and of no memory that tiles load or store, so it may drop or move stores to
/// them. Use it only after tiles_allowed().
class AmxTiles {
 public:
  static void open(const TileConfig& config = kTileConfig) {
    asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  /// Gives the registers back, so that the system need not save them.
  static void close() { asm volatile("tilerelease" : : : "memory"); }
  static void prefetch(const float* line) { asm volatile("prefetchw (%0)" : : "r"(line)); }
  static void fetch(const BFloat16* tile) {
    for (int64_t row = 0; row < kTileStrip; ++row) {
      asm volatile("prefetcht0 (%0)" : : "r"(tile + row * kTileDepth));
    }
  }

  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  static void load(const void* rows, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(rows), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void store(void* rows, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(rows), "r"(stride), "i"(kTile)
                 : "memory");
  }
  template <int kC, int kA, int kB>
  static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
  template <int kC, int kA, int kB>
  static void multiply_bytes() {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
};
#endif

/// The same by plain arithmetic, with the same bits: a product of tiles adds, for each element,
/// two chains of fused multiply-adds from 0, over the even and over the odd elements of k, then
/// both sums, then C. Subnormal numbers are 0, going in and coming out.
class EmulatedTiles {
 public:
  static void open(const TileConfig& config = kTileConfig) { rows() = config.rows; }
  static void close() {}
  static void prefetch(const float*) {}
  static void fetch(const BFloat16*) {}

  template <int kTile>
  static void zero() {
    registers()[kTile] = {};
  }
  template <int kTile>
  static void load(const void* memory, int64_t stride) {
    for (int64_t r = 0; r < rows()[kTile]; ++r) {
      std::memcpy(registers()[kTile].data() + r * 64, static_cast<const char*>(memory) + r * stride,
                  64);
    }
  }
  template <int kTile>
  static void store(void* memory, int64_t stride) {
    for (int64_t r = 0; r < rows()[kTile]; ++r) {
      std::memcpy(static_cast<char*>(memory) + r * stride, registers()[kTile].data() + r * 64, 64);
    }
  }
  template <int kC, int kA, int kB>
  static void multiply() {
    for (int64_t r = 0; r < 16; ++r) {
      for (int64_t j = 0; j < 16; ++j) {
        float even = 0, odd = 0;
        for (int64_t p = 0; p < 16; ++p) {
          even = flushed(std::fma(half(kA, r, 2 * p), half(kB, p, 2 * j), even));
          odd = flushed(std::fma(half(kA, r, 2 * p + 1), half(kB, p, 2 * j + 1), odd));
        }
        float c;
        char* const at = registers()[kC].data() + r * 64 + j * 4;
        std::memcpy(&c, at, sizeof(c));
        c = flushed(flushed(c) + flushed(even + odd));
        std::memcpy(at, &c, sizeof(c));
      }
    }
  }
  template <int kC, int kA, int kB>
  static void multiply_bytes() {
    for (int64_t r = 0; r < rows()[kC]; ++r) {
      const char* const a = registers()[kA].data() + r * 64;
      for (int64_t j = 0; j < 16; ++j) {
        char* const at = registers()[kC].data() + (r * 16 + j) * 4;
        int32_t c;
        std::memcpy(&c, at, sizeof(c));
        for (int64_t k = 0; k < 64; ++k) {
          const char b = registers()[kB][static_cast<size_t>((k / 4 * 16 + j) * 4 + k % 4)];
          c += static_cast<uint8_t>(a[k]) * static_cast<int8_t>(b);
        }
        std::memcpy(at, &c, sizeof(c));
      }
    }
  }

 private:
  using Register = std::array<char, 1024>;
  static std::array<Register, 8>& registers() {
    thread_local std::array<Register, 8> all{};
    return all;
  }
  static std::array<uint8_t, 16>& rows() {
    thread_local std::array<uint8_t, 16> all = kTileConfig.rows;
    return all;
  }
  static float flushed(float x) {
    return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0F, x) : x;
  }
  // Element i of row r, a bfloat16.
  static float half(int tile, int64_t r, int64_t i) {
    uint16_t bits;
    std::memcpy(&bits, registers()[static_cast<size_t>(tile)].data() + r * 64 + i * 2,
                sizeof(bits));
    return flushed(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
  }
};

#ifndef __x86_64__
/// Other processors have no tiles: nothing uses them.
class AmxTiles : public EmulatedTiles {};
#endif

/// VDPBF16PS: multiplies tiles where they lie, and keeps sums in the registers of AVX-512. Use it
/// only on processors with AVX512-BF16.
class PairProducts {
 public:
  static void open() {}
  static void close() {}
  static void multiply_block(const TileBlock& block, float* c, int64_t ldc, bool add);
};

/// BFMMLA: the tiles in an order of its own, and sums in the registers of NEON. Use it only on
/// processors with FEAT_BF16. A sum s gets odd(s + odd(a b + a' b')) of each pair of neighbours
/// along k, in ascending order, where odd() rounds what is no float to the neighbour whose last bit
/// is 1; subnormal numbers are 0, going in and coming out. A sum of k products is so within
/// 2^-23 (k / 2 + 1) of the sum of their sizes.
class SquareProducts {
 public:
  static void open() {}
  static void close() {}
  static void multiply_block(const TileBlock& block, float* c, int64_t ldc, bool add);
};

/// The same bits by plain arithmetic, on any processor.
class EmulatedSquares {
 public:
  static void open() {}
  static void close() {}
  static void multiply_block(const TileBlock& block, float* c, int64_t ldc, bool add);
};

}  // namespace tapestry::kernels
