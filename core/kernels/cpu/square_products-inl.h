// Blocks of tiles by instructions that multiply two rows of four bfloat16 by two columns: BFMMLA of
// ARM64. A sum gets the products of pairs of neighbours along k, in ascending order.
//
// Included once by the source of each instruction set, which defines Isa: the vectors of
// word_vectors.h, and
//   multiply(sums, rows, columns): sums (2, 2 float) += the product of two rows and two columns of
//     four bfloat16 each
#include <algorithm>
#include <cstdint>
#include <span>

#include "core/kernels/cpu/tile_units.h"
#include "core/kernels/cpu/word_vectors.h"

namespace tapestry::kernels {
namespace {

constexpr int64_t kDepth = 4;    // elements of k that an instruction takes
constexpr int64_t kSquares = 4;  // pairs of rows, and of columns, whose sums fill the registers
constexpr int64_t kSide = 2 * kSquares;
constexpr int64_t kSides = kTileBlock / kSide;   // of a block
constexpr int64_t kSteps = kTileDepth / kDepth;  // of a tile
constexpr int64_t kVector = 8;                   // elements of bfloat16
constexpr int64_t kStep = kSquares * kVector;    // elements of a step of one side
constexpr int64_t kPlaces = 4;                   // tiles along k at a time
// Both operands of so many tiles and C stay in the L1 cache.
using Ordered = BFloat16[kSides][kPlaces][kSteps * kStep];

// A left tile, its rows 16 `strip` and so on of the block, in pairs of rows.
void order_left(const BFloat16* tile, int64_t strip, int64_t place, Ordered& out) {
  for (int64_t r = 0; r < kTileStrip; r += 2) {
    BFloat16* const to = out[strip * 2 + r / kSide][place] + r % kSide / 2 * kVector;
    for (int64_t k = 0; k < kTileDepth; k += kVector) {
      const Isa::V one = Isa::load(tile + r * kTileDepth + k);
      const Isa::V other = Isa::load(tile + (r + 1) * kTileDepth + k);
      Isa::store(Isa::low_halves(one, other), to + k / kDepth * kStep);
      Isa::store(Isa::high_halves(one, other), to + (k / kDepth + 1) * kStep);
    }
  }
}

// A right tile in pairs of columns: a word is a pair of elements along k.
void order_right(const BFloat16* tile, int64_t strip, int64_t place, Ordered& out) {
  for (int64_t step = 0; step < kSteps; ++step) {
    const BFloat16* const pairs = tile + step * kDepth / 2 * 2 * kTileStrip;
    for (int64_t j = 0; j < kTileStrip; j += 4) {
      const Isa::V one = Isa::load(pairs + 2 * j);
      const Isa::V other = Isa::load(pairs + 2 * (kTileStrip + j));
      BFloat16* const to =
          out[strip * 2 + j / kSide][place] + step * kStep + j % kSide / 2 * kVector;
      Isa::store(Isa::low_words(one, other), to);
      Isa::store(Isa::high_words(one, other), to + kVector);
    }
  }
}

// Which tiles of a place meet: of split operands low high, high high, high low
// (tile_product-inl.h).
struct Meeting {
  int64_t left, right;
};
constexpr Meeting kRoundedMeetings[] = {{0, 0}};
constexpr Meeting kSplitMeetings[] = {{1, 0}, {0, 0}, {0, 1}};

struct Sides {
  const BFloat16 (*left)[kSteps * kStep];
  const BFloat16 (*right)[kSteps * kStep];
  int64_t places;  // of which `parts` belong together
  int64_t parts;
  std::span<const Meeting> meetings;
};

// c (kSide, kSide) (=|+=) the product of two sides.
void multiply_sides(const Sides& sides, float* c, int64_t ldc, bool add) {
  Isa::V sums[kSquares][kSquares];
#pragma GCC unroll 4
  for (int64_t i = 0; i < kSquares; ++i) {
#pragma GCC unroll 2
    for (int64_t j = 0; j < kSquares; j += 2) {
      const float* const row = c + 2 * i * ldc + 2 * j;
      const Isa::V one = add ? Isa::load(row) : Isa::zero();
      const Isa::V other = add ? Isa::load(row + ldc) : Isa::zero();
      sums[i][j] = Isa::low_halves(one, other), sums[i][j + 1] = Isa::high_halves(one, other);
    }
  }
  for (int64_t place = 0; place < sides.places; place += sides.parts) {
    for (const Meeting& meeting : sides.meetings) {
      const BFloat16* left = sides.left[place + meeting.left];
      const BFloat16* right = sides.right[place + meeting.right];
      for (int64_t step = 0; step < kSteps; ++step, left += kStep, right += kStep) {
        Isa::V rows[kSquares], columns[kSquares];
#pragma GCC unroll 4
        for (int64_t i = 0; i < kSquares; ++i) {
          rows[i] = Isa::load(left + i * kVector), columns[i] = Isa::load(right + i * kVector);
        }
#pragma GCC unroll 4
        for (int64_t i = 0; i < kSquares; ++i) {
#pragma GCC unroll 4
          for (int64_t j = 0; j < kSquares; ++j) {
            sums[i][j] = Isa::multiply(sums[i][j], rows[i], columns[j]);
          }
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int64_t i = 0; i < kSquares; ++i) {
#pragma GCC unroll 2
    for (int64_t j = 0; j < kSquares; j += 2) {
      float* const row = c + 2 * i * ldc + 2 * j;
      Isa::store(Isa::low_halves(sums[i][j], sums[i][j + 1]), row);
      Isa::store(Isa::high_halves(sums[i][j], sums[i][j + 1]), row + ldc);
    }
  }
}

void multiply_squares(const TileBlock& block, float* c, int64_t ldc, bool add) {
  alignas(64) Ordered left, right;
  const bool split = block.form == TileForm::kSplit;
  const int64_t parts = split ? 2 : 1, all = block.tiles * parts;
  const std::span<const Meeting> meetings =
      split ? std::span<const Meeting>(kSplitMeetings) : std::span<const Meeting>(kRoundedMeetings);
  // Once also without tiles, when C becomes 0.
  for (int64_t begin = 0; begin == 0 || begin < all; begin += kPlaces) {
    const int64_t places = std::min(kPlaces, all - begin);
    for (int64_t place = 0; place < places; ++place) {
      const int64_t at = (begin + place) * kElementsPerTile;
      for (int64_t strip = 0; strip < 2; ++strip) {
        order_left(block.a + strip * block.a_strip + at, strip, place, left);
        order_right(block.b + strip * block.b_strip + at, strip, place, right);
      }
    }
    for (int64_t i = 0; i * kSide < block.rows; ++i) {
      for (int64_t j = 0; j * kSide < block.cols; ++j) {
        multiply_sides({left[i], right[j], places, parts, meetings},
                       c + i * kSide * ldc + j * kSide, ldc, add || begin > 0);
      }
    }
  }
}

}  // namespace
}  // namespace tapestry::kernels
