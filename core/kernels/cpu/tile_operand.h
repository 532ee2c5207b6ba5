// Operands of products on tiles (AMX): rounded to bfloat16 and stored tile by tile, so that a
// product loads each tile with one instruction from one KiB of dense memory. Packed once per
// product and read by all threads.
//
// A strip is 16 rows of the left operand, or 16 columns of the right one, along all of k. A tile is
// 32 elements of k of a strip. In a left tile, row r holds its 32 elements; in a right tile, row p
// holds the pairs (2p, 2p + 1) of the 16 columns side by side. Strips are padded with zeros to an
// even number, and k to a multiple of 32.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>

#include "core/bfloat16.h"
#include "core/kernels/cpu/factor.h"
#include "core/kernels/cpu/tile_grid.h"
#include "core/scratch.h"

namespace tapestry::kernels {

inline constexpr int64_t kTileStrip = 16;  // rows or columns
inline constexpr int64_t kTileDepth = 32;  // elements of k
/// A block of C is two strips by two: four sums, two tiles of A and two of B fill the registers.
inline constexpr int64_t kTileBlock = 2 * kTileStrip;
inline constexpr int64_t kElementsPerTile = kTileStrip * kTileDepth;

/// Rows (or columns) and tiles of a packed operand, for a product to read.
struct TileView {
  const BFloat16* data = nullptr;
  int64_t length = 0;        ///< rows or columns
  int64_t tiles = 0;         ///< of each strip
  int64_t strip_stride = 0;  ///< elements between strips

  const BFloat16* tile(int64_t strip, int64_t i) const {
    return data + strip * strip_stride + i * kElementsPerTile;
  }
};

class TileOperand {
 public:
  enum class Side { kLeft, kRight };

  /// Uninitialised memory for `length` rows or columns with inner size k.
  TileOperand(Side side, int64_t length, int64_t k)
      : side_(side),
        length_(length),
        k_(k),
        own_(std::in_place, room(length, k)),
        data_(own_->data()) {}
  /// The same in memory of room(length, k) elements, aligned to 64 bytes, that outlives it.
  TileOperand(Side side, int64_t length, int64_t k, BFloat16* memory)
      : side_(side), length_(length), k_(k), data_(memory) {}

  static int64_t room(int64_t length, int64_t k) {
    return (length + kTileBlock - 1) / kTileBlock * kTileBlock *
           ((k + kTileDepth - 1) / kTileDepth * kTileDepth);
  }

  Side side() const { return side_; }
  int64_t length() const { return length_; }
  int64_t k() const { return k_; }
  int64_t strips() const { return (length_ + kTileBlock - 1) / kTileBlock * 2; }
  int64_t tiles() const { return (k_ + kTileDepth - 1) / kTileDepth; }  ///< of a strip
  BFloat16* tile(int64_t strip, int64_t i) {
    return data_ + (strip * tiles() + i) * kElementsPerTile;
  }
  /// Fills it on the calling thread; see pack_tiles().
  void pack(const Factor& source);

  TileView view() const { return view({0, length_}, {0, k_}); }
  /// Ranges of rows (or columns) and of k, which begin at multiples of two strips and of a tile.
  TileView view(Range length, Range k) const {
    const int64_t stride = tiles() * kElementsPerTile;
    return {data_ + length.begin / kTileStrip * stride + k.begin / kTileDepth * kElementsPerTile,
            length.size(), (k.size() + kTileDepth - 1) / kTileDepth, stride};
  }

 private:
  Side side_;
  int64_t length_, k_;
  std::optional<Scratch<BFloat16>> own_;
  BFloat16* data_;
};

/// Fills the tiles `tiles` of the strips `strips`; `source` begins with the first element of the
/// first of them. Floats are rounded to the nearest, ties to even, subnormal numbers to 0.
void pack_tiles(const Factor& source, Range strips, Range tiles, TileOperand& operand);

/// Fills a whole operand by tasks that may run side by side.
class TilePacking {
 public:
  TilePacking(TileOperand& operand, const Factor& source);
  int64_t tasks() const { return strips_.count() * tiles_.count(); }
  void run(int64_t task) const;

 private:
  TileOperand* operand_;
  Factor source_;
  Cut strips_, tiles_;
};

/// Fills whole operands on all threads.
void pack_operands(std::initializer_list<TilePacking> packings);

/// pack_tiles() in plain loops, which tests compare it with.
void pack_tiles_plainly(const Factor& source, Range strips, Range tiles, TileOperand& operand);

}  // namespace tapestry::kernels
