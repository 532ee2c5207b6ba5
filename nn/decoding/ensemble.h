// Ensembles: several models over one vocabulary choose each token together.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "nn/decoding/decoding.h"

namespace tapestry {

/// The weights of `members` models, which add up to 1: the given ones divided by their sum, or
/// equal ones if none are given. Throws Error(kConfig) unless there is one for each model, none is
/// negative, and one is positive.
std::vector<double> ensemble_weights(std::vector<double> given, size_t members);

/// log(sum_i weights[i] * exp(members[i][k])) for each k: the ensemble's log-probability, from each
/// model's members[i][k].
std::vector<double> mean_log_probabilities(const std::vector<std::vector<double>>& members,
                                           const std::vector<double>& weights);

/// The models as one, whose probability of a token is the weighted mean of theirs: its logits are
/// log(sum_i weights[i] * softmax(z_i)). Each keeps its own state. One model is returned as it is.
/// Throws as ensemble_weights(), and Error(kRuntime) if the members' logits differ in shape.
std::unique_ptr<NextToken> ensemble_of(std::vector<std::unique_ptr<NextToken>> members,
                                       const std::vector<double>& weights = {});

}  // namespace tapestry
