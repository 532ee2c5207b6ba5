// Checks for every walk through batches.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/batches/loader.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry {

/// A tokenizer of the characters of `text`.
inline std::shared_ptr<const Tokenizer> character_tokenizer(const std::string& text,
                                                            bool mask = true,
                                                            int64_t sentinels = 10) {
  TokenizerOptions options;
  options.type = "char";
  options.mask_piece = mask;
  options.sentinels = sentinels;
  bool done = false;
  return train_tokenizer(
      options,
      [&](std::string& line) {
        line = text;
        return !std::exchange(done, true);
      },
      1);
}

/// Walks a bit more than two epochs, then starts again from every position, with and without a
/// loader. `make(position)` gives a walk, `values(batch)` all ids of a batch.
template <class Make, class Values>
void expect_resumes(Make&& make, Values&& values) {
  auto whole = make(DataPosition{});
  using Batches = decltype(whole);
  ASSERT_GT(whole.batches_in_epoch(), 2);
  std::vector<DataPosition> positions = {whole.position()};
  std::vector<std::vector<int32_t>> expected;
  while (positions.back().epoch < 2) {
    expected.push_back(values(whole.next()));
    positions.push_back(whole.position());
  }
  for (size_t start = 0; start < positions.size(); ++start) {
    auto resumed = make(positions[start]);
    Loader<Batches> loader(make(positions[start]));
    for (size_t i = start; i < expected.size(); ++i) {
      ASSERT_EQ(values(resumed.next()), expected[i]) << start << ' ' << i;
      const auto item = loader.next();
      ASSERT_EQ(values(item.batch), expected[i]) << start << ' ' << i;
      ASSERT_EQ(item.position, positions[i + 1]);
    }
  }
}

/// Twice the exact probability that Binomial(n, p) is at least as far out as `count`, on the same
/// side. Tests expect more than 10^-6.
inline double chance_of(int64_t count, int64_t n, double p) {
  double below = 0, above = 0;
  for (int64_t k = 0; k <= n; ++k) {
    const auto successes = static_cast<double>(k), failures = static_cast<double>(n - k);
    const double term =
        std::exp(std::lgamma(static_cast<double>(n) + 1) - std::lgamma(successes + 1) -
                 std::lgamma(failures + 1) + successes * std::log(p) + failures * std::log1p(-p));
    if (k <= count) below += term;
    if (k >= count) above += term;
  }
  return 2 * std::min(below, above);
}

}  // namespace tapestry
