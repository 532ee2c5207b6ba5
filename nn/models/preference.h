// Losses that teach a causal model which of two answers to a prompt is better.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/ops.h"

namespace tapestry {

enum class PreferenceLoss { kDpo, kIpo, kOrpo, kSimpo };

struct PreferenceOptions {
  PreferenceLoss loss = PreferenceLoss::kDpo;
  double beta = 0.1;           ///< of rewards; of kOrpo the weight of its odds
  double margin = 0;           ///< of kSimpo: how much better an answer should be
  double label_smoothing = 0;  ///< of kDpo: the share of examples whose answers are swapped
  double chosen_weight = 0;    ///< adds so much of the negative log-likelihood of the better answer

  /// True if rewards are differences from another model.
  bool has_reference() const {
    return loss == PreferenceLoss::kDpo || loss == PreferenceLoss::kIpo;
  }
};

/// The answers of B examples, two for each: first the better one.
struct ComparedAnswers {
  Var log_probabilities;        ///< (2B) of whole answers, float32 or wider
  std::vector<int64_t> tokens;  ///< (2B)
  /// (2B) of the reference: log-probabilities by the model before its training. Only where
  /// PreferenceOptions::has_reference(); of the same type and device.
  Tensor reference = {};
};

/// What the loss compares: (B, 2), of the better answer and of the worse one. With l the
/// log-probability of an answer, l0 the reference's and t its tokens:
///
///   dpo    beta (l - l0)         Rafailov et al. 2023
///   ipo    beta (l - l0) / t     Azar et al. 2023; by token, as its authors recommend
///   orpo   beta l / t            Hong et al. 2024
///   simpo  beta l / t            Meng et al. 2024
Var rewards(const ComparedAnswers& answers, const PreferenceOptions& options);

/// The loss over `normalizer` examples, of which these are some; 0: over these. With r the rewards,
/// s the label smoothing and t the tokens of the better answer c:
///
///   dpo    -(1 - s) log sigmoid(r_c - r_r) - s log sigmoid(r_r - r_c)
///   ipo    ((r_c - r_r) / beta - 1 / (2 beta))^2
///   orpo   -l_c / t - beta log sigmoid(log odds(l_c / t) - log odds(l_r / t))
///   simpo  -log sigmoid(r_c - r_r - margin)
///
/// where odds(x) = e^x / (1 - e^x), plus chosen_weight * -l_c / t. The result's tokens are
/// examples, its nll sums are of -l_c / t, and correct are those whose better answer has the larger
/// reward.
CrossEntropy preference_loss(const ComparedAnswers& answers, const PreferenceOptions& options,
                             double normalizer = 0);

}  // namespace tapestry
