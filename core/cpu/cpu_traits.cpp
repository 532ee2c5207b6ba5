#include "core/cpu/cpu_traits.h"

#include <cstring>
#include <string>

#ifdef __x86_64__
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace tapestry {
namespace {

enum Register { kEax, kEbx, kEcx, kEdx };

bool bit(uint64_t word, int number) { return (word >> number & 1) != 0; }

CpuVendor vendor_of(const CpuAnswers::Registers& leaf_0) {
  std::string name(3 * sizeof(uint32_t), '\0');
  for (const Register part : {kEbx, kEdx, kEcx}) {
    std::memcpy(name.data() + (part == kEbx ? 0 : part == kEdx ? 4 : 8), &leaf_0[part], 4);
  }
  return name == "GenuineIntel"   ? CpuVendor::kIntel
         : name == "AuthenticAMD" ? CpuVendor::kAmd
                                  : CpuVendor::kOther;
}

// All zeros on other architectures.
CpuAnswers ask() {
  CpuAnswers answers;
#ifdef __x86_64__
  const auto leaf = [](unsigned number, unsigned page) {
    CpuAnswers::Registers r{};
    if (!__get_cpuid_count(number, page, &r[kEax], &r[kEbx], &r[kEcx], &r[kEdx])) r = {};
    return r;
  };
  answers.leaf_0 = leaf(0, 0);
  answers.leaf_1 = leaf(1, 0);
  answers.leaf_7 = leaf(7, 0);
  const uint32_t last_page = answers.leaf_7[kEax];
  if (last_page >= 1) answers.leaf_7_1 = leaf(7, 1);
  constexpr int kHasXgetbv = 27;
  if (bit(answers.leaf_1[kEcx], kHasXgetbv)) {
    uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    answers.xcr0 = uint64_t{high} << 32 | low;
  }
#elif defined(__aarch64__)
  answers.hwcap = getauxval(AT_HWCAP);
  answers.hwcap2 = getauxval(AT_HWCAP2);
#endif
  return answers;
}

}  // namespace

// Bit numbers of x86-64: Intel's Software Developer's Manual, volume 2, CPUID, and volume 1, 13.3.
CpuTraits cpu_traits_of(const CpuAnswers& answers) {
  CpuTraits traits;
  traits.vendor = vendor_of(answers.leaf_0);
  const uint32_t version = answers.leaf_1[kEax];
  traits.family = static_cast<int>(version >> 8 & 0xf);
  traits.model = static_cast<int>(version >> 4 & 0xf);
  if (traits.family == 6 || traits.family == 0xf) {
    traits.model += static_cast<int>(version >> 16 & 0xf) << 4;
  }
  if (traits.family == 0xf) traits.family += static_cast<int>(version >> 20 & 0xff);

  const auto saved = [&](uint64_t registers) { return (answers.xcr0 & registers) == registers; };
  constexpr uint64_t kAvxRegisters = 0x6, kAvx512Registers = 0xe6, kTileRegisters = 0x60000;
  const uint32_t ecx_1 = answers.leaf_1[kEcx];
  const uint32_t ebx_7 = answers.leaf_7[kEbx], ecx_7 = answers.leaf_7[kEcx],
                 edx_7 = answers.leaf_7[kEdx];
  traits.avx = bit(ecx_1, 28) && saved(kAvxRegisters);
  traits.avx2 = traits.avx && bit(ebx_7, 5) && bit(ecx_1, 12);
  traits.avx_vnni = traits.avx2 && bit(answers.leaf_7_1[kEax], 4);
  traits.avx512 = bit(ebx_7, 16) && bit(ebx_7, 17) && bit(ebx_7, 28) && bit(ebx_7, 30) &&
                  bit(ebx_7, 31) && saved(kAvx512Registers);
  traits.avx512_bf16 = traits.avx512 && bit(answers.leaf_7_1[kEax], 5);
  traits.avx512_vnni = traits.avx512 && bit(ecx_7, 11);
  traits.amx_tile = bit(edx_7, 24) && saved(kTileRegisters);
  traits.amx_bf16 = traits.amx_tile && bit(edx_7, 22);
  traits.amx_int8 = traits.amx_tile && bit(edx_7, 25);
  // The Linux kernel's documentation of ARM64's hwcaps.
  constexpr int kAsimdDp = 20, kI8mm = 13, kBf16 = 14;
  traits.dotprod = bit(answers.hwcap, kAsimdDp);
  traits.i8mm = bit(answers.hwcap2, kI8mm);
  traits.arm_bf16 = bit(answers.hwcap2, kBf16);
  return traits;
}

const CpuTraits& cpu_traits() {
  static const CpuTraits traits = cpu_traits_of(ask());
  return traits;
}

}  // namespace tapestry
