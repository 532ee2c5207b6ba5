// For each chunk of rows: first the logits, tile by tile, with their exponentials taken while a
// tile is in the cache; then the row sums; then, tile by tile again, dz and its two products. The
// logits of a chunk are stored tile after tile, so that every product works on dense memory.
#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>
#include <vector>

#include "core/kernels/cpu/classifier_tiles.h"
#include "core/kernels/cpu/rounded_product.h"
#include "core/kernels/cpu/tile_grid.h"
#include "core/kernels/cross_entropy.h"
#include "core/kernels/cross_entropy_rows.h"
#include "core/kernels/gemm.h"
#include "core/parallel.h"
#include "core/profile.h"
#include "core/scratch.h"

namespace tapestry {
namespace {

constexpr int64_t kTileClasses = 256;
constexpr int64_t kBlockRows = 512;
constexpr int64_t kTasks = 8;  // at least, if the shape allows it
constexpr int64_t kLogitBytes = int64_t{64} << 20;

using kernels::Cut;
using kernels::Range;

// [0, size) in equal pieces of at most `longest`, which are multiples of `step`.
Cut even_cut(int64_t size, int64_t longest, int64_t step) {
  const int64_t pieces = std::max<int64_t>(1, (size + longest - 1) / longest);
  const int64_t length = (size + pieces - 1) / pieces;
  return {size, std::max<int64_t>(step, (length + step - 1) / step * step)};
}

// How the work is cut: classes into tiles, tiles into groups, rows into chunks, chunks into blocks.
// A task computes the gradients of one block and one group.
struct Plan {
  Plan(int64_t rows, int64_t classes, int64_t element_bytes, int64_t step)
      : tiles(even_cut(classes, kTileClasses, step)), groups(tiles.count(), kTasks) {
    const int64_t blocks = (kTasks + groups.count() - 1) / groups.count();
    const int64_t affordable =
        std::max<int64_t>(kBlockRows / 4, kLogitBytes / (classes * element_bytes));
    chunks = even_cut(rows, std::min(blocks * kBlockRows, affordable), step);
    block_rows = even_cut(chunks.length, (chunks.length + blocks - 1) / blocks, step).length;
  }

  // `count` neighbouring items in at most `most` groups.
  struct Groups {
    Groups(int64_t count_in, int64_t most) : items{count_in, (count_in + most - 1) / most} {}
    int64_t count() const { return items.count(); }
    Cut items;
  };

  Cut blocks(int64_t rows) const { return {rows, block_rows}; }
  int64_t most_blocks() const { return blocks(chunks.length).count(); }

  Cut tiles;
  Groups groups;
  Cut chunks;
  int64_t block_rows = 0;
};

// The rows that are not ignored, as row numbers of x.
using RowNumbers = std::vector<int64_t, HostAllocator<int64_t>>;

template <class T>
class FusedCrossEntropy {
 public:
  FusedCrossEntropy(const CrossEntropyShape& shape, const LinearCrossEntropy<T>& args,
                    const RowNumbers& rows)
      : shape_(shape),
        args_(args),
        rows_(rows),
        plan_(static_cast<int64_t>(rows.size()), shape.classes, sizeof(T),
              kernels::runs_on_tiles(shape.precision) ? kernels::kTileDepth : 16),
        gradients_(args.dx != nullptr),
        logits_(plan_.tiles.count() * plan_.tiles.length * plan_.chunks.length),
        stats_(plan_.tiles.count() * plan_.chunks.length),
        factors_(plan_.tiles.count() * plan_.chunks.length),
        target_logits_(plan_.chunks.length),
        target_leads_(plan_.chunks.length),
        gathered_(plan_.chunks.length * args.in),
        dx_parts_(gradients_ ? plan_.groups.count() * plan_.chunks.length * args.in : 0),
        d_weight_parts_(
            args.d_weight != nullptr ? (plan_.most_blocks() - 1) * shape.classes * args.in : 0),
        d_bias_parts_(args.d_bias != nullptr ? (plan_.most_blocks() - 1) * shape.classes : 0),
        losses_(static_cast<int64_t>(rows.size())) {
    if constexpr (std::is_same_v<T, float>) {
      if (!kernels::runs_on_tiles(shape.precision)) return;
      on_tiles_.emplace(args.weight, shape.classes, args.in, gradients_);
      on_tiles_->pack_weight();
    }
  }

  CrossEntropySums run() {
    for (int64_t c = 0; c < plan_.chunks.count(); ++c) {
      chunk_ = plan_.chunks[c];
      first_chunk_ = c == 0;
      gather_rows();
      if constexpr (std::is_same_v<T, float>) {
        if (on_tiles_) on_tiles_->pack_rows(x_, chunk_.size());
      }
      compute_logits();
      finish_rows();
      if (gradients_) {
        compute_gradients();
        deliver_dx();
      }
    }
    if (gradients_) add_block_parts();
    return total_loss(losses_.data(), static_cast<int64_t>(rows_.size()));
  }

 private:
  int32_t target(int64_t i) const { return args_.targets[rows_[chunk_.begin + i]]; }

  // Element (0, 0) of a tile: `rows` by `tile width`, dense.
  T* tile_logits(int64_t tile) {
    return logits_.data() + tile * plan_.tiles.length * plan_.chunks.length;
  }
  int64_t stat_index(int64_t i, int64_t tile) const { return i * plan_.tiles.count() + tile; }

  // Points x_ to the chunk's rows, side by side: copies them unless they already are.
  void gather_rows() {
    const int64_t* rows = rows_.data() + chunk_.begin;
    if (rows[chunk_.size() - 1] - rows[0] + 1 == chunk_.size()) {
      x_ = args_.x + rows[0] * args_.in;
      return;
    }
    x_ = gathered_.data();
    parallel_ranges(chunk_.size(), 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        std::copy_n(args_.x + rows[i] * args_.in, args_.in, gathered_.data() + i * args_.in);
      }
    });
  }

  void compute_logits() {
    const Cut blocks = plan_.blocks(chunk_.size());
    parallel_for(blocks.count() * plan_.tiles.count(), [&](int64_t task) {
      const int64_t tile = task / blocks.count();
      const Range rows = blocks[task % blocks.count()], classes = plan_.tiles[tile];
      T* const z = tile_logits(tile) + rows.begin * classes.size();
      multiply_logits(rows, classes, z);
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        take_exponentials(i, tile, classes, z + (i - rows.begin) * classes.size());
      }
    });
  }

  void multiply_logits(Range rows, Range classes, T* z) {
    if constexpr (std::is_same_v<T, float>) {
      if (on_tiles_) return on_tiles_->logits(rows, classes, z);
    }
    Gemm<T> g;
    g.m = rows.size(), g.n = classes.size(), g.k = args_.in;
    g.a = x_ + rows.begin * args_.in, g.lda = args_.in;
    g.b = args_.weight + classes.begin * args_.in, g.ldb = args_.in, g.trans_b = true;
    g.c = z, g.ldc = classes.size();
    g.precision = shape_.precision;
    kernels::gemm_tile(Cpu{}, g);
  }

  void take_exponentials(int64_t i, int64_t tile, Range classes, T* z) {
    const T* const bias = args_.bias != nullptr ? args_.bias + classes.begin : nullptr;
    const int64_t at = target(i) - classes.begin;
    if (at >= 0 && at < classes.size()) {
      const auto logit = [&](int64_t j) { return bias != nullptr ? z[j] + bias[j] : z[j]; };
      const T wanted = logit(at);
      // Of equal logits the first is the prediction. Decided here, before they are overwritten.
      bool leads = true;
      for (int64_t j = 0; j < at && leads; ++j) leads = logit(j) < wanted;
      target_logits_[i] = wanted;
      target_leads_[i] = leads;
    }
    stats_[stat_index(i, tile)] = passes_.exponentials(z, bias, classes.size(), z);
  }

  // Computes the loss of each row, and the factors of its exponentials, from the statistics of its
  // tiles.
  void finish_rows() {
    parallel_ranges(chunk_.size(), 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) finish_row(i);
    });
  }

  void finish_row(int64_t i) {
    const int64_t tiles = plan_.tiles.count();
    const PieceStats<T>* const stats = stats_.data() + stat_index(i, 0);
    const int64_t target_tile = target(i) / plan_.tiles.length;
    double max = stats[0].max;
    bool leads = target_leads_[i];
    for (int64_t t = 0; t < tiles; ++t) {
      max = std::max<double>(max, stats[t].max);
      if (t < target_tile) leads = leads && stats[t].max < target_logits_[i];
    }
    double sum = 0, total = 0;
    T* const factors = factors_.data() + stat_index(i, 0);
    for (int64_t t = 0; t < tiles; ++t) {
      const double weight = std::exp(stats[t].max - max);
      sum += stats[t].sum * weight;
      total += stats[t].total;
      factors[t] = static_cast<T>(weight);
    }
    const auto scale = static_cast<T>(args_.grad_scale / sum);
    for (int64_t t = 0; t < tiles; ++t) factors[t] *= scale;
    RowLoss& loss = losses_[chunk_.begin + i];
    loss = row_loss(shape_, target_logits_[i], max, sum, total);
    loss.correct = loss.correct && leads;
  }

  // dz, dW += dz^T x and dx = dz W. A task has its own part of dx, since it sees only one group of
  // classes, and its own part of dW if there are several blocks of rows.
  void compute_gradients() {
    const Cut blocks = plan_.blocks(chunk_.size());
    parallel_for(blocks.count() * plan_.groups.count(), [&](int64_t task) {
      const int64_t block = task % blocks.count(), group = task / blocks.count();
      const Range tiles = plan_.groups.items[group];
      T* const dx = dx_parts_.data() + group * plan_.chunks.length * args_.in;
      for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
        tile_gradients(block, blocks[block], tile, dx, /*first_of_group=*/tile == tiles.begin);
      }
    });
  }

  void tile_gradients(int64_t block, Range rows, int64_t tile, T* dx, bool first_of_group) {
    const Range classes = plan_.tiles[tile];
    T* const dz = tile_logits(tile) + rows.begin * classes.size();
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      logit_gradient(i, tile, classes, dz + (i - rows.begin) * classes.size());
    }
    if (args_.d_bias != nullptr) add_bias_gradient(block, rows, classes, dz);
    multiply_gradients(rows, classes, dz, dx + rows.begin * args_.in, first_of_group,
                       d_weight_part(block, classes));
  }

  // Parts that a shorter last chunk does not reach keep the sums of earlier chunks.
  T* d_weight_part(int64_t block, Range classes) {
    if (args_.d_weight == nullptr) return nullptr;
    T* const all = block == 0 ? args_.d_weight
                              : d_weight_parts_.data() + (block - 1) * shape_.classes * args_.in;
    return all + classes.begin * args_.in;
  }

  void multiply_gradients(Range rows, Range classes, const T* dz, T* dx, bool first_of_group,
                          T* d_weight) {
    if constexpr (std::is_same_v<T, float>) {
      if (on_tiles_) {
        return on_tiles_->gradients(rows, classes,
                                    {.dz = dz,
                                     .dx = dx,
                                     .add_dx = !first_of_group,
                                     .d_weight = d_weight,
                                     .add_d_weight = !first_chunk_});
      }
    }
    Gemm<T> g;
    g.precision = shape_.precision;
    if (d_weight != nullptr) {
      g.m = classes.size(), g.n = args_.in, g.k = rows.size();
      g.a = dz, g.lda = classes.size(), g.trans_a = true;
      g.b = x_ + rows.begin * args_.in, g.ldb = args_.in;
      g.c = d_weight, g.ldc = args_.in, g.beta = first_chunk_ ? 0 : 1;
      kernels::gemm_tile(Cpu{}, g);
    }
    g.m = rows.size(), g.n = args_.in, g.k = classes.size();
    g.a = dz, g.lda = classes.size(), g.trans_a = false;
    g.b = args_.weight + classes.begin * args_.in, g.ldb = args_.in;
    g.c = dx, g.ldc = args_.in, g.beta = first_of_group ? 0 : 1;
    kernels::gemm_tile(Cpu{}, g);
  }

  void logit_gradient(int64_t i, int64_t tile, Range classes, T* dz) {
    const double spread =
        args_.grad_scale * shape_.label_smoothing / static_cast<double>(shape_.classes);
    passes_.gradient(dz, factors_[stat_index(i, tile)], static_cast<T>(spread), classes.size(), dz);
    const int64_t at = target(i) - classes.begin;
    if (at >= 0 && at < classes.size()) {
      dz[at] -= static_cast<T>(args_.grad_scale * (1 - shape_.label_smoothing));
    }
  }

  void add_bias_gradient(int64_t block, Range rows, Range classes, const T* dz) {
    T* const all = block == 0 ? args_.d_bias : d_bias_parts_.data() + (block - 1) * shape_.classes;
    T* const d_bias = all + classes.begin;
    if (first_chunk_) std::fill_n(d_bias, classes.size(), T{0});
    for (int64_t i = 0; i < rows.size(); ++i) {
      passes_.add(dz + i * classes.size(), classes.size(), d_bias);
    }
  }

  // Adds the groups' parts of dx in order.
  void deliver_dx() {
    const int64_t in = args_.in, stride = plan_.chunks.length * in;
    parallel_ranges(chunk_.size(), 32, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        passes_.sum(dx_parts_.data() + i * in, stride, plan_.groups.count(), in,
                    args_.dx + rows_[chunk_.begin + i] * in);
      }
    });
  }

  // Adds the blocks' parts of dW and db in order. The first chunk has the most blocks.
  void add_block_parts() {
    const int64_t parts = plan_.blocks(plan_.chunks[0].size()).count() - 1;
    const int64_t elements = args_.d_weight != nullptr ? shape_.classes * args_.in : 0;
    parallel_ranges(elements, 1 << 14, [&](int64_t begin, int64_t end) {
      for (int64_t p = 0; p < parts; ++p) {
        passes_.add(d_weight_parts_.data() + p * elements + begin, end - begin,
                    args_.d_weight + begin);
      }
    });
    if (args_.d_bias == nullptr) return;
    for (int64_t p = 0; p < parts; ++p) {
      passes_.add(d_bias_parts_.data() + p * shape_.classes, shape_.classes, args_.d_bias);
    }
  }

  const CrossEntropyShape& shape_;
  const LinearCrossEntropy<T>& args_;
  const RowNumbers& rows_;
  const Plan plan_;
  const bool gradients_;
  const CrossEntropyPasses<T>& passes_ = cross_entropy_passes<T>();

  // The current chunk: its range of rows_, and their x.
  Range chunk_{};
  bool first_chunk_ = true;
  const T* x_ = nullptr;

  Scratch<T> logits_;
  Scratch<PieceStats<T>> stats_;  // (row, tile)
  Scratch<T> factors_;            // (row, tile)
  Scratch<T> target_logits_;
  Scratch<char> target_leads_;  // whether no earlier logit of its tile is as large
  Scratch<T> gathered_;
  Scratch<T> dx_parts_;        // (group, row, in)
  Scratch<T> d_weight_parts_;  // (block after the first, class, in)
  Scratch<T> d_bias_parts_;
  Scratch<RowLoss> losses_;
  std::optional<kernels::ClassifierTiles> on_tiles_;
};

}  // namespace

namespace kernels {

template <class T>
void linear_cross_entropy(Cpu, const CrossEntropyShape& shape, const LinearCrossEntropy<T>& args,
                          CrossEntropySums* sums) {
  const ProfileScope profile(Part::kClassifier);
  RowNumbers rows;
  rows.reserve(static_cast<size_t>(shape.rows));
  for (int64_t r = 0; r < shape.rows; ++r) {
    if (args.targets[r] != shape.ignore_index) {
      rows.push_back(r);
    } else if (args.dx != nullptr) {
      std::fill_n(args.dx + r * args.in, args.in, T{0});
    }
  }
  *sums = {};
  if (!rows.empty()) {
    *sums = FusedCrossEntropy<T>(shape, args, rows).run();
    return;
  }
  if (args.dx != nullptr) {
    if (args.d_weight != nullptr) std::fill_n(args.d_weight, shape.classes * args.in, T{0});
    if (args.d_bias != nullptr) std::fill_n(args.d_bias, shape.classes, T{0});
  }
}

template void linear_cross_entropy(Cpu, const CrossEntropyShape&, const LinearCrossEntropy<float>&,
                                   CrossEntropySums*);
template void linear_cross_entropy(Cpu, const CrossEntropyShape&, const LinearCrossEntropy<double>&,
                                   CrossEntropySums*);

}  // namespace kernels
}  // namespace tapestry
