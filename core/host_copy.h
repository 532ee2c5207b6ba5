#pragma once

#include <optional>

#include "core/cuda/runtime.h"
#include "core/tensor.h"

namespace tapestry {

/// The few values of a small tensor (64 bytes at most), taken now and looked at later: on a GPU
/// they travel while the work goes on, and nothing waits before wait().
class HostCopy {
 public:
  explicit HostCopy(const Tensor& tensor) : host_(tensor) {
    if (tensor.device().is_cpu()) return;
    host_ = Tensor::empty(tensor.shape(), tensor.dtype());
    download_.emplace(tensor.raw(), tensor.bytes());
  }

  /// In host memory.
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
