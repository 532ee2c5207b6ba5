#pragma once

#include <cstdint>

#include "core/allocator.h"

namespace tapestry {

/// Uninitialised memory for `count` elements of T from the host allocator, freed at the end of the
/// scope. 64-byte aligned.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : bytes_(count * static_cast<int64_t>(sizeof(T))),
        data_(static_cast<T*>(host_allocate(bytes_))) {}
  ~Scratch() { host_free(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](int64_t i) { return data_[i]; }

 private:
  int64_t bytes_;
  T* data_;
};

}  // namespace tapestry
