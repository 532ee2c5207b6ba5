// C (=|+=) A B from packed tiles, on all threads. k is added in ascending tiles, whatever the grid,
// so that a result does not depend on how C is cut: the cut may follow the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/cpu/bfloat16_kernel.h"
#include "core/kernels/cpu/tile_operand.h"

namespace tapestry::kernels {

struct TileProduct {
  TileView a;          ///< left, m rows
  TileView b;          ///< right, n columns, the same k and form
  float* c = nullptr;  ///< (m, n), ldc between rows
  int64_t ldc = 0;
  /// C has room for whole blocks: its rows and columns are rounded up to kTileBlock, and what lies
  /// beyond m and n may be written.
  bool has_room = false;
  bool add = false;
  /// If not empty, receives the sums of pieces of C in place of `c`, on the thread that has them in
  /// its cache; `stride` lies between their rows.
  std::function<void(Range rows, Range cols, const float* sums, int64_t stride)> take = {};
};

/// While it lives, the thread that made it may multiply tiles on `kernel`, for which has_tiles().
/// Loads the configuration of AMX, which other code of the thread may have changed.
class TileSession {
 public:
  explicit TileSession(Bfloat16Kernel kernel = bfloat16_kernel());
  ~TileSession();
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;

  /// One product on this thread.
  void multiply(const TileProduct& product) const;
  /// Rows and columns of one, as TilePieces cuts them.
  void multiply(const TileProduct& product, Range rows, Range cols) const;

 private:
  Bfloat16Kernel kernel_;
};

/// Runs products that do not depend on each other, as one job. These need
/// bfloat16_runs_on_tiles().
void multiply_tiles(const std::vector<TileProduct>& products);

}  // namespace tapestry::kernels
