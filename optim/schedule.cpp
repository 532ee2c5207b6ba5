#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace tapestry {
namespace {

// The part of the decay that is still to come, from 1 at the end of the warm-up to 0 at max_steps.
double remaining(const ScheduleOptions& options, int64_t step) {
  if (step >= options.max_steps) return 0;
  return static_cast<double>(options.max_steps - step) /
         static_cast<double>(options.max_steps - options.warmup_steps);
}

double noam(const ScheduleOptions& options, double factor, double step) {
  const double warmup = static_cast<double>(options.warmup_steps);
  return factor / std::sqrt(static_cast<double>(options.model_size)) *
         std::min(1 / std::sqrt(step), step / (warmup * std::sqrt(warmup)));
}

double after_warmup(const ScheduleOptions& options, double base, int64_t step) {
  const double low = options.min_learning_rate;
  switch (options.type) {
    case ScheduleType::kConstant:
      return base;
    case ScheduleType::kLinear:
      return low + (base - low) * remaining(options, step);
    case ScheduleType::kCosine: {
      const double angle = std::numbers::pi * (1 - remaining(options, step));
      return low + (base - low) * (1 + std::cos(angle)) / 2;
    }
    case ScheduleType::kInverseSqrt:
      return std::max(low, base * std::sqrt(static_cast<double>(options.warmup_steps) /
                                            static_cast<double>(step)));
    case ScheduleType::kNoam:
      return std::max(low, noam(options, base, static_cast<double>(step)));
    case ScheduleType::kPolynomial:
      return low + (base - low) * std::pow(remaining(options, step), options.power);
    case ScheduleType::kStep: {
      const int64_t level = (step - 1 - options.warmup_steps) / options.step_size;
      return std::max(low, base * std::pow(options.gamma, static_cast<double>(level)));
    }
  }
  return base;
}

}  // namespace

void validate(const ScheduleOptions& options, double base_learning_rate,
              const OptionReport& report) {
  const ScheduleType type = options.type;
  const auto not_negative = [&](const char* member, double value) {
    return report.expect(std::isfinite(value) && value >= 0, member, "must be 0 or more, got ",
                         value, '.');
  };
  const auto needed = [&](const char* member, int64_t value) {
    report.expect(value > 0, member, "must be 1 or more for ", name_of(type), ", got ", value, '.');
  };
  const auto positive = [&](const char* member, double value) {
    report.expect(std::isfinite(value) && value > 0, member, "must be more than 0, got ", value,
                  '.');
  };
  const bool rates = not_negative("learning_rate", base_learning_rate) &
                     not_negative("min_learning_rate", options.min_learning_rate);
  not_negative("warmup_steps", static_cast<double>(options.warmup_steps));
  // Noam's learning_rate is a factor, not a rate that the minimum could be compared with.
  if (rates && type != ScheduleType::kNoam) {
    report.expect(options.min_learning_rate <= base_learning_rate, "min_learning_rate",
                  "must not exceed learning_rate, got ", options.min_learning_rate, " and ",
                  base_learning_rate, '.');
  }
  switch (type) {
    case ScheduleType::kConstant:
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
      needed("warmup_steps", options.warmup_steps);
      break;
    case ScheduleType::kStep:
      needed("step_size", options.step_size);
      positive("gamma", options.gamma);
      break;
  }
}

double learning_rate(const ScheduleOptions& options, double base_learning_rate, int64_t step) {
  validate(options, base_learning_rate);
  check(step >= 1, "schedule", "updates are counted from 1, got ", step, '.');
  if (step > options.warmup_steps) return after_warmup(options, base_learning_rate, step);
  if (options.type == ScheduleType::kNoam) {
    return noam(options, base_learning_rate, static_cast<double>(step));
  }
  return base_learning_rate * static_cast<double>(step) / static_cast<double>(options.warmup_steps);
}

}  // namespace tapestry
