#include "core/kernels/elementwise/dropout.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/elementwise/permute.h"
#include "core/kernels/reduce.h"
#include "tests/core/kernels/bfloat16_values.h"

namespace tapestry {
namespace {

// Rows of 40 are read in packs, rows of 33 are not.
constexpr int64_t kColumns[] = {40, 33};

// The bias of (5, 3, cols) by (3, 1): summed over two axes that do not touch, in two rounds.
TEST(ElementwiseBFloat16, BinaryWithBroadcasting) {
  on_every_target([] {
    for (const int64_t cols : kColumns) {
      const int64_t outer = 5, mid = 3, n = outer * mid * cols;
      const BroadcastPlan plan = broadcast_plan("test", {outer, mid, cols}, {mid, 1});
      const auto a = random_values<BFloat16>(n, 1), b = random_values<BFloat16>(mid, 2, 0.5, 2);
      const auto dy = random_values<BFloat16>(n, 3, 0.5, 1);
      const std::vector<double> p = to_doubles(a), q = to_doubles(b), g = to_doubles(dy);
      std::vector<double> sum, product, quotient, da, db(mid), plain(mid);
      for (int64_t i = 0; i < n; ++i) {
        const int64_t j = i / cols % mid;
        sum.push_back(p[i] + q[j]);
        product.push_back(p[i] * q[j]);
        quotient.push_back(p[i] / q[j]);
        da.push_back(g[i] / q[j]);
        db[j] += g[i] * p[i];
        plain[j] -= g[i];
      }
      Values<BFloat16> y(n);
      kernels::binary(TestDevice{}, Binary::kAdd, plan, a.data(), b.data(), y.data());
      expect_rounded(y, sum);
      kernels::binary(TestDevice{}, Binary::kMul, plan, a.data(), b.data(), y.data());
      expect_rounded(y, product);
      kernels::binary(TestDevice{}, Binary::kDiv, plan, a.data(), b.data(), y.data());
      expect_rounded(y, quotient);
      const auto backward = [&](Binary op, int wrt) {
        return [&, op, wrt](BFloat16* out, Write write) {
          kernels::binary_backward(TestDevice{}, op, wrt, plan, a.data(), b.data(), dy.data(), out,
                                   write);
        };
      };
      expect_delivered(da, backward(Binary::kDiv, 0));
      expect_delivered(db, backward(Binary::kMul, 1));
      expect_delivered(plain, backward(Binary::kSub, 1));
    }
  });
}

// In bfloat16 a running sum of positive numbers would stop at 256 times the terms.
TEST(ElementwiseBFloat16, LongSumsKeepTheirDigits) {
  on_every_target([] {
    for (const auto& [outer, n, inner] :
         {std::array<int64_t, 3>{2, 6000, 40}, {2, 6000, 33}, {3, 20000, 1}, {3, 20001, 1}}) {
      const auto x = random_values<BFloat16>(outer * n * inner, 1, 0, 1);
      const std::vector<double> wide = to_doubles(x);
      std::vector<double> sums(outer * inner);
      for (int64_t i = 0; i < outer * n * inner; ++i) {
        sums[i / (n * inner) * inner + i % inner] += 0.5 * wide[i];
      }
      expect_delivered(sums, [&, outer = outer, n = n, inner = inner](BFloat16* y, Write write) {
        kernels::sum_axis(TestDevice{}, x.data(), y, outer, n, inner, 0.5, write);
      });
    }
  });
}

TEST(ElementwiseBFloat16, MapsAndCopies) {
  on_every_target([] {
    for (const int64_t cols : kColumns) {
      const int64_t rows = 6, n = rows * cols;
      const auto x = random_values<BFloat16>(n, 1);
      const Values<int32_t> mask = random_ints(cols, 2, 2);
      const Dropout dropout{0.4f, {1, 2, 3}};
      const std::vector<double> wide = to_doubles(x);
      std::vector<double> scaled, kept, repeated, transposed, dropped;
      for (int64_t i = 0; i < n; ++i) {
        scaled.push_back(-1.5 * wide[i] + 0.25);
        kept.push_back(mask[i % cols] != 0 ? 0 : wide[i]);
        transposed.push_back(wide[i % rows * cols + i / rows]);
        const double factor = dropout_factor(dropout, i);
        dropped.push_back(factor == 0 ? 0 : factor * wide[i]);
      }
      for (int64_t i = 0; i < 3 * n; ++i) {
        repeated.push_back(2 * wide[i / (3 * cols) * cols + i % cols]);
      }
      expect_delivered(scaled, [&](BFloat16* y, Write write) {
        kernels::affine(TestDevice{}, -1.5, x.data(), 0.25, y, n, write);
      });
      expect_delivered(kept, [&](BFloat16* y, Write write) {
        kernels::masked_fill(TestDevice{}, x.data(), mask.data(), cols, 1, 0, y, n, write);
      });
      expect_delivered(repeated, [&](BFloat16* y, Write write) {
        kernels::broadcast_axis(TestDevice{}, x.data(), y, rows, 3, cols, 2, write);
      });
      expect_delivered(wide, [&](BFloat16* y, Write write) {
        kernels::copy_block(TestDevice{}, x.data(), cols, y, cols, rows, cols, write);
      });
      expect_delivered(transposed, [&](BFloat16* y, Write write) {
        kernels::permute(TestDevice{}, x.data(), y, {1, 1, rows, cols}, {0, 1, 3, 2}, write);
      });
      expect_delivered(dropped, [&](BFloat16* y, Write write) {
        kernels::dropout(TestDevice{}, dropout, x.data(), y, n, write);
      });
    }
  });
}

}  // namespace
}  // namespace tapestry
