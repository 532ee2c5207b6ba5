// What reading and writing safetensors files share.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "apps/checkpoint/bytes.h"
#include "core/base/error.h"
#include "core/tensor.h"

namespace tapestry {

/// Begins the names in the metadata of tensors that are words of frozen matrices.
inline constexpr std::string_view kFrozenPrefix = "frozen:";

template <class... Parts>
[[noreturn]] void broken_safetensors(const std::string& name, const Parts&... parts) {
  fail(ErrorKind::kData, "[safetensors] ", name, ": ", parts...);
}

/// Calls f(rows of the flat tensor, elements before them) for parts whose elements take at most
/// kPartBytes in both types.
template <class F>
void for_parts(const Tensor& tensor, uint64_t other_bytes, F f) {
  const int64_t n = tensor.numel();
  const Tensor flat = tensor.reshape({n});
  const int64_t step =
      kPartBytes / std::max(size_of(tensor.dtype()), static_cast<int64_t>(other_bytes));
  for (int64_t begin = 0; begin < n; begin += step) {
    f(flat.slice(begin, std::min(n, begin + step)), static_cast<uint64_t>(begin));
  }
}

}  // namespace tapestry
