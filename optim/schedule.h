// The learning rate as a pure function of the update number: nothing to save, nothing to restore.
#pragma once

#include <cstdint>
#include <string>

#include "core/enumerators.h"
#include "core/option_report.h"

namespace tapestry {

/// How the learning rate goes on after the warm-up. t is the update, w the warm-up steps, lr the
/// base rate, low the minimum, and r = (max_steps - t) / (max_steps - w) falls from 1 to 0.
enum class ScheduleType {
  kConstant,     ///< lr
  kLinear,       ///< low + (lr - low) * r
  kCosine,       ///< low + (lr - low) * (1 + cos(pi * (1 - r))) / 2
  kInverseSqrt,  ///< lr * sqrt(w / t)
  kNoam,  ///< lr * model_size^-0.5 * min(t^-0.5, t * w^-1.5), warm-up included: lr is a factor
  kPolynomial,  ///< low + (lr - low) * r^power
  kStep,        ///< lr * gamma^k, k the number of whole step_size intervals after the warm-up
};

constexpr const char* name_of(ScheduleType type) {
  switch (type) {
    case ScheduleType::kConstant:
      return "constant";
    case ScheduleType::kLinear:
      return "linear";
    case ScheduleType::kCosine:
      return "cosine";
    case ScheduleType::kInverseSqrt:
      return "inverse_sqrt";
    case ScheduleType::kNoam:
      return "noam";
    case ScheduleType::kPolynomial:
      return "polynomial";
    case ScheduleType::kStep:
      return "step";
  }
  return nullptr;
}

inline constexpr auto kScheduleTypes = enumerators<ScheduleType>();

struct ScheduleOptions {
  ScheduleType type = ScheduleType::kConstant;
  int64_t warmup_steps = 0;      ///< inverse_sqrt and noam need at least 1
  int64_t max_steps = 0;         ///< needed by linear, cosine and polynomial
  double min_learning_rate = 0;  ///< absolute; reached at max_steps, a floor where there is no end
  double power = 1;              ///< polynomial
  int64_t step_size = 0;         ///< step: updates per level
  double gamma = 0.1;            ///< step: factor from level to level
  int64_t model_size = 0;        ///< noam: D
};

/// Numbers that the schedule needs and that are missing or impossible; a member of `options`, or
/// "learning_rate".
void validate(const ScheduleOptions& options, double base_learning_rate,
              const OptionReport& report = OptionReport::throwing("schedule"));

/// The rate of update `step`, counted from 1 for the first. The warm-up is linear: update t of w
/// uses lr * t / w, so the first update already moves and update w is the first at full rate. In
/// terms of Hugging Face's schedulers this is their lambda(step); their own update t uses lambda(t
/// - 1), whose first rate is 0. Noam is from "Attention Is All You Need" (2017), section 5.3;
/// inverse_sqrt is fairseq's. Throws like validate(), and when step < 1.
double learning_rate(const ScheduleOptions& options, double base_learning_rate, int64_t step);

}  // namespace tapestry
