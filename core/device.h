#pragma once

#include <ostream>
#include <string>

namespace tapestry {

/// Where a tensor's memory lives.
struct Device {
  enum class Kind : int { kCpu, kCuda };

  Kind kind = Kind::kCpu;
  int index = 0;

  bool is_cpu() const { return kind == Kind::kCpu; }
  bool operator==(const Device&) const = default;
  /// "cpu", "cuda:0"
  std::string str() const;
};

inline std::ostream& operator<<(std::ostream& out, const Device& device) {
  return out << device.str();
}

/// "auto" (the first usable CUDA device, else the CPU), "cpu", "cuda", "cuda:N". Throws
/// Error(kConfig) on anything else and on a device that is not usable.
Device parse_device(const std::string& name);

}  // namespace tapestry
