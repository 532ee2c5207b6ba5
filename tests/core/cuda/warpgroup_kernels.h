// One product by a warpgroup, for tests: a kernel around the functions of warpgroup_mma.h and
// bulk_copy.h.
#pragma once

#include <cstdint>

#include "core/bfloat16.h"

namespace tapestry {

/// c (64, columns) = a b or, with `add`, += a b, summed over 64 numbers: a (64, 64) and b (64,
/// columns).
struct WarpgroupProduct {
  int columns;                      ///< 64 or 128
  int width;                        ///< bytes of a row of a panel: 128, 64 or 32
  bool transposed_a, transposed_b;  ///< as multiply() has it
  bool from_registers;              ///< a; then it is not transposed
  bool add;
};

/// The place of the tile that is multiplied in a tensor of four dimensions: (2, rows, 3, columns).
inline constexpr int kTestHeads = 3, kTestHead = 2, kTestBatch = 1;

/// a: (2, a_rows, 3, 64), the tile a or its transpose: rows beyond a_rows are 0. b: the same with
/// its rows: (2, b_rows, 3, 64 or, transposed, columns), where not transposed means that a row has
/// the numbers that are summed over. Launches the kernel.
void multiply_by_warpgroup(const WarpgroupProduct& what, const BFloat16* a, int64_t a_rows,
                           const BFloat16* b, int64_t b_rows, float* c);

/// sums[i] = the sum of column i of the 64 columns of x (rows, 64), by a warp that copies tiles of
/// 64 rows into two places in turn and two warpgroups that take turns at them.
void sum_columns_in_turns(const BFloat16* x, int64_t rows, float* sums);

}  // namespace tapestry
