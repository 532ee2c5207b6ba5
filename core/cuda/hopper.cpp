#include "core/cuda/hopper.h"

#include <atomic>
#include <cstdlib>
#include <string>

#include "core/cuda/runtime.h"
#include "core/error.h"

namespace tapestry::cuda {
namespace {

constexpr const char* kVariable = "TAPESTRY_HOPPER_ATTENTION";

bool read_environment() {
  const char* const value = std::getenv(kVariable);
  const std::string wanted = value == nullptr ? "0" : value;
  if (wanted == "0") return false;
  if (wanted != "1") {
    fail(ErrorKind::kConfig, '[', kVariable, "] expected 0 or 1, got '", wanted, "'.");
  }
  if (!has_warpgroup_products()) {
    fail(ErrorKind::kConfig, '[', kVariable,
         "] these kernels need compute capability 9.0 and a build with 90a-real in "
         "TAPESTRY_CUDA_ARCHITECTURES, got ",
         description(current_device()), " or a build without.");
  }
  return true;
}

enum Choice : int { kUnknown, kOff, kOn };
std::atomic<int> choice = kUnknown;

}  // namespace

bool hopper_attention() {
  if (choice == kUnknown) choice = read_environment() ? kOn : kOff;
  return choice == kOn;
}

void choose_hopper_attention(bool wanted) { choice = wanted ? kOn : kOff; }

}  // namespace tapestry::cuda
