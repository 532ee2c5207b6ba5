#include "core/device.h"

#include <charconv>

#include "core/cuda/runtime.h"
#include "core/error.h"

namespace tapestry {

std::string Device::str() const { return is_cpu() ? "cpu" : "cuda:" + std::to_string(index); }

Device parse_device(const std::string& name) {
  if (name == "cpu") return {};
  if (name == "auto") return cuda::device_count() > 0 ? Device{Device::Kind::kCuda, 0} : Device{};
  Device device{Device::Kind::kCuda, 0};
  bool valid = name == "cuda";
  if (name.starts_with("cuda:")) {
    const char* end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + 5, end, device.index);
    valid = error == std::errc() && rest == end && device.index >= 0;
  }
  if (!valid) {
    fail(ErrorKind::kConfig, "[device] expected auto, cpu, cuda or cuda:N, got '", name, "'.");
  }
  const int count = cuda::device_count();
  if (device.index >= count) {
    fail(ErrorKind::kConfig, "[device] ", device, " is not available: CUDA devices found: ", count,
         count == 0 ? concat(" (", cuda::why_no_device(), ").") : ".");
  }
  return device;
}

}  // namespace tapestry
