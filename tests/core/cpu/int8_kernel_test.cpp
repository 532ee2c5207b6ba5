#include "core/cpu/int8_kernel.h"

#include <gmock/gmock.h>

#include "core/base/error.h"

namespace tapestry {
namespace {

TEST(Int8Kernel, FollowsTheTable) {
  CpuTraits arm;
  EXPECT_EQ(int8_kernel_for(arm, false), Int8Kernel::kPlain);
  arm.i8mm = true;  // of one row it runs SDOT
  EXPECT_EQ(int8_kernel_for(arm, false), Int8Kernel::kPlain);
  arm.dotprod = true;
  EXPECT_EQ(int8_kernel_for(arm, false), Int8Kernel::kI8mm);
  arm.i8mm = false;
  EXPECT_EQ(int8_kernel_for(arm, false), Int8Kernel::kDotProd);

  CpuTraits intel;
  intel.avx_vnni = true;
  EXPECT_EQ(int8_kernel_for(intel, true), Int8Kernel::kAvxVnni);
  intel.avx512_vnni = true;
  EXPECT_EQ(int8_kernel_for(intel, true), Int8Kernel::kAvx512Vnni);
  intel.amx_int8 = true;
  EXPECT_EQ(int8_kernel_for(intel, true), Int8Kernel::kAmx);
  EXPECT_EQ(int8_kernel_for(intel, false), Int8Kernel::kAvx512Vnni);
}

TEST(Int8Kernel, CanBeForcedToWhatTheProcessorHas) {
  CpuTraits arm;
  arm.dotprod = true;
  EXPECT_EQ(forced_int8_kernel("plain", arm, false), Int8Kernel::kPlain);
  EXPECT_EQ(forced_int8_kernel("i8mm_emulated", arm, false), Int8Kernel::kI8mmEmulated);
  try {
    forced_int8_kernel("i8mm", arm, false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_STREQ(
        error.what(),
        "[TAPESTRY_INT8] expected one of amx, avx512_vnni, avx_vnni, i8mm, dotprod, plain, "
        "amx_emulated, i8mm_emulated, got 'i8mm'; this processor can run dotprod, plain, "
        "amx_emulated, i8mm_emulated.");
  }
}

}  // namespace
}  // namespace tapestry
