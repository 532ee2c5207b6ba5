// Shared by the kernel tests: inputs, comparison with doubles, every vector target, any number of
// threads. A test file is compiled for the CPU and, where it is listed in tests/CMakeLists.txt,
// once more with TestDevice = Cuda; its bodies call kernels with TestDevice{} and memory of Values.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/philox.h"
#include "core/cpu/parallel.h"
#include "core/cuda/runtime.h"
#include "core/kernels/common.h"

namespace tapestry {

#ifdef TAPESTRY_TEST_CUDA

using TestDevice = Cuda;

/// Blocks that host and device both address. They are kept: giving one back stops the device, and a
/// test takes dozens. Where managed memory does not work, TAPESTRY_TEST_MEMORY=pinned asks for the
/// other kind.
class TestMemory {
 public:
  static TestMemory& instance() {
    static auto* memory = new TestMemory;  // never destroyed, as tests' static values
    return *memory;
  }
  void* take(size_t bytes) {
    std::vector<void*>& blocks = free_[bytes];
    if (blocks.empty()) return cuda::allocate_shared(kind_, static_cast<int64_t>(bytes));
    cuda::synchronize();  // its last user's work may still run
    void* const block = blocks.back();
    blocks.pop_back();
    return block;
  }
  void give(void* block, size_t bytes) noexcept {
    if (bytes <= kMostKept) return free_[bytes].push_back(block);
    cuda::free_shared(kind_, block);
  }

 private:
  static constexpr size_t kMostKept = 1 << 20;
  static cuda::SharedMemory asked_for() {
    const char* const kind = std::getenv("TAPESTRY_TEST_MEMORY");
    const bool pinned = kind != nullptr && std::string(kind) == "pinned";
    return pinned ? cuda::SharedMemory::kPinned : cuda::SharedMemory::kManaged;
  }

  const cuda::SharedMemory kind_ = asked_for();
  std::unordered_map<size_t, std::vector<void*>> free_;  // by their exact size
};

/// Launches block in these tests (cuda/environment.cpp), so that the host may look at a result as
/// soon as a kernel has been called.
template <class T>
struct TestAllocator {
  using value_type = T;
  TestAllocator() = default;
  template <class U>
  TestAllocator(const TestAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(TestMemory::instance().take(n * sizeof(T))); }
  void deallocate(T* block, size_t n) noexcept {
    TestMemory::instance().give(block, n * sizeof(T));
  }
  bool operator==(const TestAllocator&) const { return true; }
};

#else

using TestDevice = Cpu;
template <class T>
using TestAllocator = std::allocator<T>;

#endif

/// Waits for TestDevice before the host compares: launches block, but setting memory to 0 does not.
inline void finish_work() {
  if constexpr (std::is_same_v<TestDevice, Cuda>) cuda::synchronize();
}

/// Elements that a kernel on TestDevice may read and write.
template <class T>
using Values = std::vector<T, TestAllocator<T>>;

/// Uniform values in [low, high), different for each seed.
template <class T>
Values<T> random_values(int64_t n, uint64_t seed, double low = -2, double high = 2) {
  Values<T> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const double u = to_uniform(philox_bits({seed, 77, 5}, static_cast<uint64_t>(i)));
    values[static_cast<size_t>(i)] = static_cast<T>(low + u * (high - low));
  }
  return values;
}

inline Values<int32_t> random_ints(int64_t n, uint64_t seed, int32_t bound) {
  Values<int32_t> values;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(static_cast<int32_t>(
        philox_below({seed, 78, 5}, static_cast<uint64_t>(i), static_cast<uint64_t>(bound))));
  }
  return values;
}

template <class T>
double as_double(T value) {
  return static_cast<double>(static_cast<Wider<T>>(value));
}
template <class T>
std::vector<double> widen(const Values<T>& values) {
  finish_work();
  std::vector<double> result;
  for (const T value : values) result.push_back(as_double(value));
  return result;
}

template <class T>
inline constexpr double kEpsilon = std::numeric_limits<T>::epsilon();
template <>
inline constexpr double kEpsilon<BFloat16> = 0x1p-7;

/// Expects |actual - expected| <= units * epsilon of T * (1 + |expected|) everywhere; infinities
/// and NaN must be where they are expected. `units` is about the number of roundings.
template <class T>
void expect_close(const Values<T>& actual, const std::vector<double>& expected, double units) {
  finish_work();
  ASSERT_EQ(actual.size(), expected.size());
  const double epsilon = kEpsilon<T>;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = as_double(actual[i]), e = expected[i];
    if (std::isnan(e)) {
      ASSERT_TRUE(std::isnan(a)) << "element " << i << " is " << a << ", not NaN";
    } else if (std::isinf(e)) {
      ASSERT_EQ(a, e) << "element " << i;
    } else {
      ASSERT_LE(std::abs(a - e), units * epsilon * (1 + std::abs(e)))
          << "element " << i << " is " << a << ", expected " << e;
    }
  }
}

/// Units for expect_close() where bfloat16 does float's arithmetic on the same numbers and rounds
/// once, by half a unit.
template <class T>
double one_rounding_or(double units_of_wider) {
  return std::is_same_v<T, BFloat16> ? 0.51 : units_of_wider;
}

/// Expects the same bits on the CPU. On a GPU, where a product may use another algorithm for other
/// outputs, expects the same numbers.
template <class T>
void expect_same(const Values<T>& actual, const Values<T>& expected, double units) {
  if constexpr (std::is_same_v<TestDevice, Cpu>) {
    EXPECT_EQ(actual, expected);
  } else {
    expect_close(actual, widen(expected), units);
  }
}

/// The expected content of an output that held `before`.
inline std::vector<double> delivered(const std::vector<double>& result,
                                     const std::vector<double>& before, Write write) {
  std::vector<double> expected = result;
  if (write == Write::kAdd) {
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
  }
  return expected;
}

inline constexpr Write kBothWrites[] = {Write::kSet, Write::kAdd};

/// The reference for every dropout: 0 or 1 / (1 - p) for element `index`.
inline double dropout_factor(const Dropout& dropout, uint64_t index) {
  if (dropout.p == 0) return 1;
  const double p = dropout.p;
  return static_cast<double>(philox_bits(dropout.key, index)) < p * 0x1p32 ? 0 : 1 / (1 - p);
}

/// Runs the body once for each set of vector instructions that this processor has; once on a GPU.
template <class F>
void on_every_target(F&& body) {
  if constexpr (std::is_same_v<TestDevice, Cuda>) return body();
  const int64_t supported = hwy::SupportedTargets();
  for (const int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SCALAR}) {
    if ((supported & target) == 0 && target != HWY_SCALAR) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

/// Expects f() to return the same bits with 1, 2 and 3 threads; on a GPU, whenever it is called.
template <class F>
void expect_same_for_any_threads(F&& f) {
  set_num_threads(1);
  const auto one = f();
  for (const int threads : {2, 3}) {
    set_num_threads(threads);
    const auto many = f();
    finish_work();
    ASSERT_EQ(one.size(), many.size());
    EXPECT_EQ(std::memcmp(one.data(), many.data(), one.size() * sizeof(one[0])), 0)
        << threads << " threads";
  }
  set_num_threads(0);
}

template <class T>
class FloatingTest : public ::testing::Test {};
using FloatingTypes = ::testing::Types<float, double>;
/// Those of all kernels.
using DeviceTypes = ::testing::Types<float, double, BFloat16>;

}  // namespace tapestry
