#include "core/kernels/cpu/tile_product.h"

#include "core/kernels/cpu/tile_product-inl.h"
#include "core/kernels/cpu/tile_units.h"
#include "core/parallel.h"

namespace tapestry::kernels {

void multiply_tiles(const std::vector<TileProduct>& products) {
  std::vector<TilePieces> pieces;
  int64_t tasks = 0;
  for (const TileProduct& p : products) {
    pieces.emplace_back(p.a.length, p.b.length, p.a.tiles * kTileDepth, num_threads());
    tasks += pieces.back().count();
  }
  parallel_for(tasks, [&](int64_t task) {
    size_t i = 0;
    for (; task >= pieces[i].count(); ++i) task -= pieces[i].count();
    const auto [rows, cols] = pieces[i][task];
    multiply_piece<AmxTiles>(products[i], rows, cols);
  });
}

void multiply_tiles_here(const TileProduct& p) {
  const Cut cols{p.b.length, tile_piece_columns(p.a.tiles * kTileDepth)};
  for (int64_t j = 0; j < cols.count(); ++j) {
    multiply_piece<AmxTiles>(p, {0, p.a.length}, cols[j]);
  }
}

}  // namespace tapestry::kernels
