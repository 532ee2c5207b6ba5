#include "core/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/cuda/runtime.h"
#include "core/device_name.h"
#include "core/error.h"

namespace tapestry {
namespace {

// What a rank that shares its machine with others asks for, told by the error where there is none.
TEST(DeviceTest, CudaIsTheGpuOfTheRank) {
  const auto asked = [](const std::string& name) {
    try {
      return parse_device(name).str();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  set_default_gpu(63);
  const std::string named = asked("cuda"), automatic = asked("auto"), other = asked("cuda:62");
  set_default_gpu(0);
  EXPECT_THAT(named, testing::HasSubstr("cuda:63 is not available"));
  EXPECT_THAT(other, testing::HasSubstr("cuda:62 is not available"));
  EXPECT_EQ(automatic, cuda::device_count() == 0 ? "cpu" : named);
}

}  // namespace
}  // namespace tapestry
