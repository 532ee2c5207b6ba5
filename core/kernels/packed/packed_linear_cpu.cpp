#include "core/kernels/packed/packed_linear.h"

#include <algorithm>

#include "core/cpu/parallel.h"
#include "core/kernels/cpu/linear_rows.h"
#include "core/kernels/packed/packed_tile.h"
#include "core/kernels/packed/quantize.h"
#include "core/profile.h"
#include "core/scratch.h"

namespace tapestry::kernels {
namespace {

// The rows of a tile stay in the L2 cache while all its panels pass them.
constexpr int64_t kTileBytes = int64_t{1} << 18;
constexpr int64_t kLeastTileRows = 56;
// A smaller task is not worth a thread: 1 MFLOP takes 10 us, and so does reading 256 KiB.
constexpr int64_t kLeastTaskFlops = int64_t{1} << 20;
constexpr int64_t kLeastTaskBytes = int64_t{1} << 18;

bool is_int8(const PackedLinear& args) { return args.weight.format() == WeightFormat::kInt8; }

// The rows of x as tiles read them: rounded, or where they are, or moved apart.
class TileRows {
 public:
  TileRows(const PackedLinear& args, uint8_t flip)
      : args_(args),
        int8_(is_int8(args)),
        copied_(!int8_ && args.rows > kFewRows && args.weight.cols() % kAlias == 0),
        stride_(int8_     ? padded_bytes(args.weight.cols()) + kLine
                : copied_ ? args.weight.cols() + kLine
                          : args.weight.cols()),
        bytes_(int8_ ? args.rows * stride_ : 0),
        scales_(int8_ ? args.rows : 0),
        floats_(copied_ ? args.rows * stride_ : 0) {
    if (!int8_ && !copied_) return;
    const int64_t grain = std::max<int64_t>(1, kLeastTaskBytes / (8 * args.weight.cols()));
    parallel_ranges(args.rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) int8_ ? round(row, flip) : copy(row);
    });
  }

  /// The rows from `row` on.
  void give(int64_t row, PackedTile& tile) const {
    tile.ldx = stride_;
    if (int8_) {
      tile.q = bytes_.data() + row * stride_, tile.scales = scales_.data() + row;
    } else {
      tile.x = (copied_ ? floats_.data() : args_.x) + row * stride_;
    }
  }

 private:
  void round(int64_t row, uint8_t flip) {
    const int64_t cols = args_.weight.cols();
    uint8_t* const q = bytes_.data() + row * stride_;
    scales_[row] = quantize_row(args_.x + row * cols, cols, flip, q);
    std::fill_n(q + cols, padded_bytes(cols) - cols, uint8_t{0});
  }
  void copy(int64_t row) {
    const int64_t cols = args_.weight.cols();
    std::copy_n(args_.x + row * cols, cols, floats_.data() + row * stride_);
  }

  // Rows a multiple of 4 KiB apart fall into the same sets of the L1 cache, each for 8 lines.
  static constexpr int64_t kAlias = 1024, kFewRows = 8;
  static constexpr int64_t kLine = 64;

  const PackedLinear& args_;
  const bool int8_, copied_;
  const int64_t stride_;
  Scratch<uint8_t> bytes_;
  Scratch<float> scales_, floats_;
};

// How y is cut for the threads: bits do not depend on it.
struct Cuts {
  explicit Cuts(const PackedLinear& args) {
    const PackedMatrix& w = args.weight;
    const int64_t row_bytes = std::max<int64_t>(1, w.cols() * static_cast<int64_t>(sizeof(float)));
    rows = {args.rows,
            std::min(args.rows, std::max<int64_t>(kTileBytes / row_bytes, kLeastTileRows))};
    const int64_t flops = 2 * args.rows * w.rows() * w.cols();
    const int64_t affordable = std::max(flops / kLeastTaskFlops, w.bytes() / kLeastTaskBytes);
    // Several tasks a thread, so that one which another program delays can be helped.
    const int64_t tasks = std::clamp<int64_t>(affordable, 1, 4 * num_threads());
    const int64_t parts = (tasks + rows.count() - 1) / rows.count();
    const int64_t length = (w.panels() + parts - 1) / parts;
    panels = {w.panels(), (length + kPanelMultiple - 1) / kPanelMultiple * kPanelMultiple};
  }
  int64_t count() const { return rows.count() * panels.count(); }

  static constexpr int64_t kPanelMultiple = 4;  // of every strip's width
  Cut rows, panels;
};

}  // namespace

void packed_linear(Cpu, const PackedLinear& args) {
  const PackedMatrix& w = args.weight;
  if (args.rows == 0 || w.rows() == 0) return;
  const ProfileScope profile(Part::kProducts);
  const Int8Tile int8_tile = packed_int8_tile(int8_kernel());
  const PackedTileFunction float32_tile = packed_float32_tile();
  const TileRows x(args, int8_tile.flip);
  const Cuts cuts(args);
  parallel_for(cuts.count(), [&](int64_t task) {
    const Range rows = cuts.rows[task / cuts.panels.count()];
    PackedTile tile{.weight = w, .panels = cuts.panels[task % cuts.panels.count()]};
    tile.rows = rows.size();
    tile.bias = args.bias;
    tile.y = args.y + rows.begin * w.rows(), tile.ldy = w.rows();
    x.give(rows.begin, tile);
    (is_int8(args) ? int8_tile.run : float32_tile)(tile);
    if (args.activation == Activation::kNone) return;
    const int64_t first = tile.panels.begin * PackedMatrix::kPanel;
    const int64_t count = std::min(tile.panels.end * PackedMatrix::kPanel, w.rows()) - first;
    for (int64_t r = 0; r < tile.rows; ++r) {
      float* const y = tile.y + r * tile.ldy + first;
      linear_rows_functions<float>().finish(args.activation, nullptr, y, nullptr, y, count);
    }
  });
}

}  // namespace tapestry::kernels
