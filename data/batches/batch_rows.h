// Takes some rows of a batch: for the rows_of() of each kind of batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/tensor.h"
#include "data/tokenizers/special_ids.h"

namespace tapestry {

/// Takes the rows [begin, end) of each existing field of a batch; tensors share storage.
struct TakeRows {
  int64_t begin, end;

  int64_t count() const { return end - begin; }
  Tensor operator()(const Tensor& tensor) const {
    return tensor.defined() ? tensor.slice(begin, end) : tensor;
  }
  template <class T>
  std::vector<T> operator()(const std::vector<T>& values) const {
    if (values.empty()) return {};
    return {values.begin() + begin, values.begin() + end};
  }
};

/// The sum of int32 values.
inline int64_t sum_of(const Tensor& lengths) {
  const auto* const values = lengths.data<int32_t>();
  return std::accumulate(values, values + lengths.numel(), int64_t{0});
}

/// How many int32 targets are to be predicted.
inline int64_t count_targets(const Tensor& targets) {
  const auto* const values = targets.data<int32_t>();
  return targets.numel() - std::count(values, values + targets.numel(), kNoTarget);
}

}  // namespace tapestry
