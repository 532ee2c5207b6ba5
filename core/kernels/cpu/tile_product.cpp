#include "core/kernels/cpu/tile_product.h"

#include "core/base/error.h"
#include "core/cpu/parallel.h"
#include "core/kernels/cpu/tile_product-inl.h"
#include "core/kernels/cpu/tile_units.h"

namespace tapestry::kernels {
namespace {

void run_piece(Bfloat16Kernel kernel, const TileProduct& p, Range rows, Range cols) {
  switch (kernel) {
    case Bfloat16Kernel::kAmx:
      return multiply_piece<AmxTiles>(p, rows, cols);
    case Bfloat16Kernel::kAvx512:
      return multiply_piece<PairProducts>(p, rows, cols);
    case Bfloat16Kernel::kBfmmla:
      return multiply_piece<SquareProducts>(p, rows, cols);
    case Bfloat16Kernel::kAmxEmulated:
      return multiply_piece<EmulatedTiles>(p, rows, cols);
    case Bfloat16Kernel::kBfmmlaEmulated:
      return multiply_piece<EmulatedSquares>(p, rows, cols);
    case Bfloat16Kernel::kWidened:
      fail(ErrorKind::kRuntime, "[tile_product] ", name_of(kernel), " does not multiply tiles.");
  }
}

}  // namespace

TileSession::TileSession(Bfloat16Kernel kernel) : kernel_(kernel) {
  if (kernel_ == Bfloat16Kernel::kAmx) AmxTiles::open();
}
TileSession::~TileSession() {
  if (kernel_ == Bfloat16Kernel::kAmx) AmxTiles::close();
}

void TileSession::multiply(const TileProduct& p) const {
  const Cut cols{p.b.length, tile_piece_columns(p.a.stored_depth())};
  for (int64_t j = 0; j < cols.count(); ++j) run_piece(kernel_, p, {0, p.a.length}, cols[j]);
}

void TileSession::multiply(const TileProduct& p, Range rows, Range cols) const {
  run_piece(kernel_, p, rows, cols);
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
