// A stream beside that of the process (core/cuda/runtime.h), and events that order the two. No CUDA
// type. Not in builds without CUDA.
#pragma once

#include "core/cuda/runtime.h"

namespace tapestry::cuda {

/// A place in a stream's work.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// Comes after the present work of `stream` (a cudaStream_t).
  void record(void* stream);
  /// True if the stream has come to it.
  bool reached() const;
  /// Later work of `stream` waits for this event.
  void hold(void* stream) const;

 private:
  void* event_ = nullptr;
};

/// A stream with priority over the process's stream.
class SideStream {
 public:
  SideStream();
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;
  void* get() const { return stream_; }

 private:
  void* stream_ = nullptr;
};

/// While it lives, this thread's kernels and copies go to `stream` instead of the process's one.
class OnStream {
 public:
  explicit OnStream(void* stream);
  ~OnStream();
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  void* before_;
};

}  // namespace tapestry::cuda
