#include "core/cuda/hopper.h"

#include <atomic>
#include <cstdlib>
#include <string>

#include "core/cuda/runtime.h"
#include "core/error.h"

namespace tapestry::cuda {
namespace {

constexpr const char* kVariable = "TAPESTRY_HOPPER_ATTENTION";

enum Choice : int { kUnknown, kOff, kOn };
std::atomic<int> choice = kUnknown;
std::atomic<int64_t> heads_each = 4;

}  // namespace

bool hopper_attention() {
  if (choice == kUnknown) {
    choice = internal::asks_for_hopper(std::getenv(kVariable), has_warpgroup_products) ? kOn : kOff;
  }
  return choice == kOn;
}

int64_t hopper_heads_each() { return heads_each; }

void choose_hopper_attention(bool wanted, int64_t heads) {
  choice = wanted ? kOn : kOff;
  heads_each = heads;
}

namespace internal {

bool asks_for_hopper(const char* value, bool (*can_run)()) {
  const std::string wanted = value == nullptr ? "0" : value;
  if (wanted == "0") return false;
  if (wanted != "1") {
    fail(ErrorKind::kConfig, '[', kVariable, "] expected 0 or 1, got '", wanted, "'.");
  }
  if (!can_run()) {
    fail(ErrorKind::kConfig, '[', kVariable,
         "] expected a GPU of compute capability 9.0 and a build with 90a-real in "
         "TAPESTRY_CUDA_ARCHITECTURES, got ",
         description(current_device()), " and none of their code.");
  }
  return true;
}

}  // namespace internal
}  // namespace tapestry::cuda
