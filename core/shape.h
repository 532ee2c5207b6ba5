#pragma once

#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <string>

namespace tapestry {

/// The sizes of a dense row-major tensor, rank 0 (a scalar) to 4.
class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  /// Throws on rank > 4, a negative size, or an element count that overflows int64.
  Shape(std::initializer_list<int64_t> sizes);
  Shape(const int64_t* sizes, int rank);

  int rank() const { return rank_; }
  int64_t numel() const;
  /// Size of axis `axis`; negative counts from the end. Throws when out of range.
  int64_t operator[](int axis) const { return sizes_[normalize_axis(axis)]; }
  /// The last size (1 for a scalar) and the product of all others.
  int64_t cols() const { return rank_ == 0 ? 1 : sizes_[rank_ - 1]; }
  int64_t rows() const;
  /// `axis` as an index in [0, rank). Throws when out of range.
  int normalize_axis(int axis) const;
  /// This shape with one size replaced.
  Shape with(int axis, int64_t size) const;

  bool operator==(const Shape& other) const;
  /// "(8, 16, 512)"
  std::string str() const;

 private:
  int64_t sizes_[kMaxRank] = {};
  int rank_ = 0;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// NumPy's broadcasting of two shapes. Throws, naming `who`, if they do not fit.
Shape broadcast_shapes(const char* who, const Shape& a, const Shape& b);

}  // namespace tapestry
