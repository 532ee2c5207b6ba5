#include "core/build_info.h"

#include <cpuid.h>

#include <array>
#include <cstring>

#include "core/base/error.h"
#include "core/cuda/runtime.h"

namespace tapestry {

// CMake defines these for this file only, so that nothing else is compiled again for them.
const BuildInfo& build_info() {
  static constexpr BuildInfo info{TAPESTRY_VERSION, TAPESTRY_BUILD_TYPE, TAPESTRY_DEVICES,
                                  TAPESTRY_COMPILER};
  return info;
}

std::string cpu_name() {
  constexpr unsigned kFirstLeaf = 0x80000002, kLeaves = 3;
  std::array<unsigned, 4 * kLeaves> words{};
  for (unsigned i = 0; i < kLeaves; ++i) {
    unsigned* const word = &words[4 * i];
    if (!__get_cpuid(kFirstLeaf + i, &word[0], &word[1], &word[2], &word[3])) return "";
  }
  char name[sizeof(words) + 1] = {};
  std::memcpy(name, words.data(), sizeof(words));
  const std::string padded = name;
  const size_t begin = padded.find_first_not_of(' '), end = padded.find_last_not_of(' ');
  return begin == std::string::npos ? "" : padded.substr(begin, end - begin + 1);
}

std::string device_name(Device device) {
  return device.is_cpu() ? device.str() : concat(device, ", ", cuda::description(device.index));
}

}  // namespace tapestry
