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

// The rows of x as tiles read them: rounded, or where they are, or moved apart.
class TileRows {
 public:
  explicit TileRows(const PackedLinear& args)
      : args_(args),
        cols_(args.weight.cols()),
        form_(form_of(args)),
        groups_(form_ == Form::kInt4 ? Cut{cols_, PackedMatrix::kInt4Columns}.count() : 1),
        rounds_(rounds_rows(args.weight.format())),
        stride_(rounds_                 ? padded_bytes(cols_) + kLine
                : form_ == Form::kApart ? cols_ + kLine
                                        : cols_),
        bytes_(rounds_ ? args.rows * stride_ : 0),
        scales_(rounds_ ? args.rows * groups_ : 0),
        starts_(form_ == Form::kInt4 ? args.rows * groups_ : 0),
        floats_(form_ == Form::kApart ? args.rows * stride_ : 0) {
    if (form_ == Form::kThere) return;
    const uint8_t flip = packed_integer_tiles(int8_kernel()).flip;
    const int64_t grain = std::max<int64_t>(1, kLeastTaskBytes / (8 * std::max<int64_t>(1, cols_)));
    parallel_ranges(args.rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) prepare(row, flip);
    });
  }

  /// The rows from `row` on.
  void give(int64_t row, PackedTile& tile) const {
    tile.ldx = stride_;
    if (!rounds_) {
      tile.x = (form_ == Form::kApart ? floats_.data() : args_.x) + row * stride_;
      return;
    }
    tile.q = bytes_.data() + row * stride_, tile.scales = scales_.data() + row * groups_;
    if (form_ == Form::kInt4) tile.starts = starts_.data() + row * groups_;
  }

 private:
  enum class Form { kThere, kApart, kInt8, kInt4 };
  static Form form_of(const PackedLinear& args) {
    if (args.weight.format() == WeightFormat::kInt8) return Form::kInt8;
    if (args.weight.format() == WeightFormat::kInt4) return Form::kInt4;
    return args.rows > kFewRows && args.weight.cols() % kAlias == 0 ? Form::kApart : Form::kThere;
  }

  void prepare(int64_t row, uint8_t flip) {
    const float* const x = args_.x + row * cols_;
    if (form_ == Form::kApart) {
      std::copy_n(x, cols_, floats_.data() + row * stride_);
      return;
    }
    uint8_t* const q = bytes_.data() + row * stride_;
    std::fill_n(q + cols_, padded_bytes(cols_) - cols_, uint8_t{0});
    if (form_ == Form::kInt8) {
      scales_[row] = quantize_row(x, cols_, flip, q);
      return;
    }
    for (int64_t g = 0; g < groups_; ++g) {
      const auto [begin, end] = Cut{cols_, PackedMatrix::kInt4Columns}[g];
      scales_[row * groups_ + g] = quantize_row(x + begin, end - begin, 0, q + begin);
      int32_t sum = 0;
      for (int64_t k = begin; k < end; ++k) sum += static_cast<int8_t>(q[k]);
      starts_[row * groups_ + g] = -8 * sum;
    }
  }

  // Rows a multiple of 4 KiB apart fall into the same sets of the L1 cache, each for 8 lines.
  static constexpr int64_t kAlias = 1024, kFewRows = 8;
  static constexpr int64_t kLine = 64;

  const PackedLinear& args_;
  const int64_t cols_;
  const Form form_;
  const int64_t groups_;
  const bool rounds_;
  const int64_t stride_;
  Scratch<uint8_t> bytes_;
  Scratch<float> scales_;
  Scratch<int32_t> starts_;
  Scratch<float> floats_;
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
  const PackedTileFunction multiply = packed_tile(w.format());
  const TileRows x(args);
  const Cuts cuts(args);
  parallel_for(cuts.count(), [&](int64_t task) {
    const Range rows = cuts.rows[task / cuts.panels.count()];
    PackedTile tile{.weight = w, .panels = cuts.panels[task % cuts.panels.count()]};
    tile.rows = rows.size();
    tile.bias = args.bias;
    tile.y = args.y + rows.begin * w.rows(), tile.ldy = w.rows();
    x.give(rows.begin, tile);
    multiply(tile);
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
