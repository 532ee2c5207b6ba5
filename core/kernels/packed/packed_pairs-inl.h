// Products of bytes by instructions that multiply two rows of eight bytes by two columns: SMMLA of
// ARM64.
//
// Included once by the source of each instruction set, which defines Isa: the vectors of
// word_vectors.h, and
//   multiply(sums, rows, columns): sums (2, 2 int32) += the product of two rows and two columns of
//     eight signed bytes each
//   one_row(tile): a tile of one row, of which it would multiply only half
#include "core/kernels/cpu/word_vectors.h"
#include "core/kernels/packed/packed_tile.h"
#include "core/scratch.h"

namespace tapestry::kernels {
namespace {

constexpr int64_t kPanel = PackedMatrix::kPanel;
constexpr int64_t kGroup = PackedMatrix::kGroup;
constexpr int64_t kDepth = 8;               // columns of x that an instruction takes
constexpr int64_t kStepBytes = 2 * kDepth;  // of two rows
constexpr int64_t kMostPairs = 4;           // of rows in a strip

// The rows of a tile two by two, so that eight bytes of both lie side by side. A last row without
// another one gets zeros.
class RowPairs {
 public:
  explicit RowPairs(const PackedTile& tile)
      : count_((tile.rows + 1) / 2),
        steps_((tile.weight.cols() + kDepth - 1) / kDepth),
        bytes_(count_ * steps_ * kStepBytes) {
    for (int64_t pair = 0; pair < count_; ++pair) {
      const uint8_t* const first = tile.q + 2 * pair * tile.ldx;
      uint8_t* out = bytes_.data() + pair * steps_ * kStepBytes;
      const bool has_second = 2 * pair + 1 < tile.rows;
      for (int64_t k = 0; k < steps_ * kDepth; k += kDepth, out += kStepBytes) {
        std::memcpy(out, first + k, kDepth);
        if (has_second) {
          std::memcpy(out + kDepth, first + tile.ldx + k, kDepth);
        } else {
          std::memset(out + kDepth, 0, kDepth);
        }
      }
    }
  }
  int64_t count() const { return count_; }
  int64_t steps() const { return steps_; }
  const uint8_t* pair(int64_t i) const { return bytes_.data() + i * steps_ * kStepBytes; }

 private:
  int64_t count_, steps_;
  Scratch<uint8_t> bytes_;
};

// sums (2 kPairs, kPanel) = the product of some pairs of rows and a panel. As many of its columns
// at a time as leave 16 sums or fewer, so that they fit the registers.
template <int kPairs>
void multiply_pairs(const PackedTile& tile, const RowPairs& rows, int64_t first_pair, int64_t panel,
                    int32_t* sums) {
  constexpr int kWidth = kPairs == 1 ? 16 : kPairs == 2 ? 8 : 4;  // pairs of columns
  for (int64_t column = 0; column < kPanel; column += 2 * kWidth) {
    Isa::V totals[kPairs][kWidth];
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p) {
#pragma GCC unroll 16
      for (int v = 0; v < kWidth; ++v) totals[p][v] = Isa::zero();
    }
    const uint8_t* x = rows.pair(first_pair);
    const int8_t* w = tile.weight.panel<int8_t>(panel) + column * kGroup;
    for (int64_t s = 0; s < rows.steps(); ++s, x += kStepBytes, w += kDepth * kPanel) {
      Isa::V left[kPairs];
#pragma GCC unroll 4
      for (int p = 0; p < kPairs; ++p) left[p] = Isa::load(x + p * rows.steps() * kStepBytes);
#pragma GCC unroll 8
      for (int v = 0; v < kWidth; v += 2) {
        // Of four columns, the first four bytes and the second four.
        const Isa::V a = Isa::load(w + v * 2 * kGroup);
        const Isa::V b = Isa::load(w + v * 2 * kGroup + kGroup * kPanel);
        const Isa::V one = Isa::low_words(a, b), other = Isa::high_words(a, b);
#pragma GCC unroll 4
        for (int p = 0; p < kPairs; ++p) {
          totals[p][v] = Isa::multiply(totals[p][v], left[p], one);
          totals[p][v + 1] = Isa::multiply(totals[p][v + 1], left[p], other);
        }
      }
    }
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p) {
      int32_t* const out = sums + 2 * p * kPanel + column;
#pragma GCC unroll 8
      for (int v = 0; v < kWidth; v += 2) {
        Isa::store(Isa::low_halves(totals[p][v], totals[p][v + 1]), out + 2 * v);
        Isa::store(Isa::high_halves(totals[p][v], totals[p][v + 1]), out + 2 * v + kPanel);
      }
    }
  }
}

void multiply_tile(const PackedTile& tile) {
  if (tile.rows == 1) return Isa::one_row(tile);
  static constexpr std::array kStrips = {multiply_pairs<1>, multiply_pairs<2>, multiply_pairs<3>,
                                         multiply_pairs<4>};
  static_assert(kStrips.size() == kMostPairs);
  const DeliverFunction deliver = packed_int8_deliver();
  const RowPairs rows(tile);
  // Strips of nearly equal height.
  const int64_t strips = (rows.count() + kMostPairs - 1) / kMostPairs;
  alignas(64) int32_t sums[2 * kMostPairs * kPanel];
  for (int64_t panel = tile.panels.begin; panel < tile.panels.end; ++panel) {
    for (int64_t s = 0; s < strips; ++s) {
      const int64_t begin = rows.count() * s / strips, end = rows.count() * (s + 1) / strips;
      kStrips[static_cast<size_t>(end - begin - 1)](tile, rows, begin, panel, sums);
      deliver(tile, {2 * begin, std::min(2 * end, tile.rows)}, panel, sums, 0);
    }
  }
}

}  // namespace
}  // namespace tapestry::kernels
