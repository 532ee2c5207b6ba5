#include "core/blas_cpu.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <thread>
#include <vector>

#include "core/blas.h"
#include "core/error.h"
#include "core/parallel.h"

namespace tapestry {
namespace {

constexpr CpuTraits kEmeraldRapids = {
    .vendor = CpuVendor::kIntel, .family = 6, .avx = true, .avx2 = true, .avx512 = true};

TEST(Blas, ChoosesTheCoreFromTheProcessor) {
  EXPECT_EQ(openblas_core_for(kEmeraldRapids), "SkylakeX");
  EXPECT_EQ(
      openblas_core_for({.vendor = CpuVendor::kIntel, .family = 6, .avx = true, .avx2 = true}),
      "Haswell");
  EXPECT_EQ(openblas_core_for({.vendor = CpuVendor::kIntel, .family = 6, .avx = true}),
            "Sandybridge");
  EXPECT_EQ(openblas_core_for({.vendor = CpuVendor::kIntel, .family = 6}), "");
  EXPECT_EQ(
      openblas_core_for({.vendor = CpuVendor::kAmd, .family = 0x17, .avx = true, .avx2 = true}),
      "Haswell");
  EXPECT_EQ(
      openblas_core_for(
          {.vendor = CpuVendor::kAmd, .family = 0x19, .avx = true, .avx2 = true, .avx512 = true}),
      "Haswell");
  EXPECT_EQ(
      openblas_core_for(
          {.vendor = CpuVendor::kAmd, .family = 0x1a, .avx = true, .avx2 = true, .avx512 = true}),
      "SkylakeX");
  EXPECT_EQ(openblas_core_for({.vendor = CpuVendor::kAmd, .family = 0x15, .avx = true}), "");
}

TEST(Blas, WarnsOfSseKernelsOnAnAvxProcessor) {
  const std::string chosen = openblas_core_warning("Prescott", kEmeraldRapids, false);
  EXPECT_NE(chosen.find("Prescott"), std::string::npos);
  EXPECT_NE(chosen.find("AVX-512"), std::string::npos);
  EXPECT_NE(chosen.find("OPENBLAS_CORETYPE to SkylakeX"), std::string::npos);
  const std::string forced = openblas_core_warning("nehalem", kEmeraldRapids, true);
  EXPECT_NE(forced.find("unset"), std::string::npos);
  EXPECT_EQ(openblas_core_warning("SkylakeX", kEmeraldRapids, false), "");
  EXPECT_EQ(openblas_core_warning("Haswell", kEmeraldRapids, true), "");
  EXPECT_EQ(openblas_core_warning("Prescott", {.vendor = CpuVendor::kIntel, .family = 6}, false),
            "");
}

TEST(Blas, RunsTheChosenCoreOnThisMachine) {
  const std::string description = blas_description();
  EXPECT_EQ(description.find("OpenBLAS 0."), 0u) << description;
  const char* wanted = std::getenv("OPENBLAS_CORETYPE");
  if (wanted != nullptr) {
    EXPECT_NE(description.find(wanted), std::string::npos) << description;
  }
  const size_t core = description.rfind(' ') + 1;
  EXPECT_EQ(blas_warning().empty(), !(cpu_traits().avx && is_sse_core(description.substr(core))));
}

// Many threads call the single-threaded library at once; each must get its own product.
// The sanitizer needs address space without end.
#ifndef __SANITIZE_ADDRESS__
TEST(Blas, WithoutRoomForItsBuffersIsOutOfMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process that has not loaded it
  const auto load_in_little_room = [] {
    set_num_threads(4);
    std::ifstream sizes("/proc/self/statm");
    rlim_t pages = 0;
    sizes >> pages;
    const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{300} << 20);
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_AS, &limit);
    try {
      blas_description();
    } catch (const Error& error) {
      _exit(static_cast<int>(error.kind()));
    }
    _exit(0);
  };
  EXPECT_EXIT(load_in_little_room(), testing::ExitedWithCode(5), "");
}
#endif

TEST(Blas, ConcurrentCallsDoNotDisturbEachOther) {
  constexpr int kSize = 96;
  std::vector<std::thread> threads;
  std::vector<int> wrong(8, 0);
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t, &wrong] {
      const std::vector<float> a(kSize * kSize, static_cast<float>(t + 1));
      const std::vector<float> b(kSize * kSize, 1.0f);
      std::vector<float> c(kSize * kSize);
      for (int repeat = 0; repeat < 50; ++repeat) {
        blas_product<float>({.m = kSize,
                             .n = kSize,
                             .k = kSize,
                             .a = a.data(),
                             .lda = kSize,
                             .trans_a = false,
                             .b = b.data(),
                             .ldb = kSize,
                             .trans_b = true,
                             .c = c.data(),
                             .ldc = kSize,
                             .alpha = 1,
                             .beta = 0});
        for (float value : c) wrong[t] += value != static_cast<float>(kSize * (t + 1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(8, 0));
}

}  // namespace
}  // namespace tapestry
