// Rules that change or forbid next tokens because of earlier ones, on one row of logits. X is the
// prompt that the decoder read, Y the tokens that it generated after that. An encoder's input
// belongs to X for the repetition penalty, where it is of the same vocabulary.
#pragma once

#include <cstdint>
#include <span>

#include "nn/decoding/decoding.h"

namespace tapestry {

/// The tokens before the next one.
struct Context {
  std::span<const int32_t> prompt;       ///< X
  std::span<const int32_t> generated;    ///< Y
  std::span<const int32_t> source = {};  ///< the encoder's input, or nothing
};

/// z_v -= alpha * (count of v in Y).
void apply_frequency_penalty(std::span<double> z, std::span<const int32_t> generated, double alpha);

/// z_v -= beta for each v in Y.
void apply_presence_penalty(std::span<double> z, std::span<const int32_t> generated, double beta);

/// For each v in the source, X or Y: z_v / rho if z_v > 0, z_v * rho if z_v < 0 (Keskar et al.
/// 2019).
void apply_repetition_penalty(std::span<double> z, const Context& context, double rho);

/// The three penalties of `options`, in the order above; those at their neutral value do nothing.
void apply_penalties(std::span<double> z, const Context& context, const SearchOptions& options);

/// Sets to -inf each token that would complete an n-gram, n = `size` >= 1, that is already in (X,
/// Y).
void ban_repeated_ngrams(std::span<double> z, const Context& context, int64_t size);

/// Sets to -inf each token that would complete a unit of 1 to kLongestRepeated tokens that Y would
/// then end with `most` + 1 times in a row, most >= 1. X does not count: only outputs run in loops.
inline constexpr int64_t kLongestRepeated = 8;
void ban_long_repeats(std::span<double> z, std::span<const int32_t> generated, int64_t most);

/// Sets tokens to -inf that task.banned, no_repeat_ngram_size, max_repeat and min_new_tokens forbid
/// after `context`.
void apply_bans(std::span<double> z, const Context& context, const SearchTask& task,
                const SearchOptions& options);

/// True if `options` have any rule that depends on the context.
bool has_rules(const SearchOptions& options);

/// True if they change or forbid any token after `context`.
bool rules_bind(const Context& context, const SearchOptions& options);

}  // namespace tapestry
