#include "core/build_info.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <array>
#include <cstring>
#include <fstream>

#include "core/base/error.h"
#include "core/cuda/runtime.h"

namespace tapestry {

// CMake defines these for this file only, so that nothing else is compiled again for them.
const BuildInfo& build_info() {
  static constexpr BuildInfo info{TAPESTRY_VERSION, TAPESTRY_BUILD_TYPE, TAPESTRY_DEVICES,
                                  TAPESTRY_COMPILER};
  return info;
}

#ifdef __x86_64__

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

#else

namespace {

// Arm's numbers of its cores, as /proc/cpuinfo has them.
constexpr std::pair<const char*, const char*> kArmCores[] = {
    {"0xd03", "Cortex-A53"},  {"0xd05", "Cortex-A55"},  {"0xd07", "Cortex-A57"},
    {"0xd08", "Cortex-A72"},  {"0xd0b", "Cortex-A76"},  {"0xd0c", "Neoverse N1"},
    {"0xd40", "Neoverse V1"}, {"0xd49", "Neoverse N2"}, {"0xd4f", "Neoverse V2"}};

}  // namespace

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string implementer, part;
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.starts_with("CPU implementer")) implementer = line.substr(colon + 2);
    if (line.starts_with("CPU part")) part = line.substr(colon + 2);
  }
  constexpr const char* kArm = "0x41";
  for (const auto& [number, name] : kArmCores) {
    if (implementer == kArm && part == number) return concat("Arm ", name);
  }
  return part.empty() ? "" : concat("part ", part, " of implementer ", implementer);
}

#endif

std::string device_name(Device device) {
  return device.is_cpu() ? device.str() : concat(device, ", ", cuda::description(device.index));
}

}  // namespace tapestry
