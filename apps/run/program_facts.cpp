#include "apps/run/program_facts.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/build_info.h"
#include "core/cpu/bfloat16_kernel.h"
#include "core/cpu/blas.h"
#include "core/cpu/int8_kernel.h"
#include "core/cpu/vector_target.h"

namespace tapestry {

Facts program_facts(const std::string& commit) {
  const BuildInfo& build = build_info();
  const auto told = [](const auto& describe) {
    try {
      return std::string(describe());
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  return {{"tapestry", build.version},
          {"commit", commit},
          {"build", concat(build.type, ", ", build.devices, ", ", build.compiler)},
          {"processor", concat(cpu_name().empty() ? "without a name" : cpu_name(), ", vectors ",
                               vector_target())},
          {"BLAS", told(blas_description)},
          {"bfloat16", told([] { return name_of(bfloat16_kernel()); })},
          {"int8", told([] { return name_of(int8_kernel()); })}};
}

Facts machine_facts(const std::string& commit) {
  Facts facts = program_facts(commit);
  utsname system{};
  if (uname(&system) == 0) {
    facts.emplace_back("system", concat(system.sysname, ' ', system.release, ' ', system.machine));
  }
  const double bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  constexpr double kGigabyte = 1 << 30;
  facts.emplace_back("memory", fmt::format("{:.1f} GB", bytes / kGigabyte));
  return facts;
}

}  // namespace tapestry
