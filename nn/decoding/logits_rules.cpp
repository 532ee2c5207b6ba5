#include "nn/decoding/logits_rules.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace tapestry {
namespace {

constexpr double kForbidden = -std::numeric_limits<double>::infinity();

std::vector<int32_t> joined(const Context& context) {
  std::vector<int32_t> all(context.prompt.begin(), context.prompt.end());
  all.insert(all.end(), context.generated.begin(), context.generated.end());
  return all;
}

// Calls f(logit, count) once for each token of the list. A prompt may have ids without a logit,
// such as a start token that is never generated.
template <class F>
void for_each_distinct(std::span<double> z, std::vector<int32_t> tokens, F&& f) {
  std::sort(tokens.begin(), tokens.end());
  for (auto begin = tokens.begin(); begin != tokens.end();) {
    const int32_t token = *begin;
    const auto end = std::upper_bound(begin, tokens.end(), token);
    if (token >= 0 && token < static_cast<int64_t>(z.size())) f(z[token], end - begin);
    begin = end;
  }
}

void forbid(std::span<double> z, int32_t token) {
  if (token >= 0 && token < static_cast<int64_t>(z.size())) z[token] = kForbidden;
}

bool has_penalties(const SearchOptions& options) {
  return options.frequency_penalty != 0 || options.presence_penalty != 0 ||
         options.repetition_penalty != 1;
}

// Calls f(token) for each token that would complete an n-gram of `size` that is there.
template <class F>
void for_repeated_ngrams(const Context& context, int64_t size, F&& f) {
  const std::vector<int32_t> sequence = joined(context);
  const auto length = static_cast<int64_t>(sequence.size());
  if (size > length) return;
  const auto last = sequence.end() - (size - 1);  // the beginning of the n-gram, already generated
  for (auto begin = sequence.begin(); begin + (size - 1) != sequence.end(); ++begin) {
    if (std::equal(last, sequence.end(), begin)) f(begin[size - 1]);
  }
}

// Calls f(token) for each token that would repeat a unit once too often.
template <class F>
void for_long_repeats(std::span<const int32_t> generated, int64_t most, F&& f) {
  const auto length = std::ssize(generated);
  // The last tokens that equal those one unit before them; the next one may go on with them.
  for (int64_t unit = 1; unit <= std::min(kLongestRepeated, length); ++unit) {
    int64_t same = 0;
    while (same < length - unit &&
           generated[length - 1 - same] == generated[length - 1 - same - unit]) {
      ++same;
    }
    // With it, `same` + 1 tokens repeat what stands before them: so many more units than one.
    if ((same + 1) / unit >= most) f(generated[length - unit]);
  }
}

}  // namespace

void apply_frequency_penalty(std::span<double> z, std::span<const int32_t> generated,
                             double alpha) {
  for_each_distinct(z, {generated.begin(), generated.end()}, [&](double& logit, int64_t count) {
    logit -= alpha * static_cast<double>(count);
  });
}

void apply_presence_penalty(std::span<double> z, std::span<const int32_t> generated, double beta) {
  for_each_distinct(z, {generated.begin(), generated.end()},
                    [&](double& logit, int64_t) { logit -= beta; });
}

void apply_repetition_penalty(std::span<double> z, const Context& context, double rho) {
  std::vector<int32_t> all = joined(context);
  all.insert(all.end(), context.source.begin(), context.source.end());
  for_each_distinct(z, std::move(all),
                    [&](double& logit, int64_t) { logit = logit > 0 ? logit / rho : logit * rho; });
}

void apply_penalties(std::span<double> z, const Context& context, const SearchOptions& options) {
  if (options.frequency_penalty != 0) {
    apply_frequency_penalty(z, context.generated, options.frequency_penalty);
  }
  if (options.presence_penalty != 0) {
    apply_presence_penalty(z, context.generated, options.presence_penalty);
  }
  if (options.repetition_penalty != 1) {
    apply_repetition_penalty(z, context, options.repetition_penalty);
  }
}

void ban_repeated_ngrams(std::span<double> z, const Context& context, int64_t size) {
  for_repeated_ngrams(context, size, [&](int32_t token) { forbid(z, token); });
}

void ban_long_repeats(std::span<double> z, std::span<const int32_t> generated, int64_t most) {
  for_long_repeats(generated, most, [&](int32_t token) { forbid(z, token); });
}

void apply_bans(std::span<double> z, const Context& context, const SearchTask& task,
                const SearchOptions& options) {
  for (const int32_t token : task.banned) forbid(z, token);
  if (options.no_repeat_ngram_size > 0) {
    ban_repeated_ngrams(z, context, options.no_repeat_ngram_size);
  }
  if (options.max_repeat > 0) ban_long_repeats(z, context.generated, options.max_repeat);
  if (static_cast<int64_t>(context.generated.size()) < options.min_new_tokens) {
    forbid(z, task.eos_id);
    for (const int32_t end : task.more_ends) forbid(z, end);
  }
}

bool has_rules(const SearchOptions& options) {
  return has_penalties(options) || options.no_repeat_ngram_size > 0 || options.max_repeat > 0 ||
         options.min_new_tokens > 0;
}

bool rules_bind(const Context& context, const SearchOptions& options) {
  bool binds = has_penalties(options) || std::ssize(context.generated) < options.min_new_tokens;
  const auto found = [&](int32_t) { binds = true; };
  if (!binds && options.max_repeat > 0) {
    for_long_repeats(context.generated, options.max_repeat, found);
  }
  if (!binds && options.no_repeat_ngram_size > 0) {
    for_repeated_ngrams(context, options.no_repeat_ngram_size, found);
  }
  return binds;
}

}  // namespace tapestry
