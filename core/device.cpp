#include "core/device.h"

#include <charconv>
#include <optional>

#include "core/base/error.h"
#include "core/cuda/runtime.h"
#include "core/device_name.h"

namespace tapestry {

std::string Device::str() const { return is_cpu() ? "cpu" : "cuda:" + std::to_string(index); }

namespace {

// Knows all names but "auto", which depends on the machine.
std::optional<Device> device_named(const std::string& name) {
  if (name == "cpu") return Device{};
  Device device{Device::Kind::kCuda, 0};
  if (name == "cuda") return device;
  if (!name.starts_with("cuda:")) return std::nullopt;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + 5, end, device.index);
  if (error != std::errc() || rest != end || device.index < 0) return std::nullopt;
  return device;
}

}  // namespace

void validate_device_name(const std::string& name, const OptionReport& report) {
  report.expect(name == "auto" || device_named(name).has_value(), "device",
                "must be one of auto, cpu, cuda, cuda:N, got '", name, "'.");
}

Device parse_device(const std::string& name) {
  validate_device_name(name);
  if (name == "auto") return cuda::device_count() > 0 ? Device{Device::Kind::kCuda, 0} : Device{};
  const Device device = *device_named(name);
  const int count = device.is_cpu() ? 1 : cuda::device_count();
  if (device.index >= count) {
    fail(ErrorKind::kConfig, "[device] ", device, " is not available: CUDA devices found: ", count,
         count == 0 ? concat(" (", cuda::why_no_device(), ").") : ".");
  }
  return device;
}

}  // namespace tapestry
