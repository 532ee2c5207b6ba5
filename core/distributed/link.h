// How fast ranks reach each other, measured the way training uses the network.
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
/// All ranks call it and get the same figures: those of the slowest. The additions of the sums
/// count, as they do in training. One rank: no latency and a rate of infinity.
Link measure_link(Communicator& communicator, const LinkOptions& options = {});

/// What one rank sends when `bytes` are summed for all: 2 (R - 1) / R of them, the sums' slices and
/// the slices of sums. Where ranks share hosts (stages_of), it is what one sends to others of any
/// host.
double bytes_sent(double bytes, int64_t ranks);

}  // namespace tapestry
