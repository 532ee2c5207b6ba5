#pragma once

#include <optional>

#include "core/cuda/runtime.h"
#include "core/tensor.h"

namespace tapestry {

/// A copy of a small tensor (at most 64 bytes) that is taken now and read later. On a GPU the copy
/// is asynchronous: only wait() waits.
class HostCopy {
 public:
  explicit HostCopy(const Tensor& tensor) : host_(tensor) {
    if (tensor.device().is_cpu()) return;
    host_ = Tensor::empty(tensor.shape(), tensor.dtype());
    download_.emplace(tensor.raw(), tensor.bytes());
  }

  /// The copy in host memory. On a GPU this waits until it has arrived.
  const Tensor& wait() {
    if (download_) host_.copy_from_host(download_->wait());
    download_.reset();
    return host_;
  }

 private:
  Tensor host_;
  std::optional<cuda::Download> download_;
};

}  // namespace tapestry
