// Operands of products of bfloat16: rounded to it and stored tile by tile, so that AMX loads each
// tile with one instruction from one KiB of dense memory, and VDPBF16PS reads it forward. Packed
// once per product and read by all threads.
//
// A strip is 16 rows of the left operand, or 16 columns of the right one, along all of k. A tile is
// 32 elements of k of a strip. In a left tile, row r holds its 32 elements; in a right tile, row p
// holds the pairs (2p, 2p + 1) of the 16 columns side by side. Strips are padded with zeros to an
// even number, and k to a multiple of 32.
//
// Where float32 must keep more than the 8 bits of bfloat16, an operand is split: each tile is
// followed by one of what rounding lost. That is 4 bytes an element; a product reads each part
// once for three products of bfloat16 (tile_product-inl.h). Storing them as the operands of one
// product, with the tiles high, high, low against high, low, high, would take 6 bytes and half as
// many loads again.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <type_traits>
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

enum class TileForm {
  kRounded,  ///< elements rounded to bfloat16
  kSplit,    ///< two tiles, high and low: float elements up to 2^-17 of their size
};
/// The form of operands that are tensors of T.
template <class T>
inline constexpr TileForm kTileForm =
    std::is_same_v<T, float> ? TileForm::kSplit : TileForm::kRounded;

/// Elements that a form stores of one tile.
constexpr int64_t stored_elements(TileForm form) {
  return form == TileForm::kSplit ? 2 * kElementsPerTile : kElementsPerTile;
}

/// Rows (or columns) and tiles of a packed operand, for a product to read.
struct TileView {
  const BFloat16* data = nullptr;
  int64_t length = 0;        ///< rows or columns
  int64_t tiles = 0;         ///< of each strip
  int64_t strip_stride = 0;  ///< elements between strips
  TileForm form = TileForm::kRounded;

  const BFloat16* tile(int64_t strip, int64_t i) const {
    return data + strip * strip_stride + i * stored_elements(form);
  }
  /// Elements along k as they are stored.
  int64_t stored_depth() const { return tiles * stored_elements(form) / kTileStrip; }
};

class TileOperand {
 public:
  enum class Side { kLeft, kRight };

  /// Uninitialised memory for `length` rows or columns with inner size k.
  TileOperand(Side side, int64_t length, int64_t k, TileForm form = TileForm::kRounded)
      : side_(side),
        form_(form),
        length_(length),
        k_(k),
        own_(std::in_place, room(length, k) * (stored_elements(form) / kElementsPerTile)),
        data_(own_->data()) {}
  /// A rounded one in memory of room(length, k) elements, aligned to 64 bytes, that outlives it.
  TileOperand(Side side, int64_t length, int64_t k, BFloat16* memory)
      : side_(side), length_(length), k_(k), data_(memory) {}

  static int64_t room(int64_t length, int64_t k) {
    return (length + kTileBlock - 1) / kTileBlock * kTileBlock *
           ((k + kTileDepth - 1) / kTileDepth * kTileDepth);
  }

  Side side() const { return side_; }
  TileForm form() const { return form_; }
  int64_t length() const { return length_; }
  int64_t k() const { return k_; }
  int64_t strips() const { return (length_ + kTileBlock - 1) / kTileBlock * 2; }
  int64_t tiles() const { return (k_ + kTileDepth - 1) / kTileDepth; }  ///< of a strip
  BFloat16* tile(int64_t strip, int64_t i) {
    return data_ + (strip * tiles() + i) * stored_elements(form_);
  }
  /// Fills it on the calling thread; see pack_tiles().
  void pack(const Factor& source);

  TileView view() const { return view({0, length_}, {0, k_}); }
  /// Ranges of rows (or columns) and of k, which begin at multiples of two strips and of a tile.
  TileView view(Range length, Range k) const {
    const int64_t tile = stored_elements(form_), stride = tiles() * tile;
    return {data_ + length.begin / kTileStrip * stride + k.begin / kTileDepth * tile, length.size(),
            (k.size() + kTileDepth - 1) / kTileDepth, stride, form_};
  }

 private:
  Side side_;
  TileForm form_ = TileForm::kRounded;
  int64_t length_, k_;
  std::optional<Scratch<BFloat16>> own_;
  BFloat16* data_;
};

/// Fills the tiles `tiles` of the strips `strips`; `source` begins with the first element of the
/// first of them. Floats are rounded to the nearest, ties to even, subnormal numbers to 0.
///
/// A split operand has a source of floats: high = bfloat16(x) and low = bfloat16(x - high), but
/// high is the largest finite number where x is finite and would round to infinity, and +-1 where x
/// is infinite, so that low is. So an infinite factor gives what it gives in a product of floats:
/// in high it would meet a low of 0 or of the other sign, and become NaN.
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
