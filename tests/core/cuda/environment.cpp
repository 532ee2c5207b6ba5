// For the kernel tests on a GPU: skips them all if there is none, and makes launches block.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/core/cuda/need_gpu.h"

namespace tapestry {
namespace {

class CudaEnvironment : public ::testing::Environment {
 public:
  // Before main(), since CUDA reads it when it starts.
  CudaEnvironment() { setenv("CUDA_LAUNCH_BLOCKING", "1", /*overwrite=*/1); }
  void SetUp() override { NEED_GPU(); }
};

[[maybe_unused]] const auto* const kEnvironment =
    ::testing::AddGlobalTestEnvironment(new CudaEnvironment);

}  // namespace
}  // namespace tapestry
