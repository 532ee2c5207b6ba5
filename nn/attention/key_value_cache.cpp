#include "nn/attention/key_value_cache.h"

#include <algorithm>
#include <utility>

#include "autograd/ops.h"
#include "core/dispatch_device.h"
#include "core/kernels/elementwise/elementwise.h"

namespace tapestry {

// A row that no sequence points to any more is found only when rows run out: most steps then do
// nothing but take one.
int32_t CacheRows::take() {
  if (free_.empty()) {
    std::vector<bool> used(static_cast<size_t>(capacity_));
    for (const auto& rows : rows_) {
      for (const int32_t row : rows) used[static_cast<size_t>(row)] = true;
    }
    const auto count = static_cast<int32_t>(std::count(used.begin(), used.end(), true));
    // At least half of the rows are free afterwards, or they would run out again soon.
    const int32_t grown = std::max(2 * count, 64);
    if (grown > capacity_) capacity_ = grown;
    used.resize(static_cast<size_t>(capacity_));
    for (int32_t row = capacity_ - 1; row >= 0; --row) {
      if (!used[static_cast<size_t>(row)]) free_.push_back(row);
    }
  }
  const int32_t row = free_.back();
  free_.pop_back();
  return row;
}

DecodingStep CacheRows::add(std::span<const int32_t> lengths, int64_t width, Device device) {
  const auto count = static_cast<int64_t>(lengths.size());
  std::vector<int32_t> written(static_cast<size_t>(count * width), -1);
  for (int64_t b = 0; b < count; ++b) {
    check(lengths[b] >= 0 && lengths[b] <= width, "cache", "expected at most ", width,
          " tokens, got ", lengths[b], '.');
    auto& rows = rows_.emplace_back();
    for (int64_t t = 0; t < lengths[b]; ++t) {
      const int32_t row = take();
      rows.push_back(row);
      written[static_cast<size_t>(b * width + t)] = row;
    }
  }
  DecodingStep step;
  step.written = Tensor::from(written, {count * width}, device);
  step.capacity = capacity_;
  return step;
}

DecodingStep CacheRows::next(Device device) {
  const int64_t count = sequences();
  std::vector<int32_t> positions, written;
  int64_t most = 0;
  for (auto& rows : rows_) {
    positions.push_back(static_cast<int32_t>(rows.size()));
    most = std::max(most, std::ssize(rows));
    written.push_back(take());
    rows.push_back(written.back());
  }
  DecodingStep step;
  step.positions = {Tensor::from(positions, {count}, device), most};
  step.written = Tensor::from(written, {count}, device);
  step.capacity = capacity_;
  attend(step, device);
  return step;
}

DecodingStep CacheRows::held(Device device) const {
  DecodingStep step;
  step.capacity = capacity_;
  attend(step, device);
  return step;
}

void CacheRows::attend(DecodingStep& step, Device device) const {
  size_t most = 1;
  for (const auto& rows : rows_) most = std::max(most, rows.size());
  std::vector<int32_t> table(rows_.size() * most), lengths;
  for (size_t i = 0; i < rows_.size(); ++i) {
    std::copy(rows_[i].begin(), rows_[i].end(), table.begin() + static_cast<int64_t>(i * most));
    lengths.push_back(static_cast<int32_t>(rows_[i].size()));
  }
  step.key_rows = Tensor::from(table, {sequences(), static_cast<int64_t>(most)}, device);
  step.lengths = Tensor::from(lengths, {sequences()}, device);
}

void CacheRows::drop_last(int64_t first) {
  for (int64_t i = first; i < sequences(); ++i) rows_.at(static_cast<size_t>(i)).pop_back();
}

void CacheRows::select(std::span<const int32_t> sequences) {
  std::vector<int32_t> uses(rows_.size());
  for (const int32_t i : sequences) ++uses.at(static_cast<size_t>(i));
  std::vector<std::vector<int32_t>> selected;
  selected.reserve(sequences.size());
  for (const int32_t i : sequences) {
    auto& rows = rows_[static_cast<size_t>(i)];
    if (--uses[static_cast<size_t>(i)] == 0) {
      selected.push_back(std::move(rows));
    } else {
      selected.push_back(rows);
    }
  }
  rows_ = std::move(selected);
}

void KeyValueCache::write(const Tensor& tokens, int64_t first, int64_t width,
                          const DecodingStep& step) {
  const int64_t columns = tokens.shape()[2], count = tokens.numel() / std::max<int64_t>(1, columns);
  check(first + width <= columns && step.written.shape() == Shape{count} &&
            (!kv.defined() || kv.shape()[2] == width),
        "cache", "the cache is ", kv.defined() ? kv.shape() : Shape{}, ", the tokens ",
        tokens.shape(), " with ", width, " columns from ", first, " on for ", step.written.shape(),
        " rows.");
  const int64_t held = kv.defined() ? kv.shape()[1] : 0;
  if (held < step.capacity) {
    const Tensor grown = Tensor::empty({1, step.capacity, width}, tokens.dtype(), tokens.device());
    const auto flat = [width](const Tensor& x) { return x.reshape({x.shape()[1], width}); };
    if (held > 0) flat(grown).slice(0, held).copy_from(flat(kv));
    kv = grown;
  }
  dispatch(kv, [&](auto device, auto type) {
    using T = decltype(type);
    kernels::scatter_rows(device, tokens.data<T>() + first, columns, step.written.data<int32_t>(),
                          count, kv.data<T>(), width);
  });
}

Tensor gather_rows(const Tensor& x, const Tensor& rows) {
  const int64_t count = rows.numel();
  const Var table = x.reshape({x.shape()[0], x.numel() / std::max<int64_t>(1, x.shape()[0])});
  return embedding(rows.reshape({1, count}), table).value().reshape(x.shape().with(0, count));
}

}  // namespace tapestry
