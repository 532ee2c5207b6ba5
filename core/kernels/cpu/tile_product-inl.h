// The loops of tile_product.h over a tile unit (tile_units.h), for its source and for tests.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/kernels/cpu/tile_product.h"
#include "core/kernels/cpu/tile_units.h"

namespace tapestry::kernels {

/// How deep and wide a piece of B is that stays in the L2 cache while the strips of A pass, in
/// stored elements: of split operands half of them. Measured on Sapphire Rapids (2 MB of L2): above
/// 768 KiB the rate falls by a tenth or more.
inline constexpr int64_t kTilePieceDepth = 1024;
inline constexpr int64_t kTilePieceColumns = 512;
inline constexpr int64_t kTilePieceBytes = int64_t{768} << 10;

/// Columns of a piece of B for products with inner size k, as it is stored.
inline int64_t tile_piece_columns(int64_t k) {
  const int64_t depth = std::clamp<int64_t>(k, kTileDepth, kTilePieceDepth);
  const int64_t fitting = kTilePieceBytes / (depth * static_cast<int64_t>(sizeof(BFloat16)));
  return std::min(kTilePieceColumns, fitting / kTileBlock * kTileBlock);
}

/// Multiplies the tiles of a block at one place of k, which the registers 4 to 7 hold, and adds
/// them to the sums. Each register is loaded with the tile of the next place, if there is one, as
/// soon as its last product began; `coming` is fetched meanwhile. kFirst, 6 or 7, is the right
/// register that goes first: the other one is then free first, and goes first at the next place.
template <class Unit, int kFirst>
inline void multiply_tile(const TileBlock& block, int64_t next, const BFloat16* coming) {
  constexpr int64_t kRow = kTileDepth * sizeof(BFloat16);
  constexpr int kSecond = 6 + 7 - kFirst, kC = kFirst - 6, kOther = kSecond - 6;
  const bool more = next < block.tiles;
  const BFloat16 *const a = block.a + next * kElementsPerTile, *const b = block.b +
                                                                          next * kElementsPerTile;
  Unit::template multiply<kC, 4, kFirst>();
  Unit::template multiply<kOther, 4, kSecond>();
  if (more) Unit::template load<4>(a, kRow);
  Unit::fetch(coming);
  Unit::template multiply<2 + kOther, 5, kSecond>();
  if (more) Unit::template load<kSecond>(b + kOther * block.b_strip, kRow);
  Unit::fetch(coming + block.b_strip);
  Unit::template multiply<2 + kC, 5, kFirst>();
  if (more) Unit::template load<5>(a + block.a_strip, kRow);
  if (more) Unit::template load<kFirst>(b + kC * block.b_strip, kRow);
}

/// Adds the products of all tiles of a block to the sums, the tiles 0 to 3. The columns' tiles are
/// fetched from the L2 cache two places ahead: where a neighbour shares the core, few loads and
/// products are under way at once, and each that waits for the L2 cache holds up the others.
/// Measured on Sapphire Rapids, against loads just before their products: 1.35 to 1.45 times as
/// fast with such a neighbour, as fast without. Of split operands it gains nothing.
template <class Unit>
inline void add_tiles(const TileBlock& block, auto&& before_tile) {
  constexpr int64_t kRow = kTileDepth * sizeof(BFloat16);
  if (block.tiles == 0) return;
  Unit::template load<4>(block.a, kRow);
  Unit::template load<6>(block.b, kRow);
  Unit::template load<7>(block.b + block.b_strip, kRow);
  Unit::template load<5>(block.a + block.a_strip, kRow);
  for (int64_t t = 0; t < block.tiles; ++t) {
    before_tile();
    // Of this block, or of the one that lies behind it.
    const int64_t ahead = t + 2, beyond = ahead - block.tiles;
    const BFloat16* const coming = beyond < 0
                                       ? block.b + ahead * kElementsPerTile
                                       : block.b + 2 * block.b_strip + beyond * kElementsPerTile;
    if (t % 2 == 0) {
      multiply_tile<Unit, 6>(block, t + 1, coming);
    } else {
      multiply_tile<Unit, 7>(block, t + 1, coming);
    }
  }
}

/// The same of split operands: low high + high high + high low, in this order, so that each part is
/// loaded once: 8 loads for 12 products. low low, at most 2^-16 of the product, is left out.
template <class Unit>
inline void add_split_tiles(const TileBlock& block, auto&& before_tile) {
  constexpr int64_t kRow = kTileDepth * sizeof(BFloat16), kLow = kElementsPerTile;
  const BFloat16 *a = block.a, *b = block.b;
  for (int64_t t = 0; t < block.tiles; ++t, a += 2 * kLow, b += 2 * kLow) {
    before_tile();
    Unit::template load<4>(a + kLow, kRow);
    Unit::template load<6>(b, kRow);
    Unit::template multiply<0, 4, 6>();
    Unit::template load<7>(b + block.b_strip, kRow);
    Unit::template multiply<1, 4, 7>();
    Unit::template load<5>(a + kLow + block.a_strip, kRow);
    Unit::template multiply<2, 5, 6>();
    Unit::template multiply<3, 5, 7>();
    Unit::template load<4>(a, kRow);
    Unit::template multiply<0, 4, 6>();
    Unit::template multiply<1, 4, 7>();
    Unit::template load<5>(a + block.a_strip, kRow);
    Unit::template multiply<2, 5, 6>();
    Unit::template multiply<3, 5, 7>();
    Unit::template load<6>(b + kLow, kRow);
    Unit::template multiply<0, 4, 6>();
    Unit::template multiply<2, 5, 6>();
    Unit::template load<7>(b + kLow + block.b_strip, kRow);
    Unit::template multiply<1, 4, 7>();
    Unit::template multiply<3, 5, 7>();
  }
}

/// c (32, 32) (=|+=) the product of a block.
template <class Unit>
inline void multiply_in_registers(const TileBlock& block, float* c, int64_t ldc, bool add) {
  const int64_t stride = ldc * static_cast<int64_t>(sizeof(float));
  float* const below = c + kTileStrip * ldc;
  if (add) {
    Unit::template load<0>(c, stride);
    Unit::template load<1>(c + kTileStrip, stride);
    Unit::template load<2>(below, stride);
    Unit::template load<3>(below + kTileStrip, stride);
  } else {
    Unit::template zero<0>();
    Unit::template zero<1>();
    Unit::template zero<2>();
    Unit::template zero<3>();
  }
  // The lines of C come while the tiles multiply.
  const int64_t rows_per_tile = (kTileBlock + block.tiles - 1) / std::max<int64_t>(1, block.tiles);
  int64_t row = 0;
  const auto fetch_some = [&] {
    for (const int64_t end = std::min(kTileBlock, row + rows_per_tile); row < end; ++row) {
      Unit::prefetch(c + row * ldc);
      Unit::prefetch(c + row * ldc + kTileStrip);
    }
  };
  if (block.form == TileForm::kSplit) {
    add_split_tiles<Unit>(block, fetch_some);
  } else {
    add_tiles<Unit>(block, fetch_some);
  }
  Unit::template store<0>(c, stride);
  Unit::template store<1>(c + kTileStrip, stride);
  Unit::template store<2>(below, stride);
  Unit::template store<3>(below + kTileStrip, stride);
}

/// The same on a unit of either kind.
template <class Unit>
inline void multiply_block(const TileBlock& block, float* c, int64_t ldc, bool add) {
  if constexpr (requires { Unit::template zero<0>(); }) {
    multiply_in_registers<Unit>(block, c, ldc, add);
  } else {
    Unit::multiply_block(block, c, ldc, add);
  }
}

/// The same where C has room only for what is wanted.
template <class Unit>
inline void multiply_edge(const TileBlock& block, float* c, int64_t ldc, bool add) {
  alignas(64) float sums[kTileBlock * kTileBlock] = {};
  const auto bytes = static_cast<size_t>(block.cols) * sizeof(float);
  if (add) {
    for (int64_t r = 0; r < block.rows; ++r) std::memcpy(sums + r * kTileBlock, c + r * ldc, bytes);
  }
  multiply_block<Unit>(block, sums, kTileBlock, add);
  for (int64_t r = 0; r < block.rows; ++r) std::memcpy(c + r * ldc, sums + r * kTileBlock, bytes);
}

template <class Unit>
void multiply_piece(const TileProduct& p, Range rows, Range cols);

/// The same rows and columns as multiply_piece(), a few columns of a strip after the other, so that
/// `take` finds the sums in the L1 cache. Measured on Zen 4: 128 columns take 2 to 6 % less time
/// than a strip of all 512, and less than 64 or 256.
template <class Unit>
void multiply_and_hand_over(const TileProduct& p, Range rows, Range cols) {
  constexpr int64_t kColumns = 4 * kTileBlock;
  alignas(64) float sums[kTileBlock * kColumns];
  for (int64_t i = rows.begin; i < rows.end; i += kTileBlock) {
    const Range some{i, std::min(i + kTileBlock, rows.end)};
    for (int64_t j = cols.begin; j < cols.end; j += kColumns) {
      const Range few{j, std::min(j + kColumns, cols.end)};
      TileProduct piece{.a = p.a, .b = p.b, .c = sums, .ldc = kColumns, .has_room = true};
      piece.a.data = p.a.tile(i / kTileStrip, 0), piece.a.length = some.size();
      piece.b.data = p.b.tile(j / kTileStrip, 0), piece.b.length = few.size();
      multiply_piece<Unit>(piece, {0, some.size()}, {0, few.size()});
      p.take(some, few, sums, kColumns);
    }
  }
}

/// Rows and columns of C that begin at multiples of kTileBlock; the columns are at most a piece.
/// The unit must be open.
template <class Unit>
void multiply_piece(const TileProduct& p, Range rows, Range cols) {
  if (p.take) return multiply_and_hand_over<Unit>(p, rows, cols);
  const TileForm form = p.a.form;
  const int64_t tiles_per_piece = kTilePieceDepth * kTileStrip / stored_elements(form);
  // Once also where k is 0, and C becomes 0.
  for (int64_t t = 0; t == 0 || t < p.a.tiles; t += tiles_per_piece) {
    const int64_t tiles = std::min(tiles_per_piece, p.a.tiles - t);
    const bool add = p.add || t > 0;
    for (int64_t i = rows.begin; i < rows.end; i += kTileBlock) {
      const int64_t height = std::min(kTileBlock, rows.end - i);
      const BFloat16* const a = p.a.tile(i / kTileStrip, t);
      for (int64_t j = cols.begin; j < cols.end; j += kTileBlock) {
        const int64_t width = std::min(kTileBlock, cols.end - j);
        const TileBlock block{.a = a,
                              .a_strip = p.a.strip_stride,
                              .b = p.b.tile(j / kTileStrip, t),
                              .b_strip = p.b.strip_stride,
                              .tiles = tiles,
                              .form = form,
                              .rows = height,
                              .cols = width};
        float* const c = p.c + i * p.ldc + j;
        if (p.has_room || (height == kTileBlock && width == kTileBlock)) {
          multiply_block<Unit>(block, c, p.ldc, add);
        } else {
          multiply_edge<Unit>(block, c, p.ldc, add);
        }
      }
    }
  }
}

/// The pieces of C that tasks take, in the order in which `threads` threads take them: each has
/// rows of its own, and passes them all by a piece of B before the next piece.
class TilePieces {
 public:
  /// `k` as it is stored.
  TilePieces(int64_t m, int64_t n, int64_t k, int64_t threads) {
    if (m == 0 || n == 0) return;
    const auto even = [](int64_t size, int64_t parts) {
      const int64_t length = (size + parts - 1) / parts;
      return Cut{size, std::max<int64_t>(1, (length + kTileBlock - 1) / kTileBlock) * kTileBlock};
    };
    const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) *
                         static_cast<double>(std::max<int64_t>(k, 1));
    // Several tasks a thread, so that one which another program delays can be helped.
    const int64_t wanted =
        std::clamp<int64_t>(static_cast<int64_t>(flops / kLeastTaskFlops), 1, 4 * threads);
    const int64_t wide = (n + tile_piece_columns(k) - 1) / tile_piece_columns(k);
    const int64_t blocks_of_rows = (m + kTileBlock - 1) / kTileBlock;
    const int64_t row_parts = std::min(blocks_of_rows, (wanted + wide - 1) / wide);
    rows_ = even(m, std::max<int64_t>(1, row_parts));
    cols_ = even(n, std::max(wide, std::min((wanted + rows_.count() - 1) / rows_.count(),
                                            (n + kTileBlock - 1) / kTileBlock)));
    bands_ = std::min(threads, rows_.count());
  }

  int64_t count() const { return rows_.count() * cols_.count(); }
  std::pair<Range, Range> operator[](int64_t task) const {
    // Bands of rows, the first ones larger by one where the count does not divide.
    const int64_t parts = rows_.count(), small = parts / bands_, large = parts % bands_;
    int64_t begin = 0, size = 0;
    for (int64_t band = 0; band < bands_; ++band, begin += size) {
      size = small + (band < large ? 1 : 0);
      if (task < size * cols_.count()) break;
      task -= size * cols_.count();
    }
    return {rows_[begin + task % size], cols_[task / size]};
  }

 private:
  // A task of this size takes about 5 us on AMX, and handing it out 0.2 us.
  static constexpr double kLeastTaskFlops = 6e6;
  Cut rows_, cols_;
  int64_t bands_ = 1;
};

}  // namespace tapestry::kernels
