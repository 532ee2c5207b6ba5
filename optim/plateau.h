// Lowers the learning rate when a metric of the validation stops getting better: PyTorch's
// ReduceLROnPlateau, of which Hugging Face's reduce_lr_on_plateau is made. Unlike a schedule it has
// a state, which a checkpoint keeps.
#pragma once

#include <cstdint>

#include "core/base/enumerators.h"
#include "core/base/option_report.h"

namespace tapestry {

enum class ThresholdMode { kRelative, kAbsolute };

constexpr const char* name_of(ThresholdMode mode) {
  switch (mode) {
    case ThresholdMode::kRelative:
      return "rel";
    case ThresholdMode::kAbsolute:
      return "abs";
  }
  return nullptr;
}

inline constexpr auto kThresholdModes = enumerators<ThresholdMode>();

struct PlateauOptions {
  double factor = 0.1;    ///< of the rate, in (0, 1)
  int64_t patience = 10;  ///< validations without a new best that pass before it falls
  /// A new best is better by more than this: than best * (1 +- threshold), or best +- threshold.
  double threshold = 1e-4;
  ThresholdMode threshold_mode = ThresholdMode::kRelative;
  int64_t cooldown = 0;  ///< validations after a fall that do not count
};

/// Numbers outside their ranges.
void validate(const PlateauOptions& options,
              const OptionReport& report = OptionReport::throwing("plateau"));

struct PlateauState {
  double scale = 1;       ///< of the learning rate
  bool has_best = false;  ///< a validation was seen
  double best = 0;
  int64_t without_best = 0;
  int64_t cooldown_left = 0;
};

/// Takes the metric of a validation. Returns true if the rate falls: to `factor` times its value,
/// but not below `lowest`, and not by less than 1e-8, as in PyTorch. `base_learning_rate` is the
/// rate to which the scale applies.
bool observe(const PlateauOptions& options, double metric, bool larger_is_better,
             double base_learning_rate, double lowest, PlateauState& state);

}  // namespace tapestry
