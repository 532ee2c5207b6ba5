// Measures the network between ranks, with the exchanges that training uses.
#pragma once

#include <cstdint>

#include "core/distributed/communicator.h"

namespace tapestry {

struct Link {
  double latency_seconds = 0;   ///< of a small exchange between all ranks, there and back
  double bytes_per_second = 0;  ///< that a rank sends while all exchange buckets
};

struct LinkOptions {
  int64_t bucket_bytes = int64_t{8} << 20;
  double seconds = 0.5;  ///< that the buckets take together, at least
};

/// Exchanges small texts, then buckets (Exchange::kAllReduce, as many in flight as in training).
/// All ranks call it and get the same figures, those of the slowest rank. The additions of the sums
/// count, as they do in training. A single rank has no latency and an infinite rate.
Link measure_link(Communicator& communicator, const LinkOptions& options = {});

/// Bytes that one rank sends to sum `bytes` for all: 2 (R - 1) / R of them, the slices to add and
/// the slices of the sum. If ranks share hosts (stages_of), messages within a host count, too.
double bytes_sent(double bytes, int64_t ranks);

}  // namespace tapestry
