#pragma once

#include <cstdint>

#include "core/allocator.h"

namespace tapestry {

/// `count` uninitialised elements from the host allocator for the life of this object.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : bytes_(count * static_cast<int64_t>(sizeof(T))),
        data_(count == 0 ? nullptr : static_cast<T*>(host_allocate(bytes_))) {}
  ~Scratch() { host_free(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* data() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }

 private:
  int64_t bytes_;
  T* data_;
};

}  // namespace tapestry
