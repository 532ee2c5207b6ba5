// The learning rate as a pure function of the update number: nothing to save, nothing to restore.
// Only reduce_lr_on_plateau also depends on what validations found (optim/plateau.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/enumerators.h"
#include "core/base/option_report.h"

namespace tapestry {

/// The course of the learning rate after the warm-up. t is the update, w the warm-up steps, lr the
/// base rate, low the minimum, and r = (max_steps - t) / (max_steps - w) falls from 1 to 0. Names
/// are Hugging Face's for its schedules.
enum class ScheduleType {
  kConstant,     ///< lr
  kLinear,       ///< low + (lr - low) * r
  kCosine,       ///< low + (lr - low) * (1 + cos(pi * (1 - r))) / 2
  kInverseSqrt,  ///< lr * sqrt(w / t)
  kNoam,  ///< lr * model_size^-0.5 * min(t^-0.5, t * w^-1.5), warm-up included: lr is a factor
  kPolynomial,   ///< low + (lr - low) * r^power
  kStep,         ///< lr * gamma^k, k the number of whole step_size intervals after the warm-up
  kExponential,  ///< lr * gamma^(t - w)
  kCosineWithRestarts,  ///< kCosine with r of the current one of num_cycles equal cycles
  /// lr, and in the last decay_steps updates low + (lr - low) * (1 - p), (1 + cos(pi p)) / 2 or
  /// 1 - sqrt(p), where p rises from 0 to 1. Its warm-up begins at low, as Hugging Face's.
  kWarmupStableDecay,
  kReduceOnPlateau,  ///< lr, to be multiplied by PlateauState::scale
};

enum class DecayShape { kLinear, kCosine, kOneMinusSqrt };

constexpr const char* name_of(DecayShape shape) {
  switch (shape) {
    case DecayShape::kLinear:
      return "linear";
    case DecayShape::kCosine:
      return "cosine";
    case DecayShape::kOneMinusSqrt:
      return "1-sqrt";
  }
  return nullptr;
}

inline constexpr auto kDecayShapes = enumerators<DecayShape>();

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
    case ScheduleType::kExponential:
      return "exponential";
    case ScheduleType::kCosineWithRestarts:
      return "cosine_with_restarts";
    case ScheduleType::kWarmupStableDecay:
      return "warmup_stable_decay";
    case ScheduleType::kReduceOnPlateau:
      return "reduce_lr_on_plateau";
  }
  return nullptr;
}

inline constexpr auto kScheduleTypes = enumerators<ScheduleType>();

struct ScheduleOptions {
  ScheduleType type = ScheduleType::kConstant;
  int64_t warmup_steps = 0;      ///< inverse_sqrt and noam need at least 1
  double warmup_ratio = 0;       ///< the same as a share of max_steps, rounded up; one of them is 0
  int64_t max_steps = 0;         ///< needed by linear, cosine, ..., and by warmup_ratio
  double min_learning_rate = 0;  ///< absolute; reached at max_steps, if there is an end
  double min_ratio = 0;          ///< the same as a share of the base rate; one of them is 0
  double power = 1;              ///< polynomial
  int64_t step_size = 0;         ///< step: updates per level
  double gamma = 0.1;            ///< step: factor from level to level; exponential: of each update
  int64_t num_cycles = 1;        ///< cosine_with_restarts
  int64_t decay_steps = 0;       ///< warmup_stable_decay: the last updates of max_steps
  DecayShape decay_type = DecayShape::kCosine;  ///< warmup_stable_decay
  int64_t model_size = 0;                       ///< noam: D

  /// Updates of the warm-up, whichever way they are given.
  int64_t warmup() const;
  /// The least rate, whichever way it is given.
  double lowest(double base_learning_rate) const;
};

/// Numbers that the schedule needs and that are missing or impossible; a member of `options`, or
/// "learning_rate".
void validate(const ScheduleOptions& options, double base_learning_rate,
              const OptionReport& report = OptionReport::throwing("schedule"));

/// The rate of update `step`, counted from 1 for the first. The warm-up is linear: update t of w
/// uses lr * t / w, so the first update already moves and update w is the first at full rate. In
/// terms of Hugging Face's schedulers this is their lambda(step); their own update t uses lambda(t
/// - 1), whose first rate is 0. Noam is from "Attention Is All You Need" (2017), section 5.3;
/// inverse_sqrt is fairseq's; warmup_stable_decay is from Hu et al. 2024 (MiniCPM). Throws like
/// validate(), and when step < 1.
double learning_rate(const ScheduleOptions& options, double base_learning_rate, int64_t step);

/// Updates at which the schedule changes, ascending: `first`, the end of the warm-up, the beginning
/// and the end of a decay, those from `first` to max_steps.
std::vector<int64_t> turning_points(const ScheduleOptions& options, int64_t first);

}  // namespace tapestry
