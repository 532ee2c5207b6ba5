// Predicts the time of an update on R ranks, from one rank's times and the link between them.
//
//     C = m c                     m micro-batches on a rank, each c seconds of forward and backward
//     S(b) = (R - 1) / R b / B    b bytes of gradients, B bytes that a rank sends in a second
//     E(x) = max over buckets k of  x S(b_k + b_k+1 + ...) - t_k
//     none:       T = C + E(2) + U
//     optimizer:  T = C + E(1) + S(b) + U / R + l
//     efficiency = (C + U) / T
//
// The exchange hides behind the last micro-batch's backward pass: bucket k is complete t_k seconds
// before its end, and is sent after the buckets before it. The reduce-scatter takes S, the
// all-gather S again. U is the optimizer's time for all parameters, l the latency of the small
// exchange that optimizer state in slices needs.
#pragma once

#include <cstdint>
#include <vector>

#include "core/distributed/link.h"
#include "optim/gradient_exchange.h"

namespace tapestry {

/// A rank's own work in an update, without waiting for others.
struct StepCost {
  double micro_batch_seconds = 0;  ///< c
  double update_seconds = 0;       ///< U
  std::vector<BucketReady> ready;  ///< b_k and t_k, in the order in which the buckets go
};

struct StepPrediction {
  double seconds = 0;          ///< T
  double exposed_seconds = 0;  ///< the part of it that waits for other ranks
  double efficiency = 0;
};

/// micro_batches is m, those of one rank. Throws Error for fewer than 1 rank or micro-batch.
StepPrediction predict_step(const StepCost& cost, const Link& link, Shard shard, int64_t ranks,
                            int64_t micro_batches);

/// The fewest micro-batches on a rank with which predict_step() has this efficiency, above 0 and
/// below 1; 0 if a million are too few.
int64_t micro_batches_for(double efficiency, const StepCost& cost, const Link& link, Shard shard,
                          int64_t ranks);

}  // namespace tapestry
