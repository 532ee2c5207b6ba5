#include "core/kernels/cpu/tile_product.h"

#include "core/kernels/cpu/tile_product-inl.h"
#include "core/kernels/cpu/tile_units.h"
#include "core/parallel.h"

namespace tapestry::kernels {
namespace {

void run_piece(bool emulated, const TileProduct& p, Range rows, Range cols) {
  (emulated ? multiply_piece<EmulatedTiles> : multiply_piece<AmxTiles>)(p, rows, cols);
}

}  // namespace

TileSession::TileSession(Bfloat16Kernel kernel)
    : emulated_(kernel == Bfloat16Kernel::kAmxEmulated) {
  if (!emulated_) AmxTiles::open();
}
TileSession::~TileSession() {
  if (!emulated_) AmxTiles::close();
}

void TileSession::multiply(const TileProduct& p) const {
  const Cut cols{p.b.length, tile_piece_columns(p.a.stored_depth())};
  for (int64_t j = 0; j < cols.count(); ++j) run_piece(emulated_, p, {0, p.a.length}, cols[j]);
}

void TileSession::multiply(const TileProduct& p, Range rows, Range cols) const {
  run_piece(emulated_, p, rows, cols);
}

void multiply_tiles(const std::vector<TileProduct>& products) {
  std::vector<TilePieces> pieces;
  int64_t tasks = 0;
  for (const TileProduct& p : products) {
    pieces.emplace_back(p.a.length, p.b.length, p.a.stored_depth(), num_threads());
    tasks += pieces.back().count();
  }
  parallel_for(tasks, [&](int64_t task) {
    size_t i = 0;
    for (; task >= pieces[i].count(); ++i) task -= pieces[i].count();
    const auto [rows, cols] = pieces[i][task];
    TileSession().multiply(products[i], rows, cols);
  });
}

}  // namespace tapestry::kernels
