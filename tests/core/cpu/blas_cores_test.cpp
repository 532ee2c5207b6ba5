#include "core/cpu/blas_cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace tapestry {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr CpuTraits kSse = {.vendor = CpuVendor::kIntel, .family = 6};
constexpr CpuTraits kSandyBridge = {.vendor = CpuVendor::kIntel, .family = 6, .avx = true};
constexpr CpuTraits kHaswell = {
    .vendor = CpuVendor::kIntel, .family = 6, .avx = true, .avx2 = true};
constexpr CpuTraits kEmeraldRapids = {
    .vendor = CpuVendor::kIntel, .family = 6, .avx = true, .avx2 = true, .avx512 = true};
constexpr CpuTraits kBulldozer = {.vendor = CpuVendor::kAmd, .family = 0x15, .avx = true};
constexpr CpuTraits kZen2 = {.vendor = CpuVendor::kAmd, .family = 0x17, .avx = true, .avx2 = true};
constexpr CpuTraits kZen4 = {
    .vendor = CpuVendor::kAmd, .family = 0x19, .avx = true, .avx2 = true, .avx512 = true};
constexpr CpuTraits kZen5 = {
    .vendor = CpuVendor::kAmd, .family = 0x1a, .avx = true, .avx2 = true, .avx512 = true};

TEST(BlasCores, TheProcessorChooses) {
  EXPECT_EQ(openblas_core_for(kEmeraldRapids), "SkylakeX");
  EXPECT_EQ(openblas_core_for(kHaswell), "Haswell");
  EXPECT_EQ(openblas_core_for(kSandyBridge), "Sandybridge");
  EXPECT_EQ(openblas_core_for(kSse), "");
  EXPECT_EQ(openblas_core_for(kZen2), "Haswell");
  EXPECT_EQ(openblas_core_for(kZen4), "Haswell");
  EXPECT_EQ(openblas_core_for(kZen5), "SkylakeX");
  EXPECT_EQ(openblas_core_for(kBulldozer), "");
}

TEST(BlasCores, ASlowOneIsToldWithWhatItCosts) {
  EXPECT_EQ(slow_core_warning("Haswell", kEmeraldRapids, true),
            "OPENBLAS_CORETYPE=Haswell forces AVX2 kernels on a processor with AVX-512: matrix "
            "products take about 1.4 times as long as they could. Unset the variable.");
  EXPECT_THAT(slow_core_warning("nehalem", kEmeraldRapids, true), HasSubstr("about 3.6 times"));
  EXPECT_THAT(slow_core_warning("Sandybridge", kHaswell, true), HasSubstr("about 1.5 times"));
  EXPECT_THAT(slow_core_warning("Prescott", kSandyBridge, false),
              AllOf(HasSubstr("OpenBLAS runs the Prescott SSE kernels"), HasSubstr("1.7 times")));
}

TEST(BlasCores, AFastOneIsNot) {
  EXPECT_EQ(slow_core_warning("SkylakeX", kEmeraldRapids, false), "");
  EXPECT_EQ(slow_core_warning("Cooperlake", kEmeraldRapids, true), "");
  EXPECT_EQ(slow_core_warning("Haswell", kZen4, true), "");  // its wide instructions run in halves
  EXPECT_EQ(slow_core_warning("Zen", kZen2, true), "");
  EXPECT_EQ(slow_core_warning("Prescott", kSse, true), "");
  EXPECT_EQ(slow_core_warning("OfTomorrow", kEmeraldRapids, true), "");
}

std::string refusal(const ForcedCore& core, const CpuTraits& cpu) {
  try {
    check_forced_core(core, cpu);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

TEST(BlasCores, AnUnknownOneIsRefused) {
  EXPECT_EQ(refusal({"Haswel", "Cooperlake", "OpenBLAS 0.3.21"}, kEmeraldRapids),
            "[blas] OPENBLAS_CORETYPE is 'Haswel', a core that OpenBLAS 0.3.21 does not have (it "
            "would run Cooperlake). Did you mean 'Haswell'?");
  EXPECT_EQ(refusal({"SapphireRapids", "Cooperlake", "OpenBLAS 0.3.21"}, kEmeraldRapids),
            "[blas] OPENBLAS_CORETYPE is 'SapphireRapids', a core that OpenBLAS 0.3.21 does not "
            "have (it would run Cooperlake). Unset the variable, or take SkylakeX.");
  EXPECT_EQ(refusal({"haswell", "Haswell", "OpenBLAS 0.3.21"}, kEmeraldRapids), "");
}

TEST(BlasCores, OneThatTheProcessorCannotRunIsRefused) {
  EXPECT_EQ(refusal({"skylakex", "SkylakeX", "OpenBLAS 0.3.21"}, kHaswell),
            "[blas] OPENBLAS_CORETYPE is 'skylakex', whose kernels need AVX-512, which this "
            "processor does not have. Unset the variable, or take Haswell.");
  EXPECT_EQ(refusal({"SkylakeX", "SkylakeX", "OpenBLAS 0.3.21"}, kZen4), "");
}

}  // namespace
}  // namespace tapestry
