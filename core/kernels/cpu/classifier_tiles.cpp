#include "core/kernels/cpu/classifier_tiles.h"

#include "core/cpu/parallel.h"
#include "core/kernels/cpu/tile_product.h"

namespace tapestry::kernels {
namespace {

using Side = TileOperand::Side;

Range strips_of(Range length, const TileOperand& operand) {
  const bool last = length.end == operand.length();
  return {length.begin / kTileStrip, last ? operand.strips() : length.end / kTileStrip};
}

Range tiles_of(Range k) { return {k.begin / kTileDepth, (k.end + kTileDepth - 1) / kTileDepth}; }

}  // namespace

template <class T>
ClassifierTiles<T>::ClassifierTiles(int64_t classes, int64_t in, bool gradients,
                                    const FrozenMatrix* frozen)
    : classes_(classes), in_(in), gradients_(gradients), frozen_(frozen) {
  if (frozen != nullptr) return;
  weight_for_logits_.emplace(Side::kRight, classes, in, kTileForm<T>);
  if (gradients) weight_for_dx_.emplace(Side::kRight, in, classes, kTileForm<T>);
}

template <class T>
void ClassifierTiles<T>::pack_weight(const T* weight) {
  // Both packing directions read the weight from the cache.
  const Cut classes{classes_, 4 * kTileDepth};
  parallel_for(classes.count(), [&](int64_t task) {
    const Range range = classes[task];
    const T* const rows = weight + range.begin * in_;
    pack_tiles({rows, in_, true}, strips_of(range, *weight_for_logits_),
               {0, weight_for_logits_->tiles()}, *weight_for_logits_);
    if (!gradients_) return;
    pack_tiles({rows, in_, false}, {0, weight_for_dx_->strips()}, tiles_of(range), *weight_for_dx_);
  });
}

template <class T>
void ClassifierTiles<T>::pack_rows(const T* x, int64_t rows) {
  x_for_logits_.emplace(Side::kLeft, rows, in_, kTileForm<T>);
  if (gradients_) x_for_d_weight_.emplace(Side::kRight, in_, rows, kTileForm<T>);
  const Cut blocks{rows, 2 * kTileDepth};
  parallel_for(blocks.count(), [&](int64_t task) {
    const Range range = blocks[task];
    const T* const first = x + range.begin * in_;
    pack_tiles({first, in_, true}, strips_of(range, *x_for_logits_), {0, x_for_logits_->tiles()},
               *x_for_logits_);
    if (!gradients_) return;
    pack_tiles({first, in_, false}, {0, x_for_d_weight_->strips()}, tiles_of(range),
               *x_for_d_weight_);
  });
}

template <class T>
void ClassifierTiles<T>::logits(Range rows, Range classes, float* z) const {
  std::optional<TileOperand> piece;
  if (frozen_ != nullptr) {
    piece.emplace(Side::kRight, classes.size(), in_, kTileForm<T>);
    pack_frozen(*frozen_, classes, {0, in_}, FrozenSide::kTransposed, *piece);
  }
  TileSession().multiply({.a = x_for_logits_->view(rows, {0, in_}),
                          .b = piece ? piece->view() : weight_for_logits_->view(classes, {0, in_}),
                          .c = z,
                          .ldc = classes.size()});
}

template <class T>
void ClassifierTiles<T>::gradients(Range rows, Range classes, const Gradients& args) const {
  TileOperand dz(Side::kLeft, rows.size(), classes.size(), kTileForm<T>);
  dz.pack({args.dz, classes.size(), true});
  std::optional<TileOperand> piece;
  if (frozen_ != nullptr) {
    piece.emplace(Side::kRight, in_, classes.size(), kTileForm<T>);
    pack_frozen(*frozen_, classes, {0, in_}, FrozenSide::kStraight, *piece);
  }
  const TileSession session;
  session.multiply({.a = dz.view(),
                    .b = piece ? piece->view() : weight_for_dx_->view({0, in_}, classes),
                    .c = args.dx,
                    .ldc = in_,
                    .add = args.add_dx});
  if (args.d_weight == nullptr) return;
  TileOperand transposed(Side::kLeft, classes.size(), rows.size(), kTileForm<T>);
  transposed.pack({args.dz, classes.size(), false});
  session.multiply({.a = transposed.view(),
                    .b = x_for_d_weight_->view({0, in_}, rows),
                    .c = args.d_weight,
                    .ldc = in_,
                    .add = args.add_d_weight});
}

template class ClassifierTiles<float>;
template class ClassifierTiles<BFloat16>;

}  // namespace tapestry::kernels
