// Times of the work on the stream (time_kernels() of core/cuda/runtime.h): one event before each
// piece, one after. Only core's CUDA code includes this file.
#pragma once

#include <string>

namespace tapestry::cuda::internal {

inline bool times_are_on = false;

struct Watch;
/// Records an event on this thread's stream.
Watch* start_watch(std::string name);
/// Records another one there.
void stop_watch(Watch* watch) noexcept;

/// Measures this thread's work on the stream during its lifetime as one piece, under the name that
/// name_of() gives. Does nothing without time_kernels().
class Timed {
 public:
  template <class F>
  explicit Timed(const F& name_of) {
    if (times_are_on) watch_ = start_watch(name_of());
  }
  ~Timed() {
    if (watch_ != nullptr) stop_watch(watch_);
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Watch* watch_ = nullptr;
};

}  // namespace tapestry::cuda::internal
