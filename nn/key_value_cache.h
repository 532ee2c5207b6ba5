// What decoding keeps of the tokens before: keys and values, row by row.
#pragma once

#include "core/tensor.h"

namespace tapestry {

/// Keys and values of the tokens decoded so far, for each of R rows. W numbers per token: 2G * K;
/// in latent attention (nn/latent_attention.h) the latent and the rotary key.
struct KeyValueCache {
  Tensor kv;           ///< (R, capacity, W)
  int64_t length = 0;  ///< tokens held

  /// Appends n tokens for every row: (R, n, W). Grows by doubling.
  void append(const Tensor& tokens);
  /// New row i is old row rows[i]: beams follow their parents, finished sentences leave.
  void select(const Tensor& rows);
};

/// Rows `rows` (int32, any length) of a tensor's first axis.
Tensor gather_rows(const Tensor& x, const Tensor& rows);
/// Elements `rows` of ids (N), both int32.
Tensor gather_ids(const Tensor& ids, const Tensor& rows);

}  // namespace tapestry
