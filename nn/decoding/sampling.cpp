#include "nn/decoding/sampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "core/scratch.h"
#include "nn/decoding/search_rows.h"

namespace tapestry {
namespace {

constexpr uint32_t kSamplingStream = 0x73616d70;  // "samp": no other use of the seed shares it

double largest_of(std::span<const double> z) { return *std::max_element(z.begin(), z.end()); }

// Most tokens are often cut away, and exp(-inf) is not free.
double weight(double z, double largest) { return z == kImpossible ? 0 : std::exp(z - largest); }

}  // namespace

void keep_top_k(std::span<double> z, int64_t k) {
  const auto size = static_cast<int64_t>(z.size());
  if (k >= size) return;
  Scratch<double> sorted(size);
  double* const begin = sorted.data();
  std::copy(z.begin(), z.end(), begin);
  std::nth_element(begin, begin + (k - 1), begin + size, std::greater<>());
  const double smallest = begin[k - 1];
  int64_t ties = k - std::count_if(begin, begin + k, [&](double v) { return v > smallest; });
  for (double& value : z) {
    if (value < smallest || (value == smallest && ties-- <= 0)) value = kImpossible;
  }
}

void keep_top_p(std::span<double> z, double p) {
  const double largest = largest_of(z);
  Scratch<int32_t> ids(static_cast<int64_t>(z.size()));
  int32_t* end = ids.data();
  double total = 0;
  for (size_t v = 0; v < z.size(); ++v) {
    if (z[v] == kImpossible) continue;
    total += weight(z[v], largest);
    *end++ = static_cast<int32_t>(v);
  }
  // The nucleus is usually small: a heap gives its tokens in order and leaves the rest unsorted.
  const auto less_probable = [&](int32_t a, int32_t b) {
    return z[a] != z[b] ? z[a] < z[b] : a > b;
  };
  std::make_heap(ids.data(), end, less_probable);
  for (double mass = 0; end != ids.data() && mass < p * total;) {
    mass += weight(z[ids[0]], largest);
    std::pop_heap(ids.data(), end--, less_probable);
  }
  for (const int32_t* id = ids.data(); id != end; ++id) z[*id] = kImpossible;
}

void keep_min_p(std::span<double> z, double p) {
  const double smallest = largest_of(z) + std::log(p);
  for (double& value : z) {
    if (value < smallest) value = kImpossible;
  }
}

void keep_epsilon(std::span<double> z, double epsilon) {
  const double largest = largest_of(z);
  double total = 0;
  for (const double value : z) total += weight(value, largest);
  const double least = epsilon * total;
  const auto best = std::max_element(z.begin(), z.end());
  for (auto value = z.begin(); value != z.end(); ++value) {
    if (value != best && weight(*value, largest) < least) *value = kImpossible;
  }
}

int32_t token_at(std::span<const double> z, double u) {
  const double largest = largest_of(z);
  double total = 0;
  for (const double value : z) total += weight(value, largest);
  // Rounding may leave the sum just below u * total: then the last possible token is drawn.
  int32_t token = -1;
  double cumulative = 0;
  for (size_t v = 0; v < z.size() && !(cumulative > u * total); ++v) {
    const double w = weight(z[v], largest);
    if (w > 0) token = static_cast<int32_t>(v);
    cumulative += w;
  }
  check(token >= 0, "sampling", "expected a logit above -inf, got ", z.size(), " times -inf.");
  return token;
}

double sampling_uniform(uint64_t seed, int64_t sequence_id, int64_t position) {
  const Philox4 bits =
      philox({.seed = seed, .step = static_cast<uint32_t>(position), .stream = kSamplingStream},
             static_cast<uint64_t>(sequence_id));
  return to_uniform(bits.v[0], bits.v[1]);
}

int32_t sample_token(std::span<double> z, const SearchOptions& options, double u) {
  if (options.temperature != 1) {
    // Relative to the largest: a tiny temperature gives -inf, never inf - inf.
    const double largest = largest_of(z);
    for (double& value : z) value = (value - largest) / options.temperature;
  }
  if (options.top_k > 0) keep_top_k(z, options.top_k);
  if (options.top_p < 1) keep_top_p(z, options.top_p);
  if (options.min_p > 0) keep_min_p(z, options.min_p);
  if (options.epsilon_cutoff > 0) keep_epsilon(z, options.epsilon_cutoff);
  return token_at(z, u);
}

}  // namespace tapestry
