// How the fused cross entropy on a CPU cuts its work, and where its gradients are summed.
#pragma once

#include <algorithm>
#include <type_traits>

#include "core/kernels/cpu/class_pieces.h"
#include "core/kernels/cpu/tile_grid.h"
#include "core/kernels/cross_entropy_rows.h"
#include "core/scratch.h"

namespace tapestry {

/// How the work is cut: classes into tiles, tiles into groups, rows into chunks, chunks into
/// blocks. A task computes the gradients of one block and one group.
struct LinearCrossEntropyPlan {
  static constexpr int64_t kBlockRows = 512;
  static constexpr int64_t kTasks = 8;  // at least, if the shape allows it

  LinearCrossEntropyPlan(int64_t rows, int64_t classes, int64_t element_bytes, int64_t step,
                         int64_t logit_bytes)
      : tiles(class_pieces(classes, step)), groups(tiles.count(), kTasks) {
    const int64_t blocks = (kTasks + groups.count() - 1) / groups.count();
    const int64_t affordable =
        std::max<int64_t>(kBlockRows / 4, logit_bytes / (classes * element_bytes));
    chunks = even_cut(rows, std::min(blocks * kBlockRows, affordable), step);
    block_rows = even_cut(chunks.length, (chunks.length + blocks - 1) / blocks, step).length;
  }

  // `count` neighbouring items in at most `most` groups.
  struct Groups {
    Groups(int64_t count_in, int64_t most) : items{count_in, (count_in + most - 1) / most} {}
    int64_t count() const { return items.count(); }
    kernels::Cut items;
  };

  kernels::Cut blocks(int64_t rows) const { return {rows, block_rows}; }
  int64_t chunk_logits() const { return tiles.count() * tiles.length * chunks.length; }
  int64_t most_blocks() const { return blocks(chunks.length).count(); }

  kernels::Cut tiles;
  Groups groups;
  kernels::Cut chunks;
  int64_t block_rows = 0;
};

/// A gradient of n elements which each block of rows sums by itself. Null if `out` is.
template <class T>
class BlockSums {
  using W = Wider<T>;
  // True if sums may grow in the tensor itself.
  static constexpr bool kInPlace = std::is_same_v<T, W>;

 public:
  BlockSums(T* out, int64_t blocks, int64_t n)
      : out_(out), n_(n), parts_(out == nullptr ? 0 : (blocks - kInOut) * n) {}

  // The sums of a block.
  W* of(int64_t block) {
    if (out_ == nullptr) return nullptr;
    if constexpr (kInPlace) {
      if (block == 0) return out_;
    }
    return parts_.data() + (block - kInOut) * n_;
  }

  // Adds the elements [begin, end) of `blocks` blocks in order.
  void deliver(int64_t blocks, int64_t begin, int64_t end) {
    const CrossEntropyPasses<T>& passes = cross_entropy_passes<T>();
    if constexpr (kInPlace) {
      for (int64_t p = 1; p < blocks; ++p) passes.add(of(p) + begin, end - begin, out_ + begin);
    } else {
      passes.sum(parts_.data() + begin, n_, blocks, end - begin, out_ + begin);
    }
  }

 private:
  static constexpr int64_t kInOut = kInPlace ? 1 : 0;  // blocks
  T* out_;
  int64_t n_;
  Scratch<W> parts_;
};

}  // namespace tapestry
