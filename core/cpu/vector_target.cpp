#include "core/cpu/vector_target.h"

#include <cstdlib>

#include "core/base/error.h"
#include "hwy/targets.h"

namespace tapestry {
namespace {

constexpr const char* kVectorsVariable = "TAPESTRY_VECTORS";

// Highway numbers the best target lowest.
int64_t best_of(int64_t targets) { return targets & -targets; }
int64_t usable_targets() { return hwy::SupportedTargets() & HWY_TARGETS; }

}  // namespace

std::string vector_target() { return hwy::TargetName(best_of(usable_targets())); }

void limit_vector_target() {
  const char* const wanted = std::getenv(kVectorsVariable);
  if (wanted == nullptr) return;
  std::string names;
  for (int64_t left = usable_targets(); left != 0; left &= left - 1) {
    const std::string name = hwy::TargetName(best_of(left));
    // Highway 1.0.3 forgets what DisableTargets() took away whenever it is asked for the targets.
    if (name == wanted) return hwy::SetSupportedTargetsForTest(left);
    names += concat(names.empty() ? "" : ", ", name);
  }
  fail(ErrorKind::kConfig, '[', kVectorsVariable, "] expected one of ", names, ", got '", wanted,
       "'.");
}

}  // namespace tapestry
