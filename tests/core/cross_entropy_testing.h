// What the tests of both cross-entropies share.
#pragma once

#include "core/kernels/cross_entropy.h"
#include "tests/core/kernel_testing.h"

namespace tapestry {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr int32_t kIgnore = -1;

// The definition at the head of cross_entropy.h, row by row in double.
struct Reference {
  CrossEntropySums sums;
  std::vector<double> dz;

  Reference(const CrossEntropyShape& shape, const std::vector<double>& logits,
            const Values<int32_t>& targets, double grad_scale)
      : dz(logits.size(), 0.0) {
    for (int64_t r = 0; r < shape.rows; ++r) {
      if (targets[r] == shape.ignore_index) continue;
      add_row(shape, &logits[r * shape.classes], targets[r], grad_scale, &dz[r * shape.classes]);
    }
  }

 private:
  void add_row(const CrossEntropyShape& shape, const double* z, int32_t target, double grad_scale,
               double* dz_row) {
    const int64_t classes = shape.classes;
    const double e = shape.label_smoothing, max = *std::max_element(z, z + classes);
    double sum = 0, mean = 0;
    for (int64_t j = 0; j < classes; ++j) {
      sum += std::exp(z[j] - max);
      mean += z[j] / static_cast<double>(classes);
    }
    const double log_sum_exp = max + std::log(sum), nll = log_sum_exp - z[target];
    sums.nll += nll;
    sums.loss += (1 - e) * nll + (e == 0 ? 0 : e * (log_sum_exp - mean));
    sums.correct += std::max_element(z, z + classes) == z + target;  // the first of equals
    for (int64_t j = 0; j < classes; ++j) {
      const double softmax = std::exp(z[j] - log_sum_exp);
      dz_row[j] = grad_scale * (softmax - (j == target ? 1 - e : 0) -
                                e / static_cast<double>(classes));
    }
  }
};

inline Values<int32_t> some_targets(int64_t rows, int64_t classes, int64_t ignore_every) {
  Values<int32_t> targets = random_ints(rows, 9, static_cast<int32_t>(classes));
  for (int64_t r = 0; ignore_every > 0 && r < rows; r += ignore_every) targets[r] = kIgnore;
  return targets;
}

inline void expect_sums(const CrossEntropySums& got, const CrossEntropySums& expected, double relative) {
  EXPECT_NEAR(got.loss, expected.loss, relative * (1 + std::abs(expected.loss)));
  EXPECT_NEAR(got.nll, expected.nll, relative * (1 + std::abs(expected.nll)));
  EXPECT_EQ(got.correct, expected.correct);
}

}  // namespace tapestry
