#include "data/n_best/weight_tuning.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "core/cpu/parallel.h"

namespace tapestry {
namespace {

using Weights = std::vector<double>;

double dot(const double* a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < b.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double norm(const Weights& weights) { return std::sqrt(dot(weights.data(), weights)); }

// Values of a scorer over its deviation within sentences, without the sentence's mean. A scorer
// that says nothing has 0.
class ScaledValues {
 public:
  ScaledValues(const std::vector<ScoredHypotheses>& sentences, size_t scorers)
      : scorers_(scorers), deviations_(scorers, 0) {
    int64_t count = 0;
    std::vector<double> largest(scorers, 0);
    for (const ScoredHypotheses& one : sentences) {
      check(one.values.size() % scorers == 0 && !one.values.empty(), "tune_weights", "expected ",
            scorers, " values of each hypothesis, got ", one.values.size(), " values.");
      values_.push_back(centred(one.values));
      count += std::ssize(one.values) / static_cast<int64_t>(scorers);
      for (size_t i = 0; i < one.values.size(); ++i) {
        check(std::isfinite(one.values[i]), "tune_weights", "expected finite values, got ",
              one.values[i], '.');
        largest[i % scorers] = std::max(largest[i % scorers], std::abs(one.values[i]));
        deviations_[i % scorers] += values_.back()[i] * values_.back()[i];
      }
    }
    for (size_t k = 0; k < scorers; ++k) {
      constexpr double kRounding = 1e-12;
      deviations_[k] = std::sqrt(deviations_[k] / static_cast<double>(count));
      if (deviations_[k] <= kRounding * largest[k]) deviations_[k] = 0;
    }
    for (std::vector<double>& list : values_) {
      for (size_t i = 0; i < list.size(); ++i) {
        const double deviation = deviations_[i % scorers];
        list[i] = deviation > 0 ? list[i] / deviation : 0;
      }
    }
  }

  size_t scorers() const { return scorers_; }
  bool useless(size_t scorer) const { return deviations_[scorer] == 0; }
  const std::vector<std::vector<double>>& all() const { return values_; }

  // Weights of the values as they are, for weights of the scaled ones; and the other way round.
  Weights outward(Weights weights) const {
    for (size_t k = 0; k < scorers_; ++k) weights[k] = useless(k) ? 0 : weights[k] / deviations_[k];
    return weights;
  }
  Weights inward(Weights weights) const {
    for (size_t k = 0; k < scorers_; ++k) weights[k] *= deviations_[k];
    return weights;
  }

 private:
  std::vector<double> centred(const std::vector<double>& values) const {
    std::vector<double> means(scorers_, 0), centred = values;
    for (size_t i = 0; i < values.size(); ++i) means[i % scorers_] += values[i];
    const size_t hypotheses = values.size() / scorers_;
    for (size_t i = 0; i < values.size(); ++i) {
      centred[i] -= means[i % scorers_] / static_cast<double>(hypotheses);
    }
    return centred;
  }

  size_t scorers_;
  std::vector<double> deviations_;
  std::vector<std::vector<double>> values_;
};

// Where another hypothesis of a sentence begins to win.
struct Turn {
  double at = 0;
  size_t sentence = 0;
  size_t from = 0, to = 0;  // hypotheses
};

class LineSearch {
 public:
  LineSearch(const Metric& metric, const std::vector<ScoredHypotheses>& sentences,
             const ScaledValues& values, bool larger_is_better)
      : metric_(metric), sentences_(sentences), values_(values), sign_(larger_is_better ? 1 : -1) {}

  struct Found {
    double step = 0;
    double score = 0;  // signed: larger is better
  };

  // The best step from `weights` along `direction`. Of equally good ones none, or the one in the
  // widest interval.
  Found search(const Weights& weights, const Weights& direction) const {
    std::vector<double> sums(metric_.width(), 0);
    std::vector<Turn> turns;
    for (size_t s = 0; s < sentences_.size(); ++s) {
      add(sums, 1, s, envelope(s, weights, direction, turns));
    }
    std::ranges::stable_sort(turns, {}, &Turn::at);
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    std::optional<Found> best;
    double widest = 0, begin = -kInfinity;
    for (size_t i = 0; i <= turns.size();) {
      const double end = i < turns.size() ? turns[i].at : kInfinity;
      consider(begin, end, signed_score(sums), best, widest);
      for (; i < turns.size() && turns[i].at == end; ++i) {
        add(sums, -1, turns[i].sentence, turns[i].from);
        add(sums, 1, turns[i].sentence, turns[i].to);
      }
      begin = end;
      if (end == kInfinity) break;
    }
    return *best;
  }

  double signed_score(const std::vector<double>& sums) const {
    return sign_ * metric_.score(sums.data());
  }

 private:
  struct Line {
    double slope, height;
    size_t hypothesis;
    double from = -std::numeric_limits<double>::infinity();  // where it begins to be highest
  };

  void add(std::vector<double>& sums, double sign, size_t sentence, size_t hypothesis) const {
    const double* const numbers =
        sentences_[sentence].statistics.data() + hypothesis * metric_.width();
    for (size_t k = 0; k < sums.size(); ++k) sums[k] += sign * numbers[k];
  }

  // Adds the turns of a sentence; returns the hypothesis that wins before the first of them.
  size_t envelope(size_t sentence, const Weights& weights, const Weights& direction,
                  std::vector<Turn>& turns) const {
    const std::vector<double>& values = values_.all()[sentence];
    std::vector<Line> lines;
    for (size_t i = 0; i < values.size(); i += weights.size()) {
      lines.push_back(
          {dot(values.data() + i, direction), dot(values.data() + i, weights), i / weights.size()});
    }
    // Of parallel lines the highest, of equal ones the first.
    std::ranges::stable_sort(lines, [](const Line& a, const Line& b) {
      return a.slope != b.slope ? a.slope < b.slope : a.height > b.height;
    });
    std::vector<Line> hull;
    for (Line& line : lines) {
      if (!hull.empty() && hull.back().slope == line.slope) continue;
      while (!hull.empty()) {
        line.from = (hull.back().height - line.height) / (line.slope - hull.back().slope);
        if (line.from > hull.back().from) break;
        hull.pop_back();
      }
      if (hull.empty()) line.from = -std::numeric_limits<double>::infinity();
      hull.push_back(line);
    }
    for (size_t i = 1; i < hull.size(); ++i) {
      turns.push_back({hull[i].from, sentence, hull[i - 1].hypothesis, hull[i].hypothesis});
    }
    return hull.front().hypothesis;
  }

  static void consider(double begin, double end, double score, std::optional<Found>& best,
                       double& widest) {
    // In a narrower one rounding would decide which hypothesis wins.
    constexpr double kNarrow = 1e-7;
    if (end - begin < kNarrow) return;
    constexpr double kBeyond = 1;  // deviations behind the last turn
    const bool from_left = std::isfinite(begin), to_right = std::isfinite(end);
    double step = 0;  // if it is within
    if (begin >= 0 || end <= 0) {
      step = from_left && to_right ? begin + (end - begin) / 2
                                   : (from_left ? begin + kBeyond : end - kBeyond);
    }
    const double width =
        step == 0 ? std::numeric_limits<double>::infinity() : std::min(end - begin, 2 * kBeyond);
    if (best && (score < best->score || (score == best->score && width <= widest))) return;
    best = {step, score};
    widest = width;
  }

  const Metric& metric_;
  const std::vector<ScoredHypotheses>& sentences_;
  const ScaledValues& values_;
  double sign_;
};

class Ascent {
 public:
  Ascent(const LineSearch& lines, const ScaledValues& values, uint64_t seed)
      : lines_(lines), values_(values), seed_(seed) {}

  struct Top {
    Weights weights;
    double score = -std::numeric_limits<double>::infinity();
  };

  // The random weights that a start begins with.
  Weights start(int64_t number) const { return drawn(number, 0); }

  Top climb(Weights weights, int64_t number) const {
    constexpr int64_t kMostRounds = 30;
    Top top{std::move(weights)};
    uint64_t draws = 1;
    for (int64_t round = 0; round < kMostRounds; ++round) {
      const double before = top.score;
      for (size_t k = 0; k < values_.scorers(); ++k) {
        if (values_.useless(k)) continue;
        Weights axis(values_.scorers(), 0);
        axis[k] = 1;
        go(top, axis);
      }
      for (size_t k = 0; k < 2 * values_.scorers(); ++k) go(top, drawn(number, draws++));
      if (!(top.score > before)) break;
    }
    return top;
  }

 private:
  void go(Top& top, const Weights& direction) const {
    const LineSearch::Found found = lines_.search(top.weights, direction);
    if (!(found.score > top.score)) return;
    top.score = found.score;
    for (size_t k = 0; k < direction.size(); ++k) top.weights[k] += found.step * direction[k];
    // Only the direction of weights counts: a unit of step stays one.
    const double length = norm(top.weights);
    if (length == 0) return;
    for (double& weight : top.weights) weight /= length;
  }

  // A random direction of length 1, without scorers that say nothing.
  Weights drawn(int64_t start, uint64_t number) const {
    const PhiloxKey key{seed_, static_cast<uint32_t>(start), stream_of("weights", 7)};
    Weights direction(values_.scorers());
    for (size_t k = 0; k < direction.size(); ++k) {
      const double normal = philox_normal(key, number * direction.size() + k);
      direction[k] = values_.useless(k) ? 0 : normal;
    }
    const double length = norm(direction);
    for (double& one : direction) one /= length > 0 ? length : 1;
    return direction;
  }

  const LineSearch& lines_;
  const ScaledValues& values_;
  uint64_t seed_;
};

// Sizes that add up to 1, in six digits: what a file holds is what was measured.
Weights rounded(Weights weights) {
  double sum = 0;
  for (const double weight : weights) sum += std::abs(weight);
  for (double& weight : weights) {
    if (weight == 0) continue;
    weight /= sum;
    const double unit = std::pow(10, 5 - std::floor(std::log10(std::abs(weight))));
    weight = std::round(weight * unit) / unit;
  }
  return weights;
}

// The sum of the weights that end at `least` or higher.
Weights sum_of(const std::vector<Ascent::Top>& tops, double least) {
  Weights sum(tops.front().weights.size(), 0);
  for (const Ascent::Top& top : tops) {
    for (size_t k = 0; k < sum.size() && top.score >= least; ++k) sum[k] += top.weights[k];
  }
  return sum;
}

}  // namespace

size_t best_hypothesis(std::span<const double> values, std::span<const double> weights) {
  size_t best = 0;
  double most = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i * weights.size() < values.size(); ++i) {
    const double sum = dot(values.data() + i * weights.size(), weights);
    if (sum > most) most = sum, best = i;
  }
  return best;
}

double score_of_choice(const Metric& metric, const std::vector<ScoredHypotheses>& sentences,
                       std::span<const double> weights) {
  std::vector<double> sums(metric.width(), 0);
  for (const ScoredHypotheses& one : sentences) {
    const double* const numbers =
        one.statistics.data() + best_hypothesis(one.values, weights) * metric.width();
    for (size_t k = 0; k < sums.size(); ++k) sums[k] += numbers[k];
  }
  return metric.score(sums.data());
}

TunedWeights tune_weights(const Metric& metric, const std::vector<ScoredHypotheses>& sentences,
                          const std::vector<double>& weights, const TuningOptions& options) {
  check(!weights.empty() && !sentences.empty(), "tune_weights",
        "expected sentences and scorers, got ", sentences.size(), " and ", weights.size(), '.');
  check(std::ranges::any_of(weights, [](double weight) { return weight != 0; }), "tune_weights",
        "expected a weight other than 0.");
  const ScaledValues values(sentences, weights.size());
  const LineSearch lines(metric, sentences, values, options.larger_is_better);
  const Ascent ascent(lines, values, options.seed);
  std::vector<Ascent::Top> tops(static_cast<size_t>(options.starts));
  parallel_for(options.starts, [&](int64_t start) {
    Weights from = start == 0 ? values.inward(weights) : ascent.start(start);
    if (const double length = norm(from); length > 0) {
      for (double& weight : from) weight /= length;
    }
    tops[static_cast<size_t>(start)] = ascent.climb(std::move(from), start);
  });
  const auto top = std::ranges::max_element(tops, {}, &Ascent::Top::score);  // first of equals

  TunedWeights tuned{.weights = weights};
  tuned.before = tuned.after = score_of_choice(metric, sentences, weights);
  for (size_t k = 0; k < weights.size(); ++k) tuned.useless.push_back(values.useless(k));
  const double sign = options.larger_is_better ? 1 : -1;
  const auto take = [&](const Weights& scaled, double least) {
    if (norm(scaled) == 0) return;  // nothing tells hypotheses apart
    Weights found = rounded(values.outward(scaled));
    const double after = score_of_choice(metric, sentences, found);
    if (sign * after <= sign * tuned.before || sign * after < least) return;
    tuned.weights = std::move(found);
    tuned.after = after;
  };
  take(top->weights, -std::numeric_limits<double>::infinity());
  take(sum_of(tops, top->score - options.average_within),
       options.average_within > 0 ? (sign * tuned.before + top->score) / 2 : top->score);
  return tuned;
}

}  // namespace tapestry
