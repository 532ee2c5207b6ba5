#include "core/shape.h"

#include <algorithm>
#include <span>

#include "core/base/error.h"
#include "core/base/text.h"

namespace tapestry {

Shape::Shape(std::initializer_list<int64_t> sizes)
    : Shape(sizes.begin(), static_cast<int>(sizes.size())) {}

Shape::Shape(const int64_t* sizes, int rank) : rank_(rank) {
  check(rank >= 0 && rank <= kMaxRank, "shape", "expected rank 0 to 4, got ", rank, '.');
  std::copy(sizes, sizes + rank, sizes_);
  int64_t total = 1;
  for (int i = 0; i < rank; ++i) {
    check(sizes[i] >= 0, "shape", "expected sizes >= 0, got ", *this, '.');
    check(!__builtin_mul_overflow(total, sizes[i], &total), "shape",
          "the element count overflows 64 bits: ", *this, '.');
  }
}

int64_t Shape::numel() const {
  int64_t total = 1;
  for (int i = 0; i < rank_; ++i) total *= sizes_[i];
  return total;
}

int64_t Shape::rows() const {
  int64_t total = 1;
  for (int i = 0; i + 1 < rank_; ++i) total *= sizes_[i];
  return total;
}

int Shape::normalize_axis(int axis) const {
  const int index = axis < 0 ? axis + rank_ : axis;
  check(index >= 0 && index < rank_, "shape", "axis ", axis, " is out of range for ", *this, '.');
  return index;
}

Shape Shape::with(int axis, int64_t size) const {
  int64_t sizes[kMaxRank];
  std::copy(sizes_, sizes_ + kMaxRank, sizes);
  sizes[normalize_axis(axis)] = size;
  return Shape(sizes, rank_);
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && std::equal(sizes_, sizes_ + rank_, other.sizes_);
}

std::string Shape::str() const {
  return concat('(', join(std::span(sizes_, static_cast<size_t>(rank_)), ", "), ')');
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.str(); }

Shape broadcast_shapes(const char* who, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  int64_t sizes[Shape::kMaxRank];
  for (int i = 1; i <= rank; ++i) {
    const int64_t size_a = i <= a.rank() ? a[-i] : 1;
    const int64_t size_b = i <= b.rank() ? b[-i] : 1;
    check(size_a == size_b || size_a == 1 || size_b == 1, who, "shapes do not broadcast: ", a,
          " and ", b, '.');
    sizes[rank - i] = size_a == 1 ? size_b : size_a;
  }
  return Shape(sizes, rank);
}

}  // namespace tapestry
