// For each chunk of rows: first the logits, tile by tile, with their exponentials taken while a
// tile is in the cache; then the row sums; then, tile by tile again, dz and its two products. The
// logits of a chunk are stored tile after tile, so that every product works on dense memory.
// With bfloat16 tensors all of this is float32, sums over chunks and blocks included: the products'
// factors alone are bfloat16, and each gradient is rounded once, when it is complete.
#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>
#include <vector>

#include "core/cpu/parallel.h"
#include "core/kernels/cpu/classifier_tiles.h"
#include "core/kernels/cpu/rounded_product.h"
#include "core/kernels/cross_entropy.h"
#include "core/kernels/cross_entropy_rows.h"
#include "core/kernels/frozen/frozen_matrix.h"
#include "core/kernels/matmul/gemm.h"
#include "core/kernels/matmul/linear_cross_entropy_plan.h"
#include "core/profile.h"
#include "core/scratch.h"
#include "core/shapes_only.h"

namespace tapestry {
namespace {

using kernels::Range;

// A frozen weight is widened again for each chunk, so that those are larger.
constexpr int64_t kLogitBytes = int64_t{64} << 20, kFrozenLogitBytes = int64_t{128} << 20;

// c (m, n) (=|+=) op(a) (m, k) op(b) (k, n), dense matrices.
struct Product {
  int64_t m, n, k;
  bool trans_a = false, trans_b = false, add = false;
};

// Runs on the calling thread. A float factor is rounded to bfloat16 if the other one is bfloat16.
template <class A, class B, class C>
void multiply(const Product& p, const A* a, const B* b, C* c) {
  const int64_t a_stride = p.trans_a ? p.m : p.k, b_stride = p.trans_b ? p.k : p.n;
  if constexpr (std::is_same_v<A, BFloat16> || std::is_same_v<B, BFloat16>) {
    kernels::rounded_product({.m = p.m,
                              .n = p.n,
                              .k = p.k,
                              .a = {a, a_stride, !p.trans_a},
                              .b = {b, b_stride, p.trans_b},
                              .c = c,
                              .ldc = p.n,
                              .add = p.add});
  } else {
    Gemm<C> g;
    g.m = p.m, g.n = p.n, g.k = p.k;
    g.a = a, g.lda = a_stride, g.trans_a = p.trans_a;
    g.b = b, g.ldb = b_stride, g.trans_b = p.trans_b;
    g.c = c, g.ldc = p.n, g.beta = p.add ? 1 : 0;
    kernels::gemm_tile(Cpu{}, g);
  }
}

// The rows that are not ignored, as row numbers of x.
using RowNumbers = std::vector<int64_t, HostAllocator<int64_t>>;

template <class T>
class FusedCrossEntropy {
  using W = Wider<T>;
  // True if sums may grow in the tensors themselves.
  static constexpr bool kInPlace = std::is_same_v<T, W>;
  static constexpr bool kMayUseTiles = !std::is_same_v<T, double>;

 public:
  FusedCrossEntropy(const CrossEntropyShape& shape, const LinearCrossEntropy<T>& args,
                    const RowNumbers& rows)
      : shape_(shape),
        args_(args),
        rows_(rows),
        plan_(static_cast<int64_t>(rows.size()), shape.classes,
              (shape.softcap > 0 && args.dx != nullptr ? 2 : 1) * sizeof(W),
              kernels::runs_on_tiles<T>(shape.precision) ? kernels::kTileDepth : 16,
              args.frozen != nullptr ? kFrozenLogitBytes : kLogitBytes),
        gradients_(args.dx != nullptr),
        logits_(plan_.chunk_logits()),
        slopes_(shape.softcap > 0 && gradients_ ? plan_.chunk_logits() : 0),
        stats_(plan_.tiles.count() * plan_.chunks.length),
        factors_(plan_.tiles.count() * plan_.chunks.length),
        target_logits_(plan_.chunks.length),
        target_leads_(plan_.chunks.length),
        gathered_(plan_.chunks.length * args.in),
        dx_parts_(gradients_ ? plan_.groups.count() * plan_.chunks.length * args.in : 0),
        d_weight_(gradients_ ? args.d_weight : nullptr, plan_.most_blocks(),
                  shape.classes * args.in),
        d_bias_(gradients_ ? args.d_bias : nullptr, plan_.most_blocks(), shape.classes),
        wide_bias_(kInPlace || args.bias == nullptr ? 0 : shape.classes),
        losses_(static_cast<int64_t>(rows.size())) {
    if constexpr (kInPlace) {
      bias_ = args.bias;
    } else if (args.bias != nullptr) {
      std::transform(args.bias, args.bias + shape.classes, wide_bias_.data(),
                     [](T bias) { return static_cast<W>(bias); });
      bias_ = wide_bias_.data();
    }
    if constexpr (kMayUseTiles) {
      if (!kernels::runs_on_tiles<T>(shape.precision)) return;
      on_tiles_.emplace(shape.classes, args.in, gradients_, args.frozen);
      if (args.frozen == nullptr) on_tiles_->pack_weight(args.weight);
    }
  }

  CrossEntropySums run() {
    for (int64_t c = 0; c < plan_.chunks.count(); ++c) {
      chunk_ = plan_.chunks[c];
      first_chunk_ = c == 0;
      gather_rows();
      if constexpr (kMayUseTiles) {
        if (on_tiles_) on_tiles_->pack_rows(x_, chunk_.size());
      }
      compute_logits();
      finish_rows();
      if (gradients_) {
        compute_gradients();
        deliver_dx();
      }
    }
    // The first chunk has the most blocks.
    if (gradients_) deliver_block_sums(plan_.blocks(plan_.chunks[0].size()).count());
    return total_loss(losses_.data(), static_cast<int64_t>(rows_.size()));
  }

 private:
  // The target of row i of the chunk.
  int32_t target(int64_t i) const { return args_.targets.targets[rows_[chunk_.begin + i]]; }
  double weight(int64_t i) const { return args_.targets.weight(rows_[chunk_.begin + i]); }

  // Element (0, 0) of a tile: `rows` by `tile width`, dense.
  W* tile_logits(int64_t tile) {
    return logits_.data() + tile * plan_.tiles.length * plan_.chunks.length;
  }
  // Where the derivatives of the softcap of some logits are; null without them.
  W* slopes_of(const W* logits) {
    const bool any = shape_.softcap > 0 && gradients_;
    return any ? slopes_.data() + (logits - logits_.data()) : nullptr;
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
    const auto blocks = plan_.blocks(chunk_.size());
    parallel_for(blocks.count() * plan_.tiles.count(), [&](int64_t task) {
      const int64_t tile = task / blocks.count();
      const Range rows = blocks[task % blocks.count()], classes = plan_.tiles[tile];
      W* const z = tile_logits(tile) + rows.begin * classes.size();
      multiply_logits(rows, classes, z);
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        take_exponentials(i, tile, classes, z + (i - rows.begin) * classes.size());
      }
    });
  }

  void multiply_logits(Range rows, Range classes, W* z) {
    if constexpr (kMayUseTiles) {
      if (on_tiles_) return on_tiles_->logits(rows, classes, z);
    }
    Scratch<T> widened(args_.frozen != nullptr ? classes.size() * args_.in : 0);
    multiply({.m = rows.size(), .n = classes.size(), .k = args_.in, .trans_b = true},
             x_ + rows.begin * args_.in, weight_of(classes, widened), z);
  }

  void take_exponentials(int64_t i, int64_t tile, Range classes, W* z) {
    const W* bias = bias_ != nullptr ? bias_ + classes.begin : nullptr;
    if (shape_.softcap > 0) {
      passes_.cap(static_cast<W>(shape_.softcap), bias, classes.size(), z, slopes_of(z));
      bias = nullptr;
    }
    const int64_t at = target(i) - classes.begin;
    if (at >= 0 && at < classes.size()) {
      const auto logit = [&](int64_t j) { return bias != nullptr ? z[j] + bias[j] : z[j]; };
      const W wanted = logit(at);
      // The first of equal logits is the prediction. Decided here, before they are overwritten.
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
    const PieceStats<W>* const stats = stats_.data() + stat_index(i, 0);
    const int64_t target_tile = target(i) / plan_.tiles.length;
    double max = stats[0].max;
    bool leads = target_leads_[i];
    for (int64_t t = 0; t < tiles; ++t) {
      max = std::max<double>(max, stats[t].max);
      if (t < target_tile) leads = leads && stats[t].max < target_logits_[i];
    }
    double sum = 0, total = 0;
    W* const factors = factors_.data() + stat_index(i, 0);
    for (int64_t t = 0; t < tiles; ++t) {
      const double factor = std::exp(stats[t].max - max);
      sum += stats[t].sum * factor;
      total += stats[t].total;
      factors[t] = static_cast<W>(factor);
    }
    const auto scale = static_cast<W>(args_.grad_scale * weight(i) / sum);
    for (int64_t t = 0; t < tiles; ++t) factors[t] *= scale;
    losses_[chunk_.begin + i] =
        row_loss(shape_, target_logits_[i], max, sum, total, leads, weight(i));
  }

  // dz, dW += dz^T x and dx = dz W. A task has its own part of dx, since it sees only one group of
  // classes, and its own part of dW if there are several blocks of rows.
  void compute_gradients() {
    const auto blocks = plan_.blocks(chunk_.size());
    parallel_for(blocks.count() * plan_.groups.count(), [&](int64_t task) {
      const int64_t block = task % blocks.count(), group = task / blocks.count();
      const Range tiles = plan_.groups.items[group];
      W* const dx = dx_parts_.data() + group * plan_.chunks.length * args_.in;
      for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
        tile_gradients(block, blocks[block], tile, dx, /*first_of_group=*/tile == tiles.begin);
      }
    });
  }

  void tile_gradients(int64_t block, Range rows, int64_t tile, W* dx, bool first_of_group) {
    const Range classes = plan_.tiles[tile];
    W* const dz = tile_logits(tile) + rows.begin * classes.size();
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      logit_gradient(i, tile, classes, dz + (i - rows.begin) * classes.size());
    }
    if (args_.d_bias != nullptr) add_bias_gradient(block, rows, classes, dz);
    multiply_gradients(rows, classes, dz, dx + rows.begin * args_.in, first_of_group,
                       d_weight_part(block, classes));
  }

  // Parts that a shorter last chunk does not reach keep the sums of earlier chunks.
  W* d_weight_part(int64_t block, Range classes) {
    W* const all = d_weight_.of(block);
    return all == nullptr ? nullptr : all + classes.begin * args_.in;
  }

  void multiply_gradients(Range rows, Range classes, const W* dz, W* dx, bool first_of_group,
                          W* d_weight) {
    if constexpr (kMayUseTiles) {
      if (on_tiles_) {
        return on_tiles_->gradients(rows, classes,
                                    {.dz = dz,
                                     .dx = dx,
                                     .add_dx = !first_of_group,
                                     .d_weight = d_weight,
                                     .add_d_weight = !first_chunk_});
      }
    }
    if (d_weight != nullptr) {
      multiply({.m = classes.size(),
                .n = args_.in,
                .k = rows.size(),
                .trans_a = true,
                .add = !first_chunk_},
               dz, x_ + rows.begin * args_.in, d_weight);
    }
    Scratch<T> widened(args_.frozen != nullptr ? classes.size() * args_.in : 0);
    multiply({.m = rows.size(), .n = args_.in, .k = classes.size(), .add = !first_of_group}, dz,
             weight_of(classes, widened), dx);
  }

  // Rows of W; those of a frozen one in `room`.
  const T* weight_of(Range classes, Scratch<T>& room) {
    if (args_.frozen == nullptr) return args_.weight + classes.begin * args_.in;
    args_.frozen->read(classes, {0, args_.in}, room.data(), args_.in);
    return room.data();
  }

  void logit_gradient(int64_t i, int64_t tile, Range classes, W* dz) {
    const double scale = args_.grad_scale * weight(i);
    const double spread = scale * shape_.label_smoothing / static_cast<double>(shape_.classes);
    passes_.gradient(dz, factors_[stat_index(i, tile)], static_cast<W>(spread), classes.size(), dz);
    const int64_t at = target(i) - classes.begin;
    if (at >= 0 && at < classes.size()) {
      dz[at] -= static_cast<W>(scale * (1 - shape_.label_smoothing));
    }
    if (const W* const slopes = slopes_of(dz)) passes_.multiply(slopes, classes.size(), dz);
  }

  void add_bias_gradient(int64_t block, Range rows, Range classes, const W* dz) {
    W* const d_bias = d_bias_.of(block) + classes.begin;
    if (first_chunk_) std::fill_n(d_bias, classes.size(), W{0});
    for (int64_t i = 0; i < rows.size(); ++i) {
      passes_.add(dz + i * classes.size(), classes.size(), d_bias);
    }
  }

  // Adds the groups' parts of dx in order.
  void deliver_dx() {
    const int64_t in = args_.in, stride = plan_.chunks.length * in;
    parallel_ranges(chunk_.size(), 32, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        cross_entropy_passes<T>().sum(dx_parts_.data() + i * in, stride, plan_.groups.count(), in,
                                      args_.dx + rows_[chunk_.begin + i] * in);
      }
    });
  }

  void deliver_block_sums(int64_t blocks) {
    const int64_t elements = args_.d_weight != nullptr ? shape_.classes * args_.in : 0;
    parallel_ranges(elements, 1 << 14,
                    [&](int64_t begin, int64_t end) { d_weight_.deliver(blocks, begin, end); });
    if (args_.d_bias != nullptr) d_bias_.deliver(blocks, 0, shape_.classes);
  }

  const CrossEntropyShape& shape_;
  const LinearCrossEntropy<T>& args_;
  const RowNumbers& rows_;
  const LinearCrossEntropyPlan plan_;
  const bool gradients_;
  const CrossEntropyPasses<W>& passes_ = cross_entropy_passes<W>();

  // The current chunk: its range of rows_, and their x.
  Range chunk_{};
  bool first_chunk_ = true;
  const T* x_ = nullptr;

  Scratch<W> logits_;
  Scratch<W> slopes_;             // of the softcap, as logits_
  Scratch<PieceStats<W>> stats_;  // (row, tile)
  Scratch<W> factors_;            // (row, tile)
  Scratch<W> target_logits_;
  Scratch<char> target_leads_;  // whether no earlier logit of its tile is as large
  Scratch<T> gathered_;
  Scratch<W> dx_parts_;    // (group, row, in)
  BlockSums<T> d_weight_;  // (class, in)
  BlockSums<T> d_bias_;
  Scratch<W> wide_bias_;
  const W* bias_ = nullptr;
  Scratch<RowLoss> losses_;
  std::optional<kernels::ClassifierTiles<T>> on_tiles_;
};

}  // namespace

namespace kernels {

template <class T>
void linear_cross_entropy(Cpu, const CrossEntropyShape& shape, const LinearCrossEntropy<T>& args,
                          CrossEntropySums* sums) {
  const ProfileScope profile(Part::kClassifier);
  // More rows add only their losses to the memory of a dry run.
  constexpr int64_t kMostDryRows = int64_t{1} << 20;
  const int64_t count = ShapesOnly::is_on() ? std::min(shape.rows, kMostDryRows) : shape.rows;
  RowNumbers rows;
  rows.reserve(static_cast<size_t>(count));
  for (int64_t r = 0; r < count; ++r) {
    if (args.targets.targets[r] != shape.ignore_index) {
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
template void linear_cross_entropy(Cpu, const CrossEntropyShape&,
                                   const LinearCrossEntropy<BFloat16>&, CrossEntropySums*);

}  // namespace kernels
}  // namespace tapestry
