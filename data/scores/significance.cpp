#include "data/scores/significance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/cpu/parallel.h"
#include "data/scores/numpy_random.h"

namespace tapestry {
namespace {

// Draws that are in memory at a time.
constexpr size_t kDrawsOfABlock = size_t{1} << 20;

// NumPy's array of scores: in single precision only if all of its scores are.
struct Scores {
  std::vector<double> values;
  bool single = true;
};

// NumPy's order of summation: pairwise above 128 numbers, in eight parts below.
template <class Real>
Real numpy_sum(const Real* values, size_t count) {
  constexpr size_t kParts = 8, kBlock = 128;
  if (count > kBlock) {
    const size_t half = count / 2 - count / 2 % kParts;
    return numpy_sum(values, half) + numpy_sum(values + half, count - half);
  }
  Real sum = 0;
  size_t i = 0;
  if (count >= kParts) {
    Real parts[kParts];
    std::copy_n(values, kParts, parts);
    for (i = kParts; i + kParts <= count; i += kParts) {
      for (size_t j = 0; j < kParts; ++j) parts[j] += values[i + j];
    }
    sum = ((parts[0] + parts[1]) + (parts[2] + parts[3])) +
          ((parts[4] + parts[5]) + (parts[6] + parts[7]));
  }
  for (; i < count; ++i) sum += values[i];
  return sum;
}

template <class Real>
Real numpy_mean(const std::vector<Real>& values) {
  return static_cast<Real>(static_cast<double>(numpy_sum(values.data(), values.size())) /
                           static_cast<double>(values.size()));
}

template <class Real>
std::vector<Real> as(const Scores& scores) {
  return {scores.values.begin(), scores.values.end()};
}

// Python's statistics.mean: rounded once, which two doubles for the sum suffice for.
double exact_mean(const std::vector<double>& values) {
  double high = 0, low = 0;
  for (const double value : values) {
    const double sum = high + value;
    const double part = sum - high;
    low += (high - (sum - part)) + (value - part);
    high = sum;
  }
  const auto count = static_cast<double>(values.size());
  const double mean = (high + low) / count;
  return mean + (std::fma(-mean, count, high) + low) / count;
}

// Half the width of the middle 95 % of sorted values.
template <class Real>
double half_width(const std::vector<Real>& values) {
  const size_t outside = values.size() / 40;
  return static_cast<double>(Real{0.5} * (values[values.size() - outside - 1] - values[outside]));
}

// NumPy's mean is that of the sorted scores: the order decides its last digits.
template <class Real>
Interval numpy_interval(std::vector<Real> values) {
  std::sort(values.begin(), values.end());
  return {static_cast<double>(numpy_mean(values)), half_width(values)};
}

Interval interval_of(const Scores& scores) {
  return scores.single ? numpy_interval(as<float>(scores)) : numpy_interval(scores.values);
}

double share_above(int64_t above, size_t samples) {
  return static_cast<double>(above + 1) / (static_cast<double>(samples) + 1);
}

// The share of samples whose centred difference is above the real one.
template <class Real>
double p_value_of(const std::vector<Real>& a, const std::vector<Real>& b, double real_difference) {
  std::vector<Real> differences(a.size());
  for (size_t i = 0; i < a.size(); ++i) differences[i] = std::abs(b[i] - a[i]);
  const Real mean = numpy_mean(differences);
  const auto real = static_cast<Real>(real_difference);
  const auto above = std::count_if(differences.begin(), differences.end(),
                                   [&](Real difference) { return difference - mean > real; });
  return share_above(above, differences.size());
}

double p_value_of(const Scores& a, const Scores& b, double real_difference) {
  if (a.single && b.single) return p_value_of(as<float>(a), as<float>(b), real_difference);
  return p_value_of(a.values, b.values, real_difference);
}

// Scores of every system on every resample.
std::vector<Scores> resampled_scores(const Metric& metric, const SentenceStatistics& statistics,
                                     int64_t samples, uint64_t seed) {
  check(samples >= 1, "significance", "samples must be at least 1, got ", samples, '.');
  const size_t sentences = statistics.sentences(), width = statistics.width();
  const size_t systems = statistics.systems(), row = systems * width;
  check(sentences < std::numeric_limits<uint32_t>::max(), "significance",
        "expected fewer than 2^32 - 1 sentences, got ", sentences, '.');
  std::vector<float> numbers(sentences * row);
  for (size_t i = 0; i < sentences; ++i) {
    const double* const from = statistics.of(0, i);
    std::copy(from, from + row, numbers.begin() + static_cast<std::ptrdiff_t>(i * row));
  }
  const auto all = static_cast<size_t>(samples);
  std::vector<std::vector<Metric::Sample>> drawn(systems, std::vector<Metric::Sample>(all));
  NumpyRandom random(seed);
  const size_t block = std::clamp<size_t>(kDrawsOfABlock / sentences, 1, all);
  std::vector<uint32_t> draws(block * sentences);
  for (size_t begin = 0; begin < all; begin += block) {
    const size_t count = std::min(block, all - begin);
    random.fill_below(static_cast<uint32_t>(sentences), {draws.data(), count * sentences});
    parallel_for(static_cast<int64_t>(count), [&](int64_t tile) {
      const auto sample = static_cast<size_t>(tile);
      std::vector<float> sums(row, 0);
      const uint32_t* const drawn_sentences = draws.data() + sample * sentences;
      for (size_t i = 0; i < sentences; ++i) {
        const float* const from = numbers.data() + drawn_sentences[i] * row;
        for (size_t k = 0; k < row; ++k) sums[k] += from[k];
      }
      for (size_t s = 0; s < systems; ++s) {
        drawn[s][begin + sample] = metric.score(sums.data() + s * width);
      }
    });
  }
  std::vector<Scores> scores(systems);
  for (size_t s = 0; s < systems; ++s) {
    for (const Metric::Sample& sample : drawn[s]) {
      scores[s].values.push_back(sample.score);
      scores[s].single = scores[s].single && sample.single;
    }
  }
  return scores;
}

std::vector<SystemScore> real_scores(const Metric& metric, const SentenceStatistics& statistics) {
  std::vector<SystemScore> scores(statistics.systems());
  for (size_t s = 0; s < scores.size(); ++s) {
    scores[s].score = metric.score(statistics.sums(s).data());
  }
  return scores;
}

// The sentences in which a system and the baseline have other numbers, and by how much.
struct Exchange {
  Exchange(const SentenceStatistics& statistics, size_t system) {
    const size_t width = statistics.width();
    for (size_t i = 0; i < statistics.sentences(); ++i) {
      const double* const from = statistics.of(0, i);
      const double* const to = statistics.of(system, i);
      if (std::equal(from, from + width, to)) continue;
      sentences.push_back(i);
      for (size_t k = 0; k < width; ++k) differences.push_back(from[k] - to[k]);
    }
  }
  std::vector<size_t> sentences;
  std::vector<double> differences;  // baseline minus system
};

double shuffled_difference(const Metric& metric, const Exchange& exchange,
                           const std::vector<double>& baseline, const std::vector<double>& system,
                           const uint32_t* coins, size_t first_coin) {
  const size_t width = system.size();
  std::vector<double> a = system, b(width);
  const double* difference = exchange.differences.data();
  for (const size_t sentence : exchange.sentences) {
    const size_t coin = first_coin + sentence;
    const bool exchanged = (coins[coin / 32] >> coin % 32 & 1) != 0;
    for (size_t k = 0; k < width; ++k) a[k] += exchanged ? difference[k] : 0;
    difference += width;
  }
  for (size_t k = 0; k < width; ++k) b[k] = baseline[k] + system[k] - a[k];
  return std::abs(metric.shuffled_score(a.data()) - metric.shuffled_score(b.data()));
}

}  // namespace

Interval bootstrap_interval(const Metric& metric, const SentenceStatistics& statistics,
                            int64_t samples, uint64_t seed) {
  Scores scores = resampled_scores(metric, statistics, samples, seed).at(0);
  std::sort(scores.values.begin(), scores.values.end());
  const double mean = exact_mean(scores.values);
  if (!scores.single) return {mean, half_width(scores.values)};
  return {static_cast<double>(static_cast<float>(mean)), half_width(as<float>(scores))};
}

std::vector<SystemScore> paired_bootstrap(const Metric& metric,
                                          const SentenceStatistics& statistics, int64_t samples,
                                          uint64_t seed) {
  std::vector<SystemScore> systems = real_scores(metric, statistics);
  const std::vector<Scores> scores = resampled_scores(metric, statistics, samples, seed);
  for (size_t s = 0; s < systems.size(); ++s) {
    systems[s].interval = interval_of(scores[s]);
    if (s == 0) continue;
    systems[s].p_value =
        p_value_of(scores[0], scores[s], std::abs(systems[0].score - systems[s].score));
  }
  return systems;
}

std::vector<SystemScore> paired_randomization(const Metric& metric,
                                              const SentenceStatistics& statistics, int64_t trials,
                                              uint64_t seed) {
  check(trials >= 1, "significance", "trials must be at least 1, got ", trials, '.');
  std::vector<SystemScore> systems = real_scores(metric, statistics);
  const size_t sentences = statistics.sentences();
  std::vector<std::vector<double>> sums;
  std::vector<Exchange> exchanges;
  for (size_t s = 0; s < systems.size(); ++s) {
    sums.push_back(statistics.sums(s));
    exchanges.emplace_back(statistics, s);
  }
  // NumPy's coins are the bits of its words, the lowest first. A block of 32 trials begins with a
  // word.
  const auto all = static_cast<size_t>(trials);
  const size_t blocks_of_32 = std::max<size_t>(1, kDrawsOfABlock / sentences);
  const size_t block = 32 * std::min(blocks_of_32, (all + 31) / 32);
  std::vector<uint32_t> coins(block / 32 * sentences);
  std::vector<std::vector<double>> differences(systems.size(), std::vector<double>(all));
  NumpyRandom random(seed);
  for (size_t begin = 0; begin < all; begin += block) {
    const size_t count = std::min(block, all - begin);
    for (size_t i = 0; i < (count * sentences + 31) / 32; ++i) coins[i] = random.next32();
    constexpr int64_t kTrialsOfATile = 16;
    parallel_ranges(static_cast<int64_t>(count), kTrialsOfATile, [&](int64_t from, int64_t to) {
      for (auto trial = static_cast<size_t>(from); trial < static_cast<size_t>(to); ++trial) {
        for (size_t s = 1; s < systems.size(); ++s) {
          differences[s][begin + trial] = shuffled_difference(
              metric, exchanges[s], sums[0], sums[s], coins.data(), trial * sentences);
        }
      }
    });
  }
  for (size_t s = 1; s < systems.size(); ++s) {
    const double real = std::abs(systems[0].score - systems[s].score);
    systems[s].p_value =
        share_above(std::count_if(differences[s].begin(), differences[s].end(),
                                  [&](double difference) { return difference > real; }),
                    all);
  }
  return systems;
}

}  // namespace tapestry
