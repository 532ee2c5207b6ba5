#include "core/cpu/bfloat16_kernel.h"

#include <gmock/gmock.h>

#include "core/base/error.h"

namespace tapestry {
namespace {

CpuTraits with_avx512_bf16(CpuVendor vendor) {
  CpuTraits cpu;
  cpu.vendor = vendor;
  cpu.avx2 = cpu.avx512 = cpu.avx512_bf16 = true;
  return cpu;
}

CpuTraits with_amx() {
  CpuTraits cpu = with_avx512_bf16(CpuVendor::kIntel);
  cpu.amx_tile = cpu.amx_bf16 = true;
  return cpu;
}

CpuTraits with_bfmmla() {
  CpuTraits cpu;
  cpu.dotprod = cpu.i8mm = cpu.arm_bf16 = true;
  return cpu;
}

TEST(Bfloat16Kernel, FollowsTheTable) {
  EXPECT_EQ(bfloat16_kernel_for(with_bfmmla(), false), Bfloat16Kernel::kBfmmla);
  EXPECT_EQ(bfloat16_kernel_for(with_amx(), true), Bfloat16Kernel::kAmx);
  EXPECT_EQ(bfloat16_kernel_for(with_amx(), false), Bfloat16Kernel::kWidened);
  EXPECT_EQ(bfloat16_kernel_for(with_avx512_bf16(CpuVendor::kIntel), true),
            Bfloat16Kernel::kWidened);
  EXPECT_EQ(bfloat16_kernel_for(with_avx512_bf16(CpuVendor::kAmd), true), Bfloat16Kernel::kAvx512);
  EXPECT_EQ(bfloat16_kernel_for(CpuTraits{}, true), Bfloat16Kernel::kWidened);
}

TEST(Bfloat16Kernel, CanBeForcedToWhatTheProcessorHas) {
  EXPECT_EQ(forced_bfloat16_kernel("avx512_bf16", with_amx(), true), Bfloat16Kernel::kAvx512);
  EXPECT_EQ(forced_bfloat16_kernel("float32", with_amx(), true), Bfloat16Kernel::kWidened);
  const auto message = [](const std::string& wanted, const CpuTraits& cpu, bool tiles) {
    try {
      forced_bfloat16_kernel(wanted, cpu, tiles);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(message("AMX", with_amx(), true),
              testing::HasSubstr("expected one of amx, avx512_bf16, bfmmla, float32, "
                                 "amx_emulated, bfmmla_emulated, got 'AMX'; this processor can run "
                                 "amx, avx512_bf16, float32, amx_emulated, bfmmla_emulated."));
  EXPECT_THAT(message("amx", with_amx(), false),
              testing::HasSubstr("this processor can run avx512_bf16, float32, amx_emulated, "
                                 "bfmmla_emulated."));
  EXPECT_THAT(message("amx", CpuTraits{}, true),
              testing::HasSubstr("this processor can run float32, amx_emulated, bfmmla_emulated."));
  EXPECT_THAT(message("amx", with_bfmmla(), true),
              testing::HasSubstr("this processor can run bfmmla, float32, amx_emulated, "
                                 "bfmmla_emulated."));
}

}  // namespace
}  // namespace tapestry
