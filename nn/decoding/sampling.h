// Drawing a token from one row of logits: temperature, top-k (Fan et al. 2018), top-p (Holtzman
// et al. 2020), min-p (Nguyen et al. 2024) and epsilon (Hewitt et al. 2022).
#pragma once

#include <cstdint>
#include <span>

#include "nn/decoding/decoding.h"

namespace tapestry {

/// Top-k: keeps the k >= 1 largest logits and sets the others to -inf. Ties go to lower ids.
void keep_top_k(std::span<double> z, int64_t k);

/// Top-p: keeps the nucleus and sets the others to -inf. The nucleus is the smallest set of most
/// probable tokens of softmax(z) whose mass is at least p > 0; it includes the token that crosses
/// p. Ties go to lower ids.
void keep_top_p(std::span<double> z, double p);

/// Min-p: keeps the tokens whose probability is at least p > 0 times that of the most probable one,
/// and sets the others to -inf.
void keep_min_p(std::span<double> z, double p);

/// Epsilon: keeps the tokens whose probability under softmax(z) is at least epsilon > 0, or, if
/// there is none, the most probable one, and sets the others to -inf.
void keep_epsilon(std::span<double> z, double epsilon);

/// Inverse of softmax(z)'s cumulative distribution in the order of ids, at u in [0, 1): the first
/// token whose cumulative probability exceeds u. A token of -inf is never drawn.
/// Throws Error(kRuntime) if all are -inf.
int32_t token_at(std::span<const double> z, double u);

/// The uniform number in [0, 1) that decides token `position` (0 the first generated) of a
/// sequence.
double sampling_uniform(uint64_t seed, int64_t sequence_id, int64_t position);

/// Divides z by the temperature, keeps the top-k, of these the top-p, of these the min-p, of these
/// the epsilon, and draws at u.
int32_t sample_token(std::span<double> z, const SearchOptions& options, double u);

}  // namespace tapestry
