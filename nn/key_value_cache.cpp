#include "nn/key_value_cache.h"

#include <algorithm>

#include "autograd/ops.h"
#include "core/dispatch_device.h"
#include "core/kernels/elementwise.h"

namespace tapestry {
namespace {

// Copies the first `length` tokens of every row between caches of different capacity.
void copy_tokens(const Tensor& from, const Tensor& to, int64_t offset, int64_t length) {
  dispatch(to, [&](auto device, auto type) {
    using T = decltype(type);
    const int64_t width = to.shape()[2];
    kernels::copy_block(device, from.data<T>(), from.shape()[1] * width,
                        to.data<T>() + offset * width, to.shape()[1] * width, to.shape()[0],
                        length * width, Write::kSet);
  });
}

}  // namespace

void KeyValueCache::append(const Tensor& tokens) {
  const int64_t rows = tokens.shape()[0], count = tokens.shape()[1], width = tokens.shape()[2];
  if (!kv.defined() || length + count > kv.shape()[1]) {
    const int64_t capacity = std::max<int64_t>(16, 2 * length + count);
    Tensor grown = Tensor::empty({rows, capacity, width}, tokens.dtype(), tokens.device());
    if (length > 0) copy_tokens(kv, grown, 0, length);
    kv = std::move(grown);
  }
  check(kv.shape()[0] == rows && kv.shape()[2] == width, "cache", "the cache is ", kv.shape(),
        ", the tokens ", tokens.shape(), '.');
  copy_tokens(tokens, kv, length, count);
  length += count;
}

void KeyValueCache::select(const Tensor& rows) {
  if (kv.defined()) kv = gather_rows(kv, rows);
}

Tensor gather_rows(const Tensor& x, const Tensor& rows) {
  const int64_t count = rows.numel();
  const Var table = x.reshape({x.shape()[0], x.numel() / std::max<int64_t>(1, x.shape()[0])});
  return embedding(rows.reshape({1, count}), table).value().reshape(x.shape().with(0, count));
}

Tensor gather_ids(const Tensor& ids, const Tensor& rows) {
  const std::vector<int32_t> from = ids.to_vector<int32_t>();
  std::vector<int32_t> kept;
  for (const int32_t row : rows.to_vector<int32_t>())
    kept.push_back(from.at(static_cast<size_t>(row)));
  return Tensor::from(kept, {rows.numel()}, ids.device());
}

}  // namespace tapestry
