#include "core/cpu/blas_cpu.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/cpu/blas.h"
#include "core/cpu/blas_cores.h"
#include "core/cpu/cpu_traits.h"
#include "core/cpu/parallel.h"

namespace tapestry {
namespace {

TEST(Blas, RunsTheChosenCoreOnThisMachine) {
  const std::string description = blas_description();
  EXPECT_EQ(description.find("OpenBLAS 0."), 0u) << description;
  const char* forced = std::getenv("OPENBLAS_CORETYPE");  // the BLAS sets it where nobody did
  if (forced != nullptr) {
    EXPECT_NE(description.find(forced), std::string::npos) << description;
    EXPECT_EQ(blas_warning(), slow_core_warning(forced, cpu_traits(), true));
  }
}

// What a process that has not loaded the library says under a value of OPENBLAS_CORETYPE, and its
// exit code.
void load_with_core(const char* core) {
  setenv("OPENBLAS_CORETYPE", core, 1);
  try {
    std::cerr << blas_description() << '|' << blas_warning();
  } catch (const Error& error) {
    std::cerr << error.what();
    _exit(static_cast<int>(error.kind()));
  }
  _exit(0);
}

TEST(Blas, AForcedCoreIsToldOrRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      load_with_core("haswel"), testing::ExitedWithCode(2),
      R"('haswel', a core that OpenBLAS 0\.[0-9.]+ does not have .*Did you mean 'Haswell'\?)");
  EXPECT_EXIT(load_with_core(""), testing::ExitedWithCode(0), R"(core \w+\|$)");
  if (!cpu_traits().avx) return;
  EXPECT_EXIT(load_with_core("Prescott"), testing::ExitedWithCode(0),
              R"(core Prescott\|OPENBLAS_CORETYPE=Prescott forces SSE kernels)");
}

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

// Many threads call the single-threaded library at once; each must get its own product.
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
