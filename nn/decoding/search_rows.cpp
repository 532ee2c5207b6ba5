#include "nn/decoding/search_rows.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/cpu/parallel.h"
#include "core/dispatch.h"
#include "core/dispatch_device.h"
#include "core/kernels/packed/packed_top_logits.h"
#include "core/kernels/top_logits.h"
#include "core/scratch.h"
#include "nn/decoding/sampling.h"
#include "nn/layers/weight_matrix.h"

namespace tapestry {
namespace {

void check_finite(bool finite, const SearchRow& row) {
  check(finite, "search", "the logits of sentence ", row.sequence_id, " after ",
        row.context.generated.size(), " tokens are not finite.");
}

// The normaliser that is subtracted from logits. Throws if it is not finite.
double checked(double log_sum_exp, const SearchRow& row) {
  check_finite(std::isfinite(log_sum_exp), row);
  return log_sum_exp;
}

// The log-probability of a row and one token more, added up as score and training do.
struct Likelihood {
  double of(double logit) const { return before + (logit - log_sum_exp); }
  double before, log_sum_exp;
};

// Takes the pairs of a row's top_logits().
void take_pairs(const double* pairs, int64_t number, Likelihood likelihood, int32_t beam,
                std::vector<Candidate>& found) {
  for (int64_t k = 0; k < number; ++k) {
    const auto token = static_cast<int32_t>(pairs[2 * k]);
    if (token < 0) break;
    found.push_back({likelihood.of(pairs[2 * k + 1]), beam, token});
  }
}

// Appends the wanted tokens that a list lacks and whose logit, of `logit_of`, is not -inf.
template <class F>
void take_wanted(const SearchRow& row, Likelihood likelihood, F&& logit_of,
                 std::vector<Candidate>& found) {
  for (const int32_t token : row.wanted) {
    if (std::ranges::find(found, token, &Candidate::token) != found.end()) continue;
    const double logit = logit_of(token);
    if (logit != kImpossible) found.push_back({likelihood.of(logit), row.beam, token});
  }
}

// One list for each row, in the memory of the step before.
void empty_lists(size_t rows, std::vector<std::vector<Candidate>>& candidates) {
  candidates.resize(rows);
  for (std::vector<Candidate>& found : candidates) found.clear();
}

// Takes the result of top_logits() for each row.
void take_top(const Tensor& top, const std::vector<SearchRow>& rows,
              std::vector<std::vector<Candidate>>& candidates) {
  const int64_t width = top.shape()[1], pairs = (width - 1) / 2;
  for (size_t r = 0; r < rows.size(); ++r) {
    const SearchRow& row = rows[r];
    const double* const result = top.data<double>() + static_cast<int64_t>(r) * width;
    const Likelihood likelihood{row.log_probability, checked(result[0], row)};
    if (row.only < 0) take_pairs(result + 1, pairs, likelihood, row.beam, candidates[r]);
  }
}

// Takes the result of NextToken::largest() for each row.
void take_largest(const Tensor& largest, const std::vector<SearchRow>& rows, const SearchTask& task,
                  std::vector<std::vector<Candidate>>& candidates) {
  candidates.resize(rows.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    const int32_t token = largest.data<int32_t>()[r];
    check_finite(token != kernels::kNotFinite, rows[r]);
    candidates[r].assign(1, {0, rows[r].beam, token == kernels::kNoToken ? task.eos_id : token});
  }
}

// The top_logits() of each row among the tokens that it may generate.
Tensor top_of_chosen_rows(const Tensor& logits, const std::vector<SearchRow>& rows, int64_t pairs,
                          const int32_t* banned) {
  const Tensor host = logits.to(Device{}).to(wider(logits.dtype()));
  const int64_t vocab = host.shape()[1], width = 1 + 2 * pairs;
  const Tensor top = Tensor::empty({std::ssize(rows), width}, DType::kFloat64);
  parallel_for(std::ssize(rows), [&](int64_t r) {
    dispatch_wide(host.dtype(), [&](auto type) {
      kernels::top_of_chosen(host.data<decltype(type)>() + r * vocab,
                             rows[static_cast<size_t>(r)].chosen, {1, vocab, pairs}, banned,
                             top.data<double>() + r * width);
    });
  });
  return top;
}

// The top_logits() of each row, which the device finds itself.
Tensor top_of_rows(const Tensor& logits, int64_t pairs, const std::vector<int32_t>& banned) {
  const int64_t vocab = logits.shape()[1];
  const Tensor set = banned.empty() ? Tensor() : token_set(banned, vocab).to(logits.device());
  const TopLogitsShape shape{logits.shape()[0], vocab, pairs};
  const Tensor top = Tensor::empty({shape.rows, 1 + 2 * pairs}, DType::kFloat64, logits.device());
  dispatch(logits, [&](auto device, auto type) {
    using T = decltype(type);
    kernels::top_logits(device, shape, logits.data<T>(),
                        set.defined() ? set.data<int32_t>() : nullptr, top.data<double>());
  });
  return top.to(Device{});
}

// Finds tokens without rules and draws.
void find_plain(const Tensor& logits, const std::vector<SearchRow>& rows, const SearchTask& task,
                size_t count, std::vector<std::vector<Candidate>>& candidates) {
  if (rows.empty()) return;
  const int64_t vocab = logits.shape()[1];
  const int64_t pairs = std::min(vocab, static_cast<int64_t>(count));
  const Tensor host =
      rows[0].chosen.empty()
          ? top_of_rows(logits, pairs, task.banned)
          : top_of_chosen_rows(logits, rows, pairs, token_set(task.banned, vocab).data<int32_t>());
  take_top(host, rows, candidates);
  for (int64_t r = 0; r < std::ssize(rows); ++r) {
    const SearchRow& row = rows[static_cast<size_t>(r)];
    std::vector<Candidate>& found = candidates[static_cast<size_t>(r)];
    const Likelihood likelihood{row.log_probability, host.data<double>()[r * (1 + 2 * pairs)]};
    const auto logit_of = [&](int32_t token) {
      const int64_t at = r * vocab + token;
      return logits.reshape({logits.numel()}).slice(at, at + 1).item();
    };
    if (row.only < 0) take_wanted(row, likelihood, logit_of, found);
    if (!found.empty()) continue;
    const int32_t token = row.only < 0 ? task.eos_id : row.only;
    const auto best = static_cast<int32_t>(host.data<double>()[r * (1 + 2 * pairs) + 1]);
    found.push_back(
        {likelihood.of(logit_of(token)), row.beam, token, row.only >= 0 && best != token});
  }
}

// Finds tokens with rules or draws. z is a copy that may be changed.
void find_with_rules(std::span<double> z, const SearchRow& row, const SearchTask& task,
                     const SearchOptions& options, size_t count, std::vector<Candidate>& found) {
  const auto vocab = std::ssize(z), pairs = std::min(vocab, static_cast<int64_t>(count));
  Scratch<double> top(1 + 2 * pairs);
  const auto find = [&](int64_t number) {
    kernels::top_logits(Cpu{}, {1, vocab, number}, z.data(), nullptr, top.data());
  };
  apply_penalties(z, row.context, options);
  find(1);
  const Likelihood likelihood{row.log_probability, checked(top[0], row)};
  const int32_t last = row.only < 0 ? task.eos_id : row.only;
  Candidate last_resort{likelihood.of(z[last]), row.beam, last};
  apply_bans(z, row.context, task, options);
  const bool none_left =
      std::all_of(z.begin(), z.end(), [](double value) { return value == kImpossible; });
  const auto draw = [&] {
    Scratch<double> cut(vocab);  // z still holds the log-probabilities
    std::copy(z.begin(), z.end(), cut.data());
    const double u = sampling_uniform(row.seed.value_or(options.seed), row.sequence_id,
                                      static_cast<int64_t>(row.context.generated.size()));
    return sample_token({cut.data(), z.size()}, options, u);
  };
  if (none_left) {
    found.push_back(last_resort);
  } else if (row.only >= 0) {
    const auto free = options.do_sample
                          ? draw()
                          : static_cast<int32_t>(std::max_element(z.begin(), z.end()) - z.begin());
    last_resort.forced = free != last;
    found.push_back(last_resort);
  } else if (options.do_sample) {
    const int32_t token = draw();
    found.push_back({likelihood.of(z[token]), row.beam, token});
  } else {
    find(pairs);
    take_pairs(top.data() + 1, pairs, likelihood, row.beam, found);
    take_wanted(
        row, likelihood, [&](int32_t token) { return z[token]; }, found);
  }
}

}  // namespace

void find_candidates(const Tensor& logits, const std::vector<SearchRow>& rows,
                     const SearchTask& task, const SearchOptions& options, size_t count,
                     std::vector<std::vector<Candidate>>& candidates) {
  check(logits.shape().rank() == 2 && logits.shape()[0] == static_cast<int64_t>(rows.size()),
        "search", "expected logits of ", rows.size(), " rows, got ", logits.shape(), '.');
  const int64_t vocab = logits.shape()[1];
  check(task.eos_id >= 0 && task.eos_id < vocab, "search", "eos is ", task.eos_id,
        ", the vocabulary has ", vocab, " tokens.");
  for (const SearchRow& row : rows) {
    check(row.only < vocab, "search", "a prefix has token ", row.only, ", the vocabulary has ",
          vocab, " tokens.");
  }
  empty_lists(rows.size(), candidates);
  if (!options.do_sample && !has_rules(options)) {
    return find_plain(logits, rows, task, count, candidates);
  }
  const Tensor host = logits.to(Device{}).to(wider(logits.dtype()));
  parallel_for(static_cast<int64_t>(rows.size()), [&](int64_t r) {
    dispatch_wide(host.dtype(), [&](auto type) {
      const auto* z = host.data<decltype(type)>() + r * vocab;
      Scratch<double> copy(vocab);
      const SearchRow& row = rows[static_cast<size_t>(r)];
      if (row.chosen.empty()) {
        std::copy(z, z + vocab, copy.data());
      } else {
        std::fill_n(copy.data(), vocab, kImpossible);
        for (const int32_t token : row.chosen) copy[token] = static_cast<double>(z[token]);
      }
      find_with_rules({copy.data(), static_cast<size_t>(vocab)}, rows[r], task, options, count,
                      candidates[r]);
    });
  });
}

bool find_best(NextToken& model, const std::vector<int32_t>& tokens,
               const std::vector<SearchRow>& rows, const SearchTask& task,
               const SearchOptions& options, size_t count,
               std::vector<std::vector<Candidate>>& candidates) {
  // A token that is forced or wanted may be any, and its logit must be known. Where only tokens are
  // asked for, rules matter in the steps in which they bind.
  const bool only_tokens = count == 1 && !task.log_probabilities;
  const bool rules = has_rules(options);
  const auto needs_logits = [&](const SearchRow& row) {
    return row.only >= 0 || !row.wanted.empty() ||
           (rules && (!only_tokens || rules_bind(row.context, options)));
  };
  if (options.do_sample || std::ranges::any_of(rows, needs_logits)) return false;
  if (only_tokens) {
    const Tensor largest = model.largest(tokens, task.banned);
    if (largest.defined()) {
      take_largest(largest, rows, task, candidates);
      return true;
    }
  }
  const Tensor top = model.best(tokens, static_cast<int64_t>(count), task.banned);
  if (!top.defined()) return false;
  empty_lists(rows.size(), candidates);
  take_top(top, rows, candidates);
  for (size_t r = 0; r < rows.size(); ++r) {
    if (candidates[r].empty()) candidates[r].push_back({kImpossible, rows[r].beam, task.eos_id});
  }
  return true;
}

Prompts::Prompts(const SearchTask& task) : task_(task), bos_{task.bos_id} {
  const auto sentences = static_cast<size_t>(task.sentences);
  const auto one_each = [&](size_t size, const char* what) {
    check(size == sentences, "search", "expected one ", what, " for each of ", sentences,
          " sentences, got ", size, '.');
  };
  check(task.draws >= 1, "search", "expected a draw of each sentence, got ", task.draws, '.');
  one_each(task.max_lengths.size(), "length limit");
  if (!task.prompts.empty()) one_each(task.prompts.size(), "prompt");
  if (!task.prefixes.empty()) one_each(task.prefixes.size(), "prefix");
  if (!task.constraints.empty()) one_each(task.constraints.size(), "list of phrases");
  if (!task.sources.empty()) one_each(task.sources.size(), "source");
  if (!task.chosen.empty()) one_each(task.chosen.size(), "list of tokens");
  if (!task.sequence_ids.empty()) one_each(task.sequence_ids.size(), "sequence id");
  if (!task.seeds.empty()) one_each(task.seeds.size(), "seed");
  for (size_t i = 0; i < sentences; ++i) {
    check(task.max_lengths[i] >= 1, "search", "expected a length limit >= 1 for sentence ", i,
          ", got ", task.max_lengths[i], '.');
    check(task.prompts.empty() || !task.prompts[i].empty(), "search", "the prompt of sentence ", i,
          " is empty.");
    check(task.prefixes.empty() || std::ssize(task.prefixes[i]) < task.max_lengths[i], "search",
          "the prefix of sentence ", i, " must be shorter than its limit.");
    check(task.chosen.empty() || std::ranges::binary_search(task.chosen[i], task.eos_id), "search",
          "the list of tokens of sentence ", i, " lacks the end.");
    if (task.constraints.empty()) continue;
    check(std::ranges::none_of(task.constraints[i],
                               [](const auto& phrase) { return phrase.empty(); }),
          "search", "a phrase of sentence ", i, " is empty.");
  }
}

std::span<const int32_t> Prompts::operator[](int64_t answer) const {
  return task_.prompts.empty() ? bos_ : task_.prompts[sentence_of(answer)];
}

std::span<const int32_t> Prompts::source(int64_t answer) const {
  if (task_.sources.empty()) return {};
  return task_.sources[sentence_of(answer)];
}

std::span<const int32_t> Prompts::chosen(int64_t answer) const {
  if (task_.chosen.empty()) return {};
  return task_.chosen[sentence_of(answer)];
}

std::optional<uint64_t> Prompts::seed(int64_t answer) const {
  if (task_.seeds.empty()) return std::nullopt;
  return task_.seeds[sentence_of(answer)];
}

int64_t Prompts::max_length(int64_t answer) const { return task_.max_lengths[sentence_of(answer)]; }

int32_t Prompts::only(int64_t answer, int64_t length) const {
  if (!task_.prefixes.empty()) {
    const std::vector<int32_t>& prefix = task_.prefixes[sentence_of(answer)];
    if (length <= std::ssize(prefix)) return prefix[static_cast<size_t>(length - 1)];
  }
  return task_.force_eos && length >= max_length(answer) ? task_.eos_id : -1;
}

int64_t Prompts::sequence_id(int64_t answer) const {
  constexpr int kSentenceBits = 40;  // more sentences than that are never numbered
  const size_t sentence = sentence_of(answer);
  const int64_t id =
      task_.sequence_ids.empty() ? static_cast<int64_t>(sentence) : task_.sequence_ids[sentence];
  return id + ((answer % task_.draws) << kSentenceBits);
}

}  // namespace tapestry
