#include "data/batches/framed_rows.h"

#include <algorithm>

namespace tapestry {

FramedRows framed_rows(const TokenLists& texts, std::span<const int64_t> rows,
                       const TextFrame& frame, int32_t filler) {
  const int64_t count = std::ssize(rows);
  FramedRows result;
  result.lengths = Tensor::empty({count}, DType::kInt32);
  int64_t width = 0;
  for (int64_t row = 0; row < count; ++row) {
    const int64_t length = texts.length(rows[static_cast<size_t>(row)]) + frame.size();
    result.lengths.data<int32_t>()[row] = static_cast<int32_t>(length);
    width = std::max(width, length);
    result.tokens += length;
  }
  result.ids = Tensor::full({count, width}, filler, DType::kInt32);
  for (int64_t row = 0; row < count; ++row) {
    const auto tokens = texts[rows[static_cast<size_t>(row)]];
    int32_t* at = result.ids.data<int32_t>() + row * width;
    at = std::copy(frame.before.begin(), frame.before.end(), at);
    at = std::copy(tokens.begin(), tokens.end(), at);
    std::copy(frame.after.begin(), frame.after.end(), at);
  }
  return result;
}

}  // namespace tapestry
