// How the classes of a row are cut for the sum of its exponentials: alike wherever a likelihood is
// computed, so that training, scores and searches agree to the last bit if their logits do.
#pragma once

#include <algorithm>

#include "core/kernels/cpu/tile_grid.h"

namespace tapestry {

/// [0, size) in equal pieces of at most `longest`, which are multiples of `step`.
inline kernels::Cut even_cut(int64_t size, int64_t longest, int64_t step) {
  const int64_t pieces = std::max<int64_t>(1, (size + longest - 1) / longest);
  const int64_t length = (size + pieces - 1) / pieces;
  return {size, std::max<int64_t>(step, (length + step - 1) / step * step)};
}

/// The pieces, of 256 classes or a little less; `step` is that of the products that make logits.
inline kernels::Cut class_pieces(int64_t classes, int64_t step = 16) {
  constexpr int64_t kLongest = 256;
  return even_cut(classes, kLongest, step);
}

}  // namespace tapestry
