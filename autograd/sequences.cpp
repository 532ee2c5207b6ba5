#include "autograd/sequences.h"

#include <algorithm>
#include <vector>

#include "core/base/error.h"

namespace tapestry {

Sequences Sequences::of_lengths(std::span<const int32_t> lengths, Device device) {
  std::vector<int32_t> starts{0}, positions;
  int32_t longest = 0;
  for (const int32_t length : lengths) {
    check(length >= 1, "sequences", "each must have a row, got ", length, '.');
    for (int32_t place = 0; place < length; ++place) positions.push_back(place);
    starts.push_back(starts.back() + length);
    longest = std::max(longest, length);
  }
  check(longest >= 1, "sequences", "expected one at least.");
  const auto rows = static_cast<int64_t>(positions.size());
  return {Tensor::from(starts, {std::ssize(starts)}, device),
          Tensor::from(positions, {1, rows}, device), longest};
}

}  // namespace tapestry
