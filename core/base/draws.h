// Random choices of the data on top of Philox: streams by their purpose, and draws in order.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/philox.h"

namespace tapestry {

/// The stream of draws of one purpose in one epoch.
inline PhiloxKey draw_key(uint64_t seed, int64_t epoch, std::string_view purpose) {
  return {seed, static_cast<uint32_t>(epoch), stream_of(purpose.data(), purpose.size())};
}

/// The draw block of one place in one row; both are below 2^32.
inline uint64_t draw_index(int64_t row, int64_t place) {
  return static_cast<uint64_t>(row) << 32 | static_cast<uint64_t>(place);
}

/// Fisher-Yates; uses the draw blocks 2 to values.size().
template <class T>
void shuffle(std::vector<T>& values, const PhiloxKey& key) {
  for (size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[philox_below(key, i, i)]);
  }
}

/// The draws of one row, in order.
class RowDraws {
 public:
  RowDraws(const PhiloxKey& key, int64_t row) : key_(key), next_(draw_index(row, 0)) {}

  /// Uniform in [0, bound).
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(philox_below(key_, next_++, static_cast<uint64_t>(bound)));
  }
  /// Uniform in [0, 1) with 53 bits.
  double uniform() {
    const Philox4 bits = philox(key_, next_++);
    return to_uniform(bits.v[0], bits.v[1]);
  }
  /// Uniform in [0, 1) with 24 bits: four of a block, for many draws of a row.
  float short_uniform() {
    if (used_ == 4) {
      bits_ = philox(key_, next_++);
      used_ = 0;
    }
    return to_uniform(bits_.v[used_++]);
  }
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) {
      std::swap(values[i - 1], values[static_cast<size_t>(below(static_cast<int64_t>(i)))]);
    }
  }

 private:
  PhiloxKey key_;
  uint64_t next_;
  Philox4 bits_{};
  int used_ = 4;  // of bits_
};

}  // namespace tapestry
