// For the kernel tests on a GPU: skips them all where none answers, and makes launches block.
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/cuda.h"

namespace tapestry {
namespace {

class CudaEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    setenv("CUDA_LAUNCH_BLOCKING", "1", /*overwrite=*/1);  // read when the runtime starts
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device answers";
  }
};

[[maybe_unused]] const auto* const kEnvironment =
    ::testing::AddGlobalTestEnvironment(new CudaEnvironment);

}  // namespace
}  // namespace tapestry
