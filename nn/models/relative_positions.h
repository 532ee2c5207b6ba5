// Positions that attention learns from distances: biases of its scores, which all layers of a stack
// share.
#pragma once

#include <vector>

#include "nn/models/model_options.h"

namespace tapestry {

/// The slopes of `heads` heads (Press et al. 2022): 2^(-8 i / H) for i = 1 to H, if H is a power of
/// two. Otherwise those of the largest power of two below H, then every other one of twice as many.
std::vector<double> alibi_slopes(int64_t heads);

/// The bucket, of `buckets`, of a distance d = key - query (Raffel et al. 2020, as in its published
/// code): one for each small distance, then wider and wider ones up to `farthest`, behind which all
/// distances share the last. With `both_ways` half of them are for keys behind the query; otherwise
/// those share bucket 0.
int64_t relative_bucket(int64_t distance, bool both_ways, int64_t buckets = 32,
                        int64_t farthest = 128);

/// With position_embedding alibi the bias is -slope * |d| and has no parameters; with relative it
/// is learned: "<scope>.weight" (32, H), a number for each bucket and head. With any other there is
/// none.
struct RelativePositions {
  RelativePositions(const ModelOptions& options, bool causal, const ParamScope& scope);
  /// AttentionOptions::relative_bias for sequences of `length`; undefined if there is none.
  Var bias(int64_t length) const;

  Var weight;  ///< (32, H) or undefined

 private:
  int64_t heads_;
  Tensor buckets_;  ///< (1, 2R - 1): the bucket of each distance
  Tensor slopes_;   ///< (H, 2R - 1), R the positions of the options or more
};

}  // namespace tapestry
