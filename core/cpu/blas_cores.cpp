#include "core/cpu/blas_cores.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <iterator>
#include <vector>

#include "core/base/error.h"
#include "core/base/nearest_name.h"

namespace tapestry {
namespace {

enum class Vectors { kSse, kAvx, kAvx2, kAvx512 };

struct Level {
  const char* name;
  /// GFLOP/s of float32 products of 1024^3 on one thread of an Intel Xeon with AMX, the kernels of
  /// Prescott, Sandybridge, Haswell and SkylakeX in turn, medians of three rounds (0.3.21): only
  /// their ratios count, and other processors have similar ones.
  double rate;
};
constexpr std::array<Level, 4> kLevels = {
    {{"SSE", 36.0}, {"AVX", 61.8}, {"AVX2", 91.2}, {"AVX-512", 128.9}}};

const Level& level_of(Vectors vectors) { return kLevels.at(static_cast<size_t>(vectors)); }

struct Core {
  const char* name;
  Vectors vectors;
};
constexpr Core kCores[] = {
    {"Prescott", Vectors::kSse},
    {"Atom", Vectors::kSse},
    {"Core2", Vectors::kSse},
    {"Penryn", Vectors::kSse},
    {"Dunnington", Vectors::kSse},
    {"Nehalem", Vectors::kSse},
    {"Opteron", Vectors::kSse},
    {"Opteron_SSE3", Vectors::kSse},
    {"Barcelona", Vectors::kSse},
    {"Bobcat", Vectors::kSse},
    {"Nano", Vectors::kSse},
    {"Sandybridge", Vectors::kAvx},
    {"Bulldozer", Vectors::kAvx},
    {"Piledriver", Vectors::kAvx},
    {"Steamroller", Vectors::kAvx},
    {"Excavator", Vectors::kAvx2},
    {"Haswell", Vectors::kAvx2},
    {"Zen", Vectors::kAvx2},
    {"SkylakeX", Vectors::kAvx512},
    {"Cooperlake", Vectors::kAvx512},
    {"SapphireRapids", Vectors::kAvx512},
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Null for a core of another version of the library.
const Core* find_core(const std::string& name) {
  const auto* const found = std::find_if(std::begin(kCores), std::end(kCores), [&](const Core& c) {
    return lower(c.name) == lower(name);
  });
  return found == std::end(kCores) ? nullptr : found;
}

// The widest that the processor has.
Vectors widest(const CpuTraits& cpu) {
  if (cpu.avx512) return Vectors::kAvx512;
  if (cpu.avx2) return Vectors::kAvx2;
  return cpu.avx ? Vectors::kAvx : Vectors::kSse;
}

// Zen 4 (family 0x19) executes 512-bit instructions in halves, so AVX2 kernels win there. Measured
// on its 256^3 products, GFLOP/s a thread: Haswell 109, SkylakeX 103, Zen 103. Zen 5 has full
// units.
Vectors fastest(const CpuTraits& cpu) {
  const bool halves = cpu.vendor == CpuVendor::kAmd && cpu.family == 0x19;
  return halves ? std::min(widest(cpu), Vectors::kAvx2) : widest(cpu);
}

}  // namespace

std::string openblas_core_for(const CpuTraits& cpu) {
  switch (fastest(cpu)) {
    case Vectors::kAvx512:
      return "SkylakeX";
    case Vectors::kAvx2:
      return "Haswell";
    case Vectors::kAvx:
      // Before Zen, AMD's processors have kernels of their own, which OpenBLAS picks by itself.
      return cpu.vendor == CpuVendor::kAmd ? "" : "Sandybridge";
    case Vectors::kSse:
      break;
  }
  return "";
}

void check_forced_core(const ForcedCore& core, const CpuTraits& cpu) {
  const std::string better = openblas_core_for(cpu);
  if (lower(core.name) != lower(core.loaded)) {
    std::vector<std::string> names;
    for (const Core& known : kCores) names.push_back(lower(known.name));
    const Core* const meant = find_core(nearest_name(lower(core.name), names));
    fail(ErrorKind::kConfig, "[blas] OPENBLAS_CORETYPE is '", core.name, "', a core that ",
         core.library, " does not have (it would run ", core.loaded, "). ",
         meant != nullptr && lower(meant->name) != lower(core.name)
             ? concat("Did you mean '", meant->name, "'?")
             : "Unset the variable" + (better.empty() ? "." : ", or take " + better + '.'));
  }
  const Core* const known = find_core(core.loaded);
  if (known == nullptr || known->vectors <= widest(cpu)) return;
  fail(ErrorKind::kConfig, "[blas] OPENBLAS_CORETYPE is '", core.name, "', whose kernels need ",
       level_of(known->vectors).name, ", which this processor does not have. Unset the variable",
       better.empty() ? "." : ", or take " + better + '.');
}

std::string slow_core_warning(const std::string& core, const CpuTraits& cpu, bool forced_by_user) {
  const Core* const known = find_core(core);
  const Vectors best = fastest(cpu);
  if (known == nullptr || known->vectors >= best) return "";
  const double factor = level_of(best).rate / level_of(known->vectors).rate;
  const std::string times = concat(level_of(known->vectors).name, " kernels on a processor with ",
                                   level_of(best).name, ": matrix products take about ",
                                   std::round(10 * factor) / 10, " times as long as they could.");
  return forced_by_user
             ? concat("OPENBLAS_CORETYPE=", core, " forces ", times, " Unset the variable.")
             : concat("OpenBLAS runs the ", core, ' ', times, " A newer OpenBLAS may know better.");
}

}  // namespace tapestry
