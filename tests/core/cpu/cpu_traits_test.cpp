#include "core/cpu/cpu_traits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace tapestry {
namespace {

// The answers of an Emerald Rapids (CPUID 000C06F2), reduced to the bits that are read.
CpuAnswers emerald_rapids() {
  CpuAnswers a;
  a.leaf_0 = {0x20, 0x756e6547, 0x6c65746e, 0x49656e69};  // "Genu" "ntel" "ineI"
  a.leaf_1 = {0x000c06f2, 0, 1u << 28 | 1u << 27 | 1u << 12, 0};
  a.leaf_7 = {2, 1u << 31 | 1u << 30 | 1u << 28 | 1u << 17 | 1u << 16 | 1u << 5, 1u << 11,
              1u << 25 | 1u << 24 | 1u << 22};
  a.leaf_7_1 = {1u << 5 | 1u << 4, 0, 0, 0};
  a.xcr0 = 0x600e7;
  return a;
}

TEST(CpuTraits, ReadsVendorFamilyAndModel) {
  const CpuTraits intel = cpu_traits_of(emerald_rapids());
  EXPECT_EQ(intel.vendor, CpuVendor::kIntel);
  EXPECT_EQ(intel.family, 6);
  EXPECT_EQ(intel.model, 207);

  CpuAnswers genoa;
  genoa.leaf_0 = {0x10, 0x68747541, 0x444d4163, 0x69746e65};  // "Auth" "cAMD" "enti"
  genoa.leaf_1 = {0x00a10f11, 0, 0, 0};
  const CpuTraits amd = cpu_traits_of(genoa);
  EXPECT_EQ(amd.vendor, CpuVendor::kAmd);
  EXPECT_EQ(amd.family, 0x19);
  EXPECT_EQ(amd.model, 0x11);
  EXPECT_FALSE(amd.avx);

  EXPECT_EQ(cpu_traits_of({}).vendor, CpuVendor::kOther);
}

TEST(CpuTraits, ReadsArm64) {
  CpuAnswers answers;
  EXPECT_FALSE(cpu_traits_of(answers).dotprod);
  answers.hwcap = 1u << 20;
  EXPECT_TRUE(cpu_traits_of(answers).dotprod);
  EXPECT_FALSE(cpu_traits_of(answers).i8mm || cpu_traits_of(answers).arm_bf16);
  answers.hwcap2 = 1u << 13;
  EXPECT_TRUE(cpu_traits_of(answers).i8mm);
  EXPECT_FALSE(cpu_traits_of(answers).arm_bf16);
  answers.hwcap2 = 1u << 14;
  EXPECT_TRUE(cpu_traits_of(answers).arm_bf16);
  EXPECT_FALSE(cpu_traits_of(answers).i8mm);
  EXPECT_EQ(cpu_traits_of(answers).vendor, CpuVendor::kOther);
}

TEST(CpuTraits, NeedsTheOperatingSystemToSaveTheRegisters) {
  CpuAnswers answers = emerald_rapids();
  const CpuTraits all = cpu_traits_of(answers);
  EXPECT_TRUE(all.avx && all.avx2 && all.avx_vnni && all.avx512 && all.avx512_bf16 &&
              all.avx512_vnni);
  EXPECT_TRUE(all.amx_tile && all.amx_bf16 && all.amx_int8);

  answers.xcr0 = 0xe7;  // a kernel without tiles
  const CpuTraits no_tiles = cpu_traits_of(answers);
  EXPECT_TRUE(no_tiles.avx512_bf16);
  EXPECT_FALSE(no_tiles.amx_tile || no_tiles.amx_bf16 || no_tiles.amx_int8);

  answers.xcr0 = 0x7;  // nor wide registers
  const CpuTraits narrow = cpu_traits_of(answers);
  EXPECT_TRUE(narrow.avx2 && narrow.avx_vnni);
  EXPECT_FALSE(narrow.avx512 || narrow.avx512_bf16 || narrow.avx512_vnni);

  answers.xcr0 = 0;
  const CpuTraits none = cpu_traits_of(answers);
  EXPECT_FALSE(none.avx || none.avx2 || none.avx_vnni);
}

TEST(CpuTraits, EachSetNeedsAllItsParts) {
  for (const int part : {16, 17, 28, 30, 31}) {
    CpuAnswers answers = emerald_rapids();
    answers.leaf_7[1] &= ~(1u << part);
    EXPECT_FALSE(cpu_traits_of(answers).avx512) << part;
  }
  CpuAnswers without_fma = emerald_rapids();
  without_fma.leaf_1[2] &= ~(1u << 12);
  EXPECT_FALSE(cpu_traits_of(without_fma).avx2);
  CpuAnswers without_bf16_tiles = emerald_rapids();
  without_bf16_tiles.leaf_7[3] &= ~(1u << 22);
  EXPECT_TRUE(cpu_traits_of(without_bf16_tiles).amx_int8);
  EXPECT_FALSE(cpu_traits_of(without_bf16_tiles).amx_bf16);
}

// Linux says the same of this machine.
TEST(CpuTraits, AgreesWithTheKernel) {
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> flags;
  std::string vendor;
  int family = -1, model = -1;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const size_t colon = line.find(':');
    const std::string name = line.substr(0, line.find_first_of("\t:"));
    const std::string value = colon + 2 < line.size() ? line.substr(colon + 2) : "";
    if (name == "vendor_id") vendor = value;
    if (name == "cpu family") family = std::stoi(value);
    if (name == "model") model = std::stoi(value);
    std::istringstream words(name == "flags" || name == "Features" ? value : "");
    for (std::string word; words >> word;) flags.insert(word);
  }
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo has no flags";
  const auto has = [&](const char* flag) { return flags.contains(flag); };
  const CpuTraits& traits = cpu_traits();
  EXPECT_EQ(traits.vendor == CpuVendor::kIntel, vendor == "GenuineIntel");
  EXPECT_EQ(traits.vendor == CpuVendor::kAmd, vendor == "AuthenticAMD");
  EXPECT_EQ(traits.family, std::max(family, 0));
  EXPECT_EQ(traits.model, std::max(model, 0));
  EXPECT_EQ(traits.avx, has("avx"));
  EXPECT_EQ(traits.avx2, has("avx2") && has("fma"));
  EXPECT_EQ(traits.avx_vnni, has("avx_vnni") && traits.avx2);
  EXPECT_EQ(traits.avx512, has("avx512f") && has("avx512cd") && has("avx512bw") &&
                               has("avx512dq") && has("avx512vl"));
  EXPECT_EQ(traits.avx512_bf16, has("avx512_bf16"));
  EXPECT_EQ(traits.avx512_vnni, has("avx512_vnni"));
  EXPECT_EQ(traits.amx_tile, has("amx_tile"));
  EXPECT_EQ(traits.amx_bf16, has("amx_bf16"));
  EXPECT_EQ(traits.amx_int8, has("amx_int8"));
  EXPECT_EQ(traits.dotprod, has("asimddp"));
  EXPECT_EQ(traits.i8mm, has("i8mm"));
  EXPECT_EQ(traits.arm_bf16, has("bf16"));
}

}  // namespace
}  // namespace tapestry
