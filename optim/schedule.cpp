#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/error.h"

namespace tapestry {
namespace {

// The part of the decay that is still to come, from 1 at the end of the warm-up to 0 at max_steps.
double remaining(const ScheduleOptions& options, int64_t step) {
  if (step >= options.max_steps) return 0;
  return static_cast<double>(options.max_steps - step) /
         static_cast<double>(options.max_steps - options.warmup());
}

double half_cosine(double progress) { return (1 + std::cos(std::numbers::pi * progress)) / 2; }

// Falls from 1 to 0 in each cycle.
double cosine_with_restarts(const ScheduleOptions& options, int64_t step) {
  if (step >= options.max_steps) return 0;
  const int64_t warmup = options.warmup();
  const double progress =
      static_cast<double>(step - warmup) / static_cast<double>(options.max_steps - warmup);
  return half_cosine(std::fmod(static_cast<double>(options.num_cycles) * progress, 1.0));
}

// 1 up to the decay, then down to 0.
double stable_then_decay(const ScheduleOptions& options, int64_t step) {
  const int64_t begin = options.max_steps - options.decay_steps;
  if (step < begin) return 1;
  if (step >= options.max_steps) return 0;
  const double progress =
      static_cast<double>(step - begin) / static_cast<double>(options.decay_steps);
  switch (options.decay_type) {
    case DecayShape::kLinear:
      return 1 - progress;
    case DecayShape::kCosine:
      return half_cosine(progress);
    case DecayShape::kOneMinusSqrt:
      return 1 - std::sqrt(progress);
  }
  return 1;
}

double noam(const ScheduleOptions& options, double factor, double step) {
  const auto warmup = static_cast<double>(options.warmup());
  return factor / std::sqrt(static_cast<double>(options.model_size)) *
         std::min(1 / std::sqrt(step), step / (warmup * std::sqrt(warmup)));
}

double after_warmup(const ScheduleOptions& options, double base, int64_t step) {
  const double low = options.lowest(base);
  switch (options.type) {
    case ScheduleType::kConstant:
    case ScheduleType::kReduceOnPlateau:
      return base;
    case ScheduleType::kLinear:
      return low + (base - low) * remaining(options, step);
    case ScheduleType::kCosine: {
      const double angle = std::numbers::pi * (1 - remaining(options, step));
      return low + (base - low) * (1 + std::cos(angle)) / 2;
    }
    case ScheduleType::kInverseSqrt:
      return std::max(
          low, base * std::sqrt(static_cast<double>(options.warmup()) / static_cast<double>(step)));
    case ScheduleType::kNoam:
      return std::max(low, noam(options, base, static_cast<double>(step)));
    case ScheduleType::kPolynomial:
      return low + (base - low) * std::pow(remaining(options, step), options.power);
    case ScheduleType::kStep: {
      const int64_t level = (step - options.warmup()) / options.step_size;
      return std::max(low, base * std::pow(options.gamma, static_cast<double>(level)));
    }
    case ScheduleType::kExponential:
      return std::max(low,
                      base * std::pow(options.gamma, static_cast<double>(step - options.warmup())));
    case ScheduleType::kCosineWithRestarts:
      return low + (base - low) * cosine_with_restarts(options, step);
    case ScheduleType::kWarmupStableDecay:
      return low + (base - low) * stable_then_decay(options, step);
  }
  return base;
}

}  // namespace

int64_t ScheduleOptions::warmup() const {
  if (warmup_ratio <= 0) return warmup_steps;
  const double steps = std::ceil(warmup_ratio * static_cast<double>(max_steps));
  return steps < static_cast<double>(max_steps) ? static_cast<int64_t>(steps) : max_steps;
}

double ScheduleOptions::lowest(double base_learning_rate) const {
  return min_ratio > 0 ? min_ratio * base_learning_rate : min_learning_rate;
}

namespace {

void validate_numbers_of_type(const ScheduleOptions& options, const OptionReport& report) {
  const ScheduleType type = options.type;
  const auto needed = [&](const char* member, int64_t value) {
    report.expect(value > 0, member, "must be 1 or more for ", name_of(type), ", got ", value, '.');
  };
  const auto positive = [&](const char* member, double value) {
    report.expect(std::isfinite(value) && value > 0, member, "must be more than 0, got ", value,
                  '.');
  };
  switch (type) {
    case ScheduleType::kConstant:
    case ScheduleType::kReduceOnPlateau:
      break;
    case ScheduleType::kPolynomial:
      positive("power", options.power);
      [[fallthrough]];
    case ScheduleType::kLinear:
    case ScheduleType::kCosine:
      needed("max_steps", options.max_steps);
      break;
    case ScheduleType::kNoam:
      needed("model_size", options.model_size);
      [[fallthrough]];
    case ScheduleType::kInverseSqrt:
      if (options.warmup_ratio == 0) needed("warmup_steps", options.warmup_steps);
      break;
    case ScheduleType::kStep:
      needed("step_size", options.step_size);
      positive("gamma", options.gamma);
      break;
    case ScheduleType::kExponential:
      positive("gamma", options.gamma);
      break;
    case ScheduleType::kCosineWithRestarts:
      needed("max_steps", options.max_steps);
      needed("num_cycles", options.num_cycles);
      break;
    case ScheduleType::kWarmupStableDecay:
      needed("max_steps", options.max_steps);
      needed("decay_steps", options.decay_steps);
      report.expect(options.decay_steps <= options.max_steps - options.warmup(), "decay_steps",
                    "must be at most max_steps less the warm-up (warmup_steps, or warmup_ratio), "
                    "got ",
                    options.decay_steps, ", ", options.max_steps, " and ", options.warmup(), '.');
      break;
  }
}

}  // namespace

void validate(const ScheduleOptions& options, double base_learning_rate,
              const OptionReport& report) {
  const ScheduleType type = options.type;
  const auto not_negative = [&](const char* member, double value) {
    return report.expect(std::isfinite(value) && value >= 0, member, "must be 0 or more, got ",
                         value, '.');
  };
  const bool rates = not_negative("learning_rate", base_learning_rate) &
                     not_negative("min_learning_rate", options.min_learning_rate);
  const auto share = [&](const char* member, double value) {
    return report.expect(value >= 0 && value <= 1, member, "must be in [0, 1], got ", value, '.');
  };
  not_negative("warmup_steps", static_cast<double>(options.warmup_steps));
  const bool ratio = share("warmup_ratio", options.warmup_ratio) && options.warmup_ratio > 0;
  if (ratio) {
    report.expect(options.max_steps > 0, "max_steps", "must be 1 or more for ", name_of(type),
                  ", got ", options.max_steps, '.');
    report.expect(options.warmup_steps == 0, "warmup_ratio", "must be 0 beside warmup_steps, got ",
                  options.warmup_ratio, " and ", options.warmup_steps, '.');
  }
  if (share("min_ratio", options.min_ratio) && options.min_ratio > 0) {
    report.expect(options.min_learning_rate == 0, "min_ratio",
                  "must be 0 beside min_learning_rate, got ", options.min_ratio, " and ",
                  options.min_learning_rate, '.');
  }
  // Noam's learning_rate is a factor, not a rate that the minimum could be compared with.
  if (rates && type != ScheduleType::kNoam) {
    report.expect(options.min_learning_rate <= base_learning_rate, "min_learning_rate",
                  "must not exceed learning_rate, got ", options.min_learning_rate, " and ",
                  base_learning_rate, '.');
  }
  validate_numbers_of_type(options, report);
}

double learning_rate(const ScheduleOptions& options, double base_learning_rate, int64_t step) {
  validate(options, base_learning_rate);
  check(step >= 1, "schedule", "updates are counted from 1, got ", step, '.');
  const int64_t warmup = options.warmup();
  if (step > warmup) return after_warmup(options, base_learning_rate, step);
  if (options.type == ScheduleType::kNoam) {
    return noam(options, base_learning_rate, static_cast<double>(step));
  }
  const bool from_lowest = options.type == ScheduleType::kWarmupStableDecay;
  const double first = from_lowest ? options.lowest(base_learning_rate) : 0;
  return first +
         (base_learning_rate - first) * static_cast<double>(step) / static_cast<double>(warmup);
}

std::vector<int64_t> turning_points(const ScheduleOptions& options, int64_t first) {
  std::vector<int64_t> points = {first, options.warmup()};
  const bool stays =
      options.type == ScheduleType::kConstant || options.type == ScheduleType::kReduceOnPlateau;
  if (!stays) points.push_back(options.max_steps);
  if (options.type == ScheduleType::kWarmupStableDecay) {
    points.push_back(options.max_steps - options.decay_steps);
  }
  std::sort(points.begin(), points.end());
  points.erase(std::unique(points.begin(), points.end()), points.end());
  std::erase_if(points, [&](int64_t step) {
    return step < first || (options.max_steps > 0 && step > options.max_steps);
  });
  return points;
}

}  // namespace tapestry
