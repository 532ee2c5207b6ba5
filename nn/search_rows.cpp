#include "nn/search_rows.h"

#include <algorithm>
#include <cmath>

#include "core/dispatch.h"
#include "core/error.h"
#include "core/parallel.h"
#include "core/scratch.h"
#include "nn/sampling.h"

namespace tapestry {
namespace {

// log(sum(exp(z))): what turns logits into log-probabilities.
template <class T>
double log_sum_exp(const T* z, int64_t vocab, const SearchRow& row) {
  T largest = z[0];
  for (int64_t v = 1; v < vocab; ++v) largest = std::max(largest, z[v]);
  double total = 0;
  for (int64_t v = 0; v < vocab; ++v) total += std::exp(z[v] - largest);
  const double result = largest + std::log(total);
  check(std::isfinite(result), "search", "the logits of sentence ", row.sequence_id, " after ",
        row.context.generated.size(), " tokens are not finite.");
  return result;
}

// The `count` most probable tokens of one row of logits, as log-probabilities added to `shift`.
template <class T>
void find_top(const T* z, int64_t vocab, const std::vector<int32_t>& banned, double shift,
              int32_t beam, size_t count, std::vector<Candidate>& top) {
  for (int64_t v = 0; v < vocab; ++v) {
    const Candidate candidate{shift + z[v], beam, static_cast<int32_t>(v)};
    if (top.size() == count && !(candidate < top.back())) continue;
    if (candidate.log_probability == kImpossible) continue;
    if (std::find(banned.begin(), banned.end(), candidate.token) != banned.end()) continue;
    if (top.size() == count) top.pop_back();
    top.insert(std::upper_bound(top.begin(), top.end(), candidate), candidate);
  }
}

// Without rules: the logits are read where they lie.
template <class T>
void find_plain(const T* z, int64_t vocab, const SearchRow& row, const SearchTask& task,
                size_t count, std::vector<Candidate>& found) {
  const double shift = row.log_probability - log_sum_exp(z, vocab, row);
  if (!row.only_eos) find_top(z, vocab, task.banned, shift, row.beam, count, found);
  if (found.empty()) found.push_back({shift + z[task.eos_id], row.beam, task.eos_id});
}

// With rules, or to draw: z is a copy that may be changed.
void find_with_rules(std::span<double> z, const SearchRow& row, const SearchTask& task,
                     const SearchOptions& options, size_t count, std::vector<Candidate>& found) {
  const auto vocab = static_cast<int64_t>(z.size());
  apply_penalties(z, row.context, options);
  const double shift = row.log_probability - log_sum_exp(z.data(), vocab, row);
  const Candidate eos{shift + z[task.eos_id], row.beam, task.eos_id};
  apply_bans(z, row.context, task, options);
  const bool none_left =
      std::all_of(z.begin(), z.end(), [](double value) { return value == kImpossible; });
  if (row.only_eos || none_left) {
    found.push_back(eos);
  } else if (options.do_sample) {
    Scratch<double> cut(vocab);  // z still holds the log-probabilities
    std::copy(z.begin(), z.end(), cut.data());
    const double u = sampling_uniform(options.seed, row.sequence_id,
                                      static_cast<int64_t>(row.context.generated.size()));
    const int32_t token = sample_token({cut.data(), z.size()}, options, u);
    found.push_back({shift + z[token], row.beam, token});
  } else {
    find_top(z.data(), vocab, {}, shift, row.beam, count, found);
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
  const Tensor host = logits.to(Device{}).to(wider(logits.dtype()));
  const bool plain = !options.do_sample && !has_rules(options);
  candidates.resize(rows.size());
  parallel_for(static_cast<int64_t>(rows.size()), [&](int64_t r) {
    std::vector<Candidate>& found = candidates[r];
    found.clear();
    if (rows[r].idle) return;
    dispatch_floating(Cpu{}, host.dtype(), [&](auto type) {
      using T = decltype(type);
      const T* z = host.data<T>() + r * vocab;
      if (plain) return find_plain(z, vocab, rows[r], task, count, found);
      Scratch<double> copy(vocab);
      std::copy(z, z + vocab, copy.data());
      find_with_rules({copy.data(), static_cast<size_t>(vocab)}, rows[r], task, options, count,
                      found);
    });
  });
}

Prompts::Prompts(const SearchTask& task) : task_(task), bos_{task.bos_id} {
  const auto sentences = static_cast<size_t>(task.sentences);
  const auto one_each = [&](size_t size, const char* what) {
    check(size == sentences, "search", "expected one ", what, " for each of ", sentences,
          " sentences, got ", size, '.');
  };
  one_each(task.max_lengths.size(), "length limit");
  if (!task.prompts.empty()) one_each(task.prompts.size(), "prompt");
  if (!task.sequence_ids.empty()) one_each(task.sequence_ids.size(), "sequence id");
  for (size_t i = 0; i < sentences; ++i) {
    check(task.max_lengths[i] >= 1, "search", "sentence ", i, " may have ", task.max_lengths[i],
          " tokens, expected 1 or more.");
    check(task.prompts.empty() || !task.prompts[i].empty(), "search", "the prompt of sentence ", i,
          " is empty.");
  }
}

std::span<const int32_t> Prompts::operator[](int64_t sentence) const {
  return task_.prompts.empty() ? bos_ : task_.prompts[sentence];
}

int64_t Prompts::sequence_id(int64_t sentence) const {
  return task_.sequence_ids.empty() ? sentence : task_.sequence_ids[sentence];
}

int64_t Prompts::shortest() const {
  size_t tokens = (*this)[0].size();
  for (int64_t i = 1; i < task_.sentences; ++i) tokens = std::min(tokens, (*this)[i].size());
  return static_cast<int64_t>(tokens);
}

}  // namespace tapestry
