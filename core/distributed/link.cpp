#include "core/distributed/link.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "core/base/clock.h"

namespace tapestry {
namespace {

// The longest of all ranks' seconds, so that all decide alike.
double longest(Communicator& communicator, double seconds) {
  const std::string mine(reinterpret_cast<const char*>(&seconds), sizeof seconds);
  for (const std::string& word : communicator.all_gather(mine)) {
    double other = 0;
    std::memcpy(&other, word.data(), std::min(word.size(), sizeof other));
    seconds = std::max(seconds, other);
  }
  return seconds;
}

double measure_latency(Communicator& communicator) {
  constexpr int kWarm = 5, kTimed = 40;
  std::array<double, kTimed> seconds{};
  for (int i = -kWarm; i < kTimed; ++i) {
    const double start = steady_seconds();
    communicator.all_gather("");
    if (i >= 0) seconds[static_cast<size_t>(i)] = steady_seconds() - start;
  }
  std::sort(seconds.begin(), seconds.end());
  return longest(communicator, seconds[kTimed / 2]);
}

class BucketRounds {
 public:
  BucketRounds(Communicator& communicator, int64_t bytes) : communicator_(communicator) {
    const int64_t slice = std::max<int64_t>(1, bytes / 4 / communicator.size());
    for (Tensor& bucket : buckets_) bucket = Tensor::zeros({slice * communicator.size()});
  }
  double bytes() const { return static_cast<double>(buckets_[0].bytes()); }

  // The seconds of the slowest rank for `count` buckets.
  double exchange(int64_t count) {
    communicator_.all_gather("");  // all begin now
    std::array<Communicator::Ticket, Communicator::kInFlight> tickets{};
    const double start = steady_seconds();
    for (int64_t i = 0; i < count + std::ssize(tickets); ++i) {
      const auto place = static_cast<size_t>(i) % tickets.size();
      if (i >= std::ssize(tickets)) communicator_.wait(tickets[place]);
      if (i >= count) continue;
      const Tensor& bucket = buckets_[place];
      tickets[place] = communicator_.start(Exchange::kAllReduce,
                                           {bucket.raw(), bucket.numel(), bucket.dtype(), bucket});
    }
    return longest(communicator_, steady_seconds() - start);
  }

 private:
  Communicator& communicator_;
  std::array<Tensor, Communicator::kInFlight> buckets_;
};

}  // namespace

double bytes_sent(double bytes, int64_t ranks) {
  return 2 * bytes * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

Link measure_link(Communicator& communicator, const LinkOptions& options) {
  if (communicator.size() == 1) return {0, std::numeric_limits<double>::infinity()};
  Link link;
  link.latency_seconds = measure_latency(communicator);
  BucketRounds rounds(communicator, options.bucket_bytes);
  rounds.exchange(Communicator::kInFlight);  // connections are made, memory is touched
  for (int64_t count = Communicator::kInFlight;; count *= 2) {
    const double seconds = rounds.exchange(count);
    if (seconds < options.seconds && count < int64_t{1} << 20) continue;
    link.bytes_per_second =
        bytes_sent(rounds.bytes() * static_cast<double>(count), communicator.size()) / seconds;
    return link;
  }
}

}  // namespace tapestry
