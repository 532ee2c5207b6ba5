#include "core/kernels/cpu/frozen_tiles.h"

#include <algorithm>

#include "core/cpu/parallel.h"
#include "core/kernels/cpu/tile_product.h"

namespace tapestry::kernels {
namespace {

// A task multiplies so many rows of x by so many columns of the product; of these it packs a piece
// of W after the other, which stays in the L2 cache while the rows pass it.
constexpr int64_t kRows = 512, kColumns = 128, kPieceBytes = int64_t{1} << 20;
// Numbers that are widened at a time.
constexpr int64_t kWidened = int64_t{1} << 14;

// Numbers of T, widened a few rows and columns at a time and packed from there.
template <class T>
void pack_numbers(const FrozenMatrix& w, Range rows, Range cols, FrozenSide side,
                  TileOperand& operand) {
  const bool transposed = side == FrozenSide::kTransposed;
  const Cut down{rows.size(), kTileBlock};
  const Cut across{cols.size(), std::max(kTileDepth, kWidened / kTileBlock)};
  Scratch<T> numbers(kTileBlock * std::min(cols.size(), across.length));
  for (int64_t i = 0; i < down.count(); ++i) {
    const Range some{rows.begin + down[i].begin, rows.begin + down[i].end};
    for (int64_t j = 0; j < across.count(); ++j) {
      const Range few{cols.begin + across[j].begin, cols.begin + across[j].end};
      w.read(some, few, numbers.data(), few.size());
      const auto strips_of = [&](Range range, int64_t size) {
        const bool last = range.end == size;
        return Range{range.begin / kTileStrip, last ? operand.strips() : range.end / kTileStrip};
      };
      const auto tiles_of = [](Range range) {
        return Range{range.begin / kTileDepth, (range.end + kTileDepth - 1) / kTileDepth};
      };
      const Range strips =
          transposed ? strips_of(down[i], rows.size()) : strips_of(across[j], cols.size());
      pack_tiles({numbers.data(), few.size(), transposed}, strips,
                 tiles_of(transposed ? across[j] : down[i]), operand);
    }
  }
}

}  // namespace

void pack_frozen(const FrozenMatrix& w, Range rows, Range cols, FrozenSide side,
                 TileOperand& operand) {
  const bool split = operand.form() == TileForm::kSplit;
  (split ? pack_numbers<float> : pack_numbers<BFloat16>)(w, rows, cols, side, operand);
}

void multiply_frozen(
    const TileOperand& x, const FrozenMatrix& w, FrozenSide side,
    const std::function<void(Range rows, Range cols, const float* sums, int64_t stride)>& take) {
  const bool transposed = side == FrozenSide::kTransposed;
  const int64_t tile_bytes = stored_elements(x.form()) * static_cast<int64_t>(sizeof(BFloat16));
  const Cut columns{transposed ? w.rows() : w.cols(), kColumns};
  const Cut depths{transposed ? w.cols() : w.rows(),
                   kPieceBytes / (kColumns / kTileStrip * tile_bytes) * kTileDepth};
  const Cut bands{x.length(), kRows};
  parallel_for(columns.count() * bands.count(), [&](int64_t task) {
    const Range cols = columns[task / bands.count()], band = bands[task % bands.count()];
    Scratch<float> sums(kRows * kColumns);
    for (int64_t i = 0; i < depths.count(); ++i) {
      const Range depth = depths[i];
      TileOperand piece(TileOperand::Side::kRight, cols.size(), depth.size(), x.form());
      pack_frozen(w, transposed ? cols : depth, transposed ? depth : cols, side, piece);
      TileSession().multiply({.a = x.view(band, depth),
                              .b = piece.view(),
                              .c = sums.data(),
                              .ldc = kColumns,
                              .has_room = true,
                              .add = i > 0});
    }
    take(band, cols, sums.data(), kColumns);
  });
}

}  // namespace tapestry::kernels
