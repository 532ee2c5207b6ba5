// The rows of a batch as texts, for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/tensor.h"

namespace tapestry {

/// The first `length` ids of a row of (B, T) int32.
inline std::vector<int32_t> ids_of_row(const Tensor& ids, int64_t row, int64_t length) {
  const auto* const begin = ids.data<int32_t>() + row * ids.shape()[1];
  return {begin, begin + length};
}
/// The same, with the lengths (B) int32 of all rows.
inline std::vector<int32_t> ids_of_row(const Tensor& ids, int64_t row, const Tensor& lengths) {
  return ids_of_row(ids, row, lengths.data<int32_t>()[row]);
}

/// text(row) of each row, behind the row's number in the corpus, from 1, if it is known.
template <class F>
std::vector<std::string> row_texts(int64_t rows, const std::vector<int64_t>& indices, F text) {
  std::vector<std::string> texts;
  for (int64_t row = 0; row < rows; ++row) {
    const std::string number =
        indices.empty() ? "" : concat(indices[static_cast<size_t>(row)] + 1, ": ");
    texts.push_back(number + text(row));
  }
  return texts;
}

}  // namespace tapestry
