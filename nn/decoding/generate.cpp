// Greedy search and sampling: one row per sentence, one token after the other.
#include "nn/decoding/decoding.h"
#include "nn/decoding/search_loop.h"

namespace tapestry {

void generate(NextToken& model, const SearchTask& task, const SearchOptions& options,
              const GenerationHooks& hooks, const SearchQueue& queue) {
  // Beams are ignored here, so options of a beam search are accepted.
  SearchOptions checked = options;
  checked.num_beams = checked.n_best = 1;
  checked.validate();
  check(task.constraints.empty() || !options.do_sample, "search",
        "constraints need a search without draws.");
  const auto advance = [&](LiveSentence& sentence, std::span<const std::vector<Candidate>> rows,
                           int64_t length) -> std::vector<Candidate> {
    if (sentence.has_constraints()) return advance_beams(sentence, rows, length, task, checked);
    const Candidate& chosen = rows[0].at(0);
    Hypothesis result = hypothesis_of(sentence.beams[0], chosen, length, task, options);
    // The hook is called for the last token, too.
    const bool ends = result.has_eos ||
                      (hooks.on_token && hooks.on_token(sentence.index, result.tokens)) ||
                      length >= sentence.max_length;
    if (!ends) return {chosen};
    sentence.finished.push_back(std::move(result));
    return {};
  };
  run_search(model, task, checked, 1, queue, advance);
}

std::vector<Hypothesis> generate(NextToken& model, const SearchTask& task,
                                 const SearchOptions& options, const GenerationHooks& hooks) {
  const auto found = collect(
      task, [&](const SearchQueue& queue) { generate(model, task, options, hooks, queue); });
  std::vector<Hypothesis> results;
  for (const auto& hypotheses : found) results.push_back(hypotheses.at(0));
  return results;
}

}  // namespace tapestry
