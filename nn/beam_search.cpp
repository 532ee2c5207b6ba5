#include <algorithm>

#include "core/error.h"
#include "nn/decoding.h"
#include "nn/search_rows.h"

namespace tapestry {
namespace {

struct Beam {
  std::vector<int32_t> generated;
  double log_probability;
  std::vector<double> token_log_probabilities = {};  ///< if the task asks for them
};

// One sentence of the search.
struct Sentence {
  int64_t index;  ///< in the task
  std::span<const int32_t> prompt;
  int64_t max_length;
  std::vector<Beam> beams;
  std::vector<Hypothesis> finished;  ///< best first, at most n_best
};

void add_finished(Sentence& sentence, Hypothesis hypothesis, int64_t n_best) {
  auto better = [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; };
  auto& list = sentence.finished;
  list.insert(std::upper_bound(list.begin(), list.end(), hypothesis, better),
              std::move(hypothesis));
  if (static_cast<int64_t>(list.size()) > n_best) list.pop_back();
}

// Whether no continuation of `best_live` can enter the n best. Its log-probability can only fall,
// and its length penalty is most favourable at one end of the lengths that are left.
bool is_decided(const Sentence& sentence, double best_live, int64_t length,
                const SearchOptions& options) {
  if (best_live == kImpossible) return true;
  if (static_cast<int64_t>(sentence.finished.size()) < options.n_best) return false;
  const double bound = std::max(normalized_score(best_live, length + 1, options),
                                normalized_score(best_live, sentence.max_length, options));
  return sentence.finished.back().score >= bound;
}

// Those of a beam that goes on with this candidate; empty unless the task asks for them.
std::vector<double> token_log_probabilities(const Beam& beam, const Candidate& next,
                                            const SearchTask& task) {
  if (!task.token_log_probabilities) return {};
  std::vector<double> values = beam.token_log_probabilities;
  values.push_back(next.log_probability - beam.log_probability);
  return values;
}

Hypothesis hypothesis_of(const Sentence& sentence, const Candidate& last, int64_t length,
                         const SearchTask& task, const SearchOptions& options) {
  Hypothesis hypothesis{.tokens = sentence.beams[last.beam].generated,
                        .log_probability = last.log_probability,
                        .score = normalized_score(last.log_probability, length, options),
                        .has_eos = last.token == task.eos_id};
  if (!hypothesis.has_eos) hypothesis.tokens.push_back(last.token);
  hypothesis.token_log_probabilities =
      token_log_probabilities(sentence.beams[last.beam], last, task);
  return hypothesis;
}

// Sorts the candidates of a sentence's beams into finished hypotheses and the beams of the next
// step, best first. `length` counts the tokens, including the candidate's.
std::vector<Candidate> advance(Sentence& sentence, std::span<const std::vector<Candidate>> rows,
                               int64_t length, const SearchTask& task,
                               const SearchOptions& options) {
  std::vector<Candidate> candidates, next;
  for (const auto& row : rows) candidates.insert(candidates.end(), row.begin(), row.end());
  std::sort(candidates.begin(), candidates.end());
  const bool at_limit = length >= sentence.max_length;
  for (size_t rank = 0; rank < candidates.size(); ++rank) {
    const Candidate& c = candidates[rank];
    const bool in_beam = static_cast<int64_t>(rank) < options.num_beams;
    if (at_limit || (c.token == task.eos_id && in_beam)) {
      add_finished(sentence, hypothesis_of(sentence, c, length, task, options), options.n_best);
    } else if (c.token != task.eos_id && static_cast<int64_t>(next.size()) < options.num_beams) {
      next.push_back(c);
    }
  }
  return next;
}

// Replaces the beams by those of the candidates. If there are fewer candidates than beams, the rest
// are impossible.
void follow(Sentence& sentence, std::vector<Candidate>& next, const SearchTask& task) {
  next.resize(sentence.beams.size(), {kImpossible, 0, task.bos_id});
  std::vector<Beam> beams;
  for (const Candidate& c : next) {
    const Beam& parent = sentence.beams[c.beam];
    beams.push_back(
        {parent.generated, c.log_probability, token_log_probabilities(parent, c, task)});
    beams.back().generated.push_back(c.token);
  }
  sentence.beams = std::move(beams);
}

}  // namespace

std::vector<std::vector<Hypothesis>> beam_search(NextToken& model, const SearchTask& task,
                                                 const SearchOptions& options) {
  options.validate();
  check(!options.do_sample, "beam_search", "expected a search without do_sample.");
  const Prompts prompts(task);
  const int64_t beams = options.num_beams;
  std::vector<std::vector<Hypothesis>> results(static_cast<size_t>(task.sentences));
  if (results.empty()) return results;

  int64_t position = prompts.shortest();  // tokens that each row has been fed
  std::vector<Sentence> live;
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < task.sentences; ++i) {
    // All beams start the same, so all but the first are impossible.
    live.push_back({i,
                    prompts[i],
                    task.max_lengths[i],
                    std::vector<Beam>(static_cast<size_t>(beams), {{}, kImpossible}),
                    {}});
    live.back().beams[0].log_probability = 0;
    for (int64_t beam = 0; beam < beams; ++beam) {
      tokens.insert(tokens.end(), prompts[i].begin(), prompts[i].begin() + position);
    }
  }

  std::vector<SearchRow> rows;
  std::vector<std::vector<Candidate>> candidates;
  for (; !live.empty(); ++position) {
    const Tensor logits = model.step(tokens);
    rows.clear();
    for (const Sentence& s : live) {
      const int64_t length = position - static_cast<int64_t>(s.prompt.size()) + 1;
      for (int32_t beam = 0; beam < beams; ++beam) {
        rows.push_back({.context = {s.prompt, s.beams[beam].generated, prompts.source(s.index)},
                        .log_probability = s.beams[beam].log_probability,
                        .beam = beam,
                        .sequence_id = prompts.sequence_id(s.index),
                        .only = prompts.only(s.index, length),
                        .idle = length < 1 || s.beams[beam].log_probability == kImpossible});
      }
    }
    // Of 2k candidates at most k end in eos, so k remain to continue.
    find_candidates(logits, rows, task, options, static_cast<size_t>(2 * beams), candidates);

    std::vector<Sentence> still_live;
    std::vector<int32_t> kept, parents;
    bool rows_stay = true;
    tokens.clear();
    for (size_t i = 0; i < live.size(); ++i) {
      Sentence& sentence = live[i];
      const auto first_row = static_cast<int32_t>(i * beams);
      const int64_t length = position - static_cast<int64_t>(sentence.prompt.size()) + 1;
      std::vector<Candidate> next;
      if (length < 1) {
        for (int32_t beam = 0; beam < beams; ++beam) {
          next.push_back({0, beam, sentence.prompt[position]});
        }
      } else {
        next = advance(sentence, std::span(candidates).subspan(first_row, beams), length, task,
                       options);
        const double best_live = next.empty() ? kImpossible : next[0].log_probability;
        if (is_decided(sentence, best_live, length, options)) {
          results[sentence.index] = std::move(sentence.finished);
          rows_stay = false;
          continue;
        }
        follow(sentence, next, task);
      }
      for (int32_t beam = 0; beam < beams; ++beam) {
        rows_stay = rows_stay && next[beam].beam == beam;
        parents.push_back(first_row + next[beam].beam);
        tokens.push_back(next[beam].token);
      }
      kept.push_back(static_cast<int32_t>(i));
      still_live.push_back(std::move(sentence));
    }
    if (!still_live.empty() && !rows_stay) model.select(kept, parents);
    live = std::move(still_live);
  }
  return results;
}

}  // namespace tapestry
