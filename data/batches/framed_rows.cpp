#include "data/batches/framed_rows.h"

#include <algorithm>

namespace tapestry {

namespace {

using Texts = std::vector<std::span<const int32_t>>;

FramedRows rows_of(const Texts& texts, const TextFrame& frame, int32_t filler) {
  FramedRows result;
  result.lengths = Tensor::empty({std::ssize(texts)}, DType::kInt32);
  int64_t width = 0, row = 0;
  for (const auto& text : texts) {
    const int64_t length = std::ssize(text) + frame.size();
    result.lengths.data<int32_t>()[row++] = static_cast<int32_t>(length);
    width = std::max(width, length);
    result.tokens += length;
  }
  result.ids = Tensor::full({std::ssize(texts), width}, filler, DType::kInt32);
  int32_t* begin = result.ids.data<int32_t>();
  for (const auto& text : texts) {
    int32_t* at = std::copy(frame.before.begin(), frame.before.end(), begin);
    at = std::copy(text.begin(), text.end(), at);
    std::copy(frame.after.begin(), frame.after.end(), at);
    begin += width;
  }
  return result;
}

}  // namespace

FramedRows framed_rows(const TokenLists& texts, std::span<const int64_t> rows,
                       const TextFrame& frame, int32_t filler) {
  Texts chosen;
  for (const int64_t row : rows) chosen.push_back(texts[row]);
  return rows_of(chosen, frame, filler);
}

FramedRows framed_rows(const std::vector<FramedText>& texts, int32_t filler) {
  Texts ids;
  for (const FramedText& text : texts) ids.emplace_back(text.ids);
  FramedRows rows = rows_of(ids, {}, filler);
  if (std::ranges::all_of(texts, [](const FramedText& text) { return text.second == 0; })) {
    return rows;
  }
  rows.segments = Tensor::zeros(rows.ids.shape(), DType::kInt32);
  auto* begin = rows.segments.data<int32_t>();
  for (const FramedText& text : texts) {
    if (text.second > 0) std::fill(begin + text.second, begin + std::ssize(text.ids), 1);
    begin += rows.ids.shape()[1];
  }
  return rows;
}

}  // namespace tapestry
