// Rules that change or forbid the next token by what has been said, on one row of logits
// (document 001, Penalty). X is the prompt that the decoder read, Y what it generated after that;
// an encoder's input is no part of either.
#pragma once

#include <cstdint>
#include <span>

#include "nn/decoding.h"

namespace tapestry {

/// What stands before the next token.
struct Context {
  std::span<const int32_t> prompt;     ///< X
  std::span<const int32_t> generated;  ///< Y
};

/// z_v -= alpha * (count of v in Y).
void apply_frequency_penalty(std::span<double> z, std::span<const int32_t> generated, double alpha);

/// z_v -= beta for each v in Y.
void apply_presence_penalty(std::span<double> z, std::span<const int32_t> generated, double beta);

/// For each v in X or Y: z_v / rho if z_v > 0, z_v * rho if z_v < 0.
void apply_repetition_penalty(std::span<double> z, const Context& context, double rho);

/// The three penalties of `options`, in the order above; those at their neutral value do nothing.
void apply_penalties(std::span<double> z, const Context& context, const SearchOptions& options);

/// -inf for each token that would complete an n-gram, n = `size` >= 1, that is in (X, Y) already.
void ban_repeated_ngrams(std::span<double> z, const Context& context, int64_t size);

/// -inf for what task.banned, no_repeat_ngram_size and min_new_tokens forbid after `context`.
void apply_bans(std::span<double> z, const Context& context, const SearchTask& task,
                const SearchOptions& options);

/// Whether `options` hold any rule that looks at the context.
bool has_rules(const SearchOptions& options);

}  // namespace tapestry
