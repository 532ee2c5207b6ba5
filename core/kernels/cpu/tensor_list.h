// One parallel loop over many tensors, so that small ones (biases, norms) do not each pay for
// waking the threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/cpu/parallel.h"

namespace tapestry::kernels {

/// The elements of several tensors, one after the other, cut into chunks of kChunk elements. Only
/// the sizes decide where the cuts fall.
class TensorList {
 public:
  static constexpr int64_t kChunk = 16384;

  template <class Items>
  explicit TensorList(const Items& items) {
    ends_.reserve(items.size());
    int64_t total = 0;
    for (const auto& item : items) ends_.push_back(total += item.n);
  }

  int64_t chunks() const { return ends_.empty() ? 0 : (ends_.back() + kChunk - 1) / kChunk; }

  /// Calls f(chunk, tensor, begin, end) on all threads for each part of a tensor within a chunk:
  /// elements [begin, end) of tensor number `tensor`. One thread takes the parts of a chunk in
  /// order.
  template <class F>
  void for_each_piece(F&& f) const {
    parallel_for(chunks(), [&](int64_t chunk) {
      const int64_t chunk_end = std::min((chunk + 1) * kChunk, ends_.back());
      int64_t at = chunk * kChunk;
      size_t tensor = std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin();
      for (; at < chunk_end; ++tensor) {
        const int64_t start = tensor == 0 ? 0 : ends_[tensor - 1];
        const int64_t piece_end = std::min(chunk_end, ends_[tensor]);
        if (at < piece_end) f(chunk, tensor, at - start, piece_end - start);
        at = piece_end;
      }
    });
  }

 private:
  std::vector<int64_t> ends_;
};

}  // namespace tapestry::kernels
