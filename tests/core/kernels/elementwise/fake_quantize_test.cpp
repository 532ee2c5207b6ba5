#include "core/kernels/elementwise/fake_quantize.h"

#include "core/kernels/packed/quantize.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

constexpr int64_t kQuantizedSizes[] = {1, 31, 32, 33, 64, 260, 1100};
constexpr int64_t kQuantizedRows = 5;

// What packing makes of the numbers from `x` on.
void round_as_packed(Rounding rounding, std::vector<float>& x, int64_t begin, int64_t n) {
  std::vector<uint8_t> q(n);
  if (rounding == Rounding::kInt4) {
    const BFloat16 scale(kernels::round_to_int4(&x[begin], n, q.data()));
    for (int64_t i = 0; i < n; ++i) x[begin + i] = static_cast<float>(scale) * (q[i] - 8.0F);
    return;
  }
  const float scale = kernels::quantize_row(&x[begin], n, 0, q.data());
  for (int64_t i = 0; i < n; ++i) x[begin + i] = scale * static_cast<int8_t>(q[i]);
}

template <class T>
class FakeQuantizeTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(FakeQuantizeTest, FloatingTypes);

TYPED_TEST(FakeQuantizeTest, GivesTheNumbersThatPackingStores) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t cols : kQuantizedSizes) {
      for (const auto rounding : {Rounding::kInt8, Rounding::kInt8Groups, Rounding::kInt4}) {
        SCOPED_TRACE(testing::Message() << cols << " columns, " << static_cast<int>(rounding));
        Values<T> x = random_values<T>(kQuantizedRows * cols, 1), y(x.size());
        std::vector<float> packed;
        for (const double v : widen(x)) packed.push_back(static_cast<float>(v));
        const int64_t width = rounding == Rounding::kInt8 ? cols : 32;
        for (int64_t r = 0; r < kQuantizedRows; ++r) {
          for (int64_t c = 0; c < cols; c += width) {
            round_as_packed(rounding, packed, r * cols + c, std::min(width, cols - c));
          }
        }
        kernels::fake_quantize(TestDevice{}, rounding, x.data(), y.data(), kQuantizedRows, cols);
        finish_work();
        // A GPU adds with fused products, so that a scale of int4 may be a bit of bfloat16 away.
        const bool exact = std::is_same_v<TestDevice, Cpu> || rounding != Rounding::kInt4;
        for (size_t i = 0; i < y.size(); ++i) {
          const double expected = as_double(static_cast<T>(packed[i]));
          ASSERT_NEAR(as_double(y[i]), expected, exact ? 0 : 0x1p-7 * std::abs(expected)) << i;
        }
        kernels::fake_quantize(TestDevice{}, rounding, x.data(), x.data(), kQuantizedRows, cols);
        finish_work();
        EXPECT_EQ(x, y) << "in place";
      }
    }
  });
}

TYPED_TEST(FakeQuantizeTest, KeepsZerosAndWhatIsNotFinite) {
  using T = TypeParam;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Values<T> x = {T(0.0F), T(0.0F),
                       T(1.0F), T(static_cast<float>(kInfinity)),
                       T(1.0F), T(static_cast<float>(kNan))};
  for (const auto rounding : {Rounding::kInt8, Rounding::kInt8Groups}) {
    Values<T> y(x.size());
    kernels::fake_quantize(TestDevice{}, rounding, x.data(), y.data(), 3, 2);
    expect_close(y, {0, 0, kNan, kNan, kNan, kNan}, 0);
  }
  const Values<T> zeros(8);
  Values<T> y(8, T(1.0F));
  kernels::fake_quantize(TestDevice{}, Rounding::kInt4, zeros.data(), y.data(), 2, 4);
  expect_close(y, std::vector<double>(8), 0);
}

TEST(FakeQuantizeThreads, AnyNumberGivesTheSameBits) {
  const auto x = random_values<float>(700 * 96, 3);
  for (const auto rounding : {Rounding::kInt8, Rounding::kInt8Groups, Rounding::kInt4}) {
    expect_same_for_any_threads([&] {
      Values<float> y(x.size());
      kernels::fake_quantize(TestDevice{}, rounding, x.data(), y.data(), 700, 96);
      return y;
    });
  }
}

}  // namespace
}  // namespace tapestry
