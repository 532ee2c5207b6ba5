#include "core/cuda/times.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/cuda/runtime.h"

namespace tapestry::cuda {
namespace internal {

// The events around one piece of work.
struct Watch {
  cudaEvent_t begin{}, end{};
  cudaStream_t stream{};
  std::string name;
};

namespace {

class Watches {
 public:
  Watch* start(std::string name) {
    const std::lock_guard lock(mutex_);
    Watch* const watch = take();
    watch->name = std::move(name);
    watch->stream = static_cast<cudaStream_t>(stream());
    check_status(cudaEventRecord(watch->begin, watch->stream), "times");
    return watch;
  }
  void stop(Watch* watch) noexcept {
    const std::lock_guard lock(mutex_);
    cudaEventRecord(watch->end, watch->stream);
    ended_.push_back(watch);
  }
  std::vector<KernelTime> times() {
    const std::lock_guard lock(mutex_);
    settle();
    std::vector<KernelTime> all;
    for (const auto& [name, time] : times_) all.push_back(time);
    std::stable_sort(all.begin(), all.end(), [](const KernelTime& a, const KernelTime& b) {
      return a.milliseconds > b.milliseconds;
    });
    return all;
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    settle();
    times_.clear();
  }

 private:
  // More pieces than a step has. At this number the host waits for the device, to reuse the events.
  static constexpr size_t kMostAtOnce = 8192;

  Watch* take() {
    if (ended_.size() >= kMostAtOnce) settle();
    if (free_.empty()) {
      auto* const made = new Watch;
      check_status(cudaEventCreateWithFlags(&made->begin, cudaEventDefault), "times");
      check_status(cudaEventCreateWithFlags(&made->end, cudaEventDefault), "times");
      return made;
    }
    Watch* const watch = free_.back();
    free_.pop_back();
    return watch;
  }

  // Counts the pieces that have ended.
  void settle() {
    for (Watch* const watch : ended_) {
      float milliseconds = 0;
      check_status(cudaEventSynchronize(watch->end), "times");
      check_status(cudaEventElapsedTime(&milliseconds, watch->begin, watch->end), "times");
      KernelTime& time = times_[watch->name];
      time.name = watch->name;
      time.milliseconds += static_cast<double>(milliseconds);
      ++time.launches;
      free_.push_back(watch);
    }
    ended_.clear();
  }

  std::mutex mutex_;
  std::vector<Watch*> free_, ended_;
  std::map<std::string, KernelTime> times_;
};

// Never destroyed, as the pool of runtime.cpp.
Watches& watches() {
  static auto* instance = new Watches;
  return *instance;
}

}  // namespace

Watch* start_watch(std::string name) { return watches().start(std::move(name)); }
void stop_watch(Watch* watch) noexcept { watches().stop(watch); }

}  // namespace internal

void time_kernels() { internal::times_are_on = true; }
std::vector<KernelTime> kernel_times() {
  return internal::times_are_on ? internal::watches().times() : std::vector<KernelTime>();
}
void forget_kernel_times() {
  if (internal::times_are_on) internal::watches().forget();
}

}  // namespace tapestry::cuda
