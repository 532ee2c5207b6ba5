// How long the work on the stream takes (time_kernels() of core/cuda/runtime.h): an event before
// and one after each piece. Only core's CUDA code includes this file.
#pragma once

#include <string>

namespace tapestry::cuda::internal {

inline bool times_are_on = false;

struct Watch;
/// Records an event on this thread's stream.
Watch* start_watch(std::string name);
/// Records another one there.
void stop_watch(Watch* watch) noexcept;

/// What this thread puts on its stream while it lives is measured as one piece, under the name that
/// name_of() gives. Without time_kernels() it does nothing.
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
