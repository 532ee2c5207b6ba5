// Greedy search and sampling: one row per sentence, one token after the other.
#include <numeric>

#include "nn/decoding.h"
#include "nn/search_rows.h"

namespace tapestry {
namespace {

// The unfinished sentences, one per row, and the tokens that the next step feeds.
struct Batch {
  std::vector<int64_t> sentences;
  std::vector<int32_t> tokens;
};

// The first step reads the first `count` tokens of every prompt; all prompts have that many.
Batch first_batch(const Prompts& prompts, int64_t sentences, int64_t count) {
  Batch batch;
  batch.sentences.resize(static_cast<size_t>(sentences));
  std::iota(batch.sentences.begin(), batch.sentences.end(), 0);
  for (int64_t i = 0; i < sentences; ++i) {
    batch.tokens.insert(batch.tokens.end(), prompts[i].begin(), prompts[i].begin() + count);
  }
  return batch;
}

// Gives sentence `index` its next token. Returns whether it was the last.
bool append(Hypothesis& result, const Candidate& chosen, int64_t index, const SearchTask& task,
            const SearchOptions& options, const GenerationHooks& hooks) {
  const auto length = static_cast<int64_t>(result.tokens.size()) + 1;
  if (task.token_log_probabilities) {
    result.token_log_probabilities.push_back(chosen.log_probability - result.log_probability);
  }
  result.log_probability = chosen.log_probability;
  result.score = normalized_score(result.log_probability, length, options);
  result.has_eos = chosen.token == task.eos_id;
  if (result.has_eos) return true;
  result.tokens.push_back(chosen.token);
  // The hook is called for the last token too.
  const bool stopped = hooks.on_token && hooks.on_token(index, result.tokens);
  return stopped || length >= task.max_lengths[index];
}

}  // namespace

std::vector<Hypothesis> generate(NextToken& model, const SearchTask& task,
                                 const SearchOptions& options, const GenerationHooks& hooks) {
  // Beams are ignored here, so options of a beam search are accepted.
  SearchOptions checked = options;
  checked.num_beams = checked.n_best = 1;
  checked.validate();
  const Prompts prompts(task);
  std::vector<Hypothesis> results(static_cast<size_t>(task.sentences));
  if (results.empty()) return results;

  int64_t position = prompts.shortest();  // tokens that each row has been fed
  Batch batch = first_batch(prompts, task.sentences, position);
  std::vector<SearchRow> rows;
  std::vector<std::vector<Candidate>> candidates;
  for (;; ++position) {
    const Tensor logits = model.step(batch.tokens);
    rows.clear();
    for (const int64_t i : batch.sentences) {
      const Hypothesis& result = results[i];
      const auto length = static_cast<int64_t>(result.tokens.size()) + 1;
      rows.push_back({.context = {prompts[i], result.tokens, prompts.source(i)},
                      .log_probability = result.log_probability,
                      .sequence_id = prompts.sequence_id(i),
                      .only = prompts.only(i, length),
                      .idle = position < static_cast<int64_t>(prompts[i].size())});
    }
    find_candidates(logits, rows, task, options, 1, candidates);

    Batch next;
    std::vector<int32_t> kept;
    for (size_t row = 0; row < rows.size(); ++row) {
      const int64_t i = batch.sentences[row];
      if (!rows[row].idle) {
        const Candidate& chosen = candidates[row].at(0);
        if (append(results[i], chosen, i, task, options, hooks)) continue;
      }
      next.tokens.push_back(rows[row].idle ? prompts[i][position] : candidates[row][0].token);
      next.sentences.push_back(i);
      kept.push_back(static_cast<int32_t>(row));
    }
    if (kept.empty()) return results;
    if (kept.size() < rows.size()) model.select(kept, kept);
    batch = std::move(next);
  }
}

}  // namespace tapestry
