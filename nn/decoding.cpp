#include "nn/decoding.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/parallel.h"
#include "nn/transformer.h"

namespace tapestry {
namespace {

constexpr double kImpossible = -std::numeric_limits<double>::infinity();

struct Candidate {
  double log_probability;  ///< of the whole sequence
  int32_t beam;
  int32_t token;
  // Best first; ties go to the lower beam, then the lower id.
  bool operator<(const Candidate& other) const {
    if (log_probability != other.log_probability) return log_probability > other.log_probability;
    if (beam != other.beam) return beam < other.beam;
    return token < other.token;
  }
};

// The `count` most probable tokens of one row of logits, as log-probabilities added to `base`.
template <class T>
void top_tokens(const T* logits, int64_t vocab, const std::vector<int32_t>& banned, double base,
                int32_t beam, size_t count, std::vector<Candidate>& top) {
  T largest = logits[0];
  for (int64_t v = 1; v < vocab; ++v) largest = std::max(largest, logits[v]);
  double total = 0;
  for (int64_t v = 0; v < vocab; ++v) total += std::exp(logits[v] - largest);
  const double shift = base - largest - std::log(total);
  top.clear();
  for (int64_t v = 0; v < vocab; ++v) {
    const Candidate candidate{shift + logits[v], beam, static_cast<int32_t>(v)};
    if (top.size() == count && !(candidate < top.back())) continue;
    if (std::find(banned.begin(), banned.end(), candidate.token) != banned.end()) continue;
    if (top.size() == count) top.pop_back();
    top.insert(std::upper_bound(top.begin(), top.end(), candidate), candidate);
  }
}

// The log-probability of one token of a row, added to `base`.
template <class T>
double token_log_probability(const T* logits, int64_t vocab, double base, int32_t token) {
  T largest = logits[0];
  for (int64_t v = 1; v < vocab; ++v) largest = std::max(largest, logits[v]);
  double total = 0;
  for (int64_t v = 0; v < vocab; ++v) total += std::exp(logits[v] - largest);
  return base + logits[token] - largest - std::log(total);
}

// For each row with a possible score its best candidates; eos alone where the length limit is
// reached.
std::vector<std::vector<Candidate>> best_of_rows(const Tensor& logits, const SearchTask& task,
                                                 const std::vector<double>& scores, int64_t beams,
                                                 const std::vector<char>& at_limit, size_t count) {
  const int64_t rows = logits.shape()[0], vocab = logits.shape()[1];
  const Tensor host = logits.to(Device{});
  std::vector<std::vector<Candidate>> best(static_cast<size_t>(rows));
  parallel_for(rows, [&](int64_t row) {
    if (scores[row] == kImpossible) return;
    dispatch_floating(host.dtype(), [&](auto type) {
      using T = decltype(type);
      const T* z = host.data<T>() + row * vocab;
      const auto beam = static_cast<int32_t>(row % beams);
      if (at_limit[row / beams]) {
        best[row] = {
            {token_log_probability(z, vocab, scores[row], task.eos_id), beam, task.eos_id}};
      } else {
        top_tokens(z, vocab, task.banned, scores[row], beam, count, best[row]);
      }
    });
  });
  return best;
}

// One sentence of the search.
struct Sentence {
  int64_t index;  ///< in the task
  int64_t max_length;
  std::vector<std::vector<int32_t>> histories;  ///< per beam
  std::vector<Hypothesis> finished;             ///< best first, at most n_best
};

void add_finished(Sentence& sentence, Hypothesis hypothesis, int64_t n_best) {
  auto better = [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; };
  auto& list = sentence.finished;
  list.insert(std::upper_bound(list.begin(), list.end(), hypothesis, better),
              std::move(hypothesis));
  if (static_cast<int64_t>(list.size()) > n_best) list.pop_back();
}

// Nothing that grows from `best_live` can enter the n best: its log-probability only falls, and its
// penalty is most generous at one end of the lengths that are left.
bool is_decided(const Sentence& sentence, double best_live, int64_t length,
                const SearchOptions& options) {
  if (best_live == kImpossible) return true;
  if (static_cast<int64_t>(sentence.finished.size()) < options.n_best) return false;
  const double bound = std::max(normalized_score(best_live, length + 1, options),
                                normalized_score(best_live, sentence.max_length, options));
  return sentence.finished.back().score >= bound;
}

}  // namespace

LengthPenalty parse_length_penalty(const std::string& name) {
  if (name == "none") return LengthPenalty::kNone;
  if (name == "average") return LengthPenalty::kAverage;
  if (name == "gnmt") return LengthPenalty::kGnmt;
  fail(ErrorKind::kConfig, "[beam_search] length_penalty_type is none, average or gnmt, got '",
       name, "'.");
}

double normalized_score(double log_probability, int64_t length, const SearchOptions& options) {
  const auto t = static_cast<double>(length);
  switch (options.length_penalty_type) {
    case LengthPenalty::kNone:
      return log_probability;
    case LengthPenalty::kAverage:
      return log_probability / std::pow(t, options.length_penalty);
    case LengthPenalty::kGnmt:
      return log_probability / std::pow((5 + t) / 6, options.length_penalty);
  }
  return log_probability;
}

std::vector<Hypothesis> greedy_search(NextToken& model, const SearchTask& task,
                                      const SearchOptions& options) {
  std::vector<Hypothesis> results(static_cast<size_t>(task.sentences));
  std::vector<int32_t> live(results.size());  // row -> sentence
  for (size_t i = 0; i < live.size(); ++i) live[i] = static_cast<int32_t>(i);
  std::vector<int32_t> tokens(live.size(), task.bos_id);
  for (int64_t length = 1; !live.empty(); ++length) {
    const Tensor logits = model.step(tokens);
    std::vector<double> scores;
    std::vector<char> at_limit;
    for (const int32_t sentence : live) {
      scores.push_back(results[sentence].log_probability);
      at_limit.push_back(length >= task.max_lengths[sentence]);
    }
    const auto best = best_of_rows(logits, task, scores, 1, at_limit, 1);
    std::vector<int32_t> keep, still_live;
    tokens.clear();
    for (size_t row = 0; row < live.size(); ++row) {
      Hypothesis& result = results[live[row]];
      const Candidate& next = best[row].at(0);
      result.log_probability = next.log_probability;
      if (next.token == task.eos_id) {
        result.score = normalized_score(result.log_probability, length, options);
        continue;
      }
      result.tokens.push_back(next.token);
      tokens.push_back(next.token);
      keep.push_back(static_cast<int32_t>(row));
      still_live.push_back(live[row]);
    }
    if (keep.size() < live.size() && !keep.empty()) model.select(keep, keep);
    live = std::move(still_live);
  }
  return results;
}

std::vector<std::vector<Hypothesis>> beam_search(NextToken& model, const SearchTask& task,
                                                 const SearchOptions& options) {
  const int64_t beams = options.num_beams;
  check(beams >= 1 && options.n_best >= 1 && options.n_best <= beams, "beam_search",
        "expected 1 <= n_best <= num_beams, got n_best ", options.n_best, " and num_beams ", beams,
        '.');
  std::vector<std::vector<Hypothesis>> results(static_cast<size_t>(task.sentences));
  std::vector<Sentence> live;
  for (int64_t i = 0; i < task.sentences; ++i) {
    live.push_back({i, task.max_lengths[i], std::vector<std::vector<int32_t>>(beams), {}});
  }
  // All beams start alike, so all but the first are impossible.
  std::vector<double> scores(static_cast<size_t>(task.sentences * beams), kImpossible);
  for (int64_t i = 0; i < task.sentences; ++i) scores[i * beams] = 0;
  std::vector<int32_t> tokens(scores.size(), task.bos_id);

  for (int64_t length = 1; !live.empty(); ++length) {
    const Tensor logits = model.step(tokens);
    std::vector<char> at_limit;
    for (const Sentence& s : live) at_limit.push_back(length >= s.max_length);
    // Of 2k candidates at most k end in eos, so k remain to carry on.
    const auto best = best_of_rows(logits, task, scores, beams, at_limit, 2 * beams);

    std::vector<Sentence> still_live;
    std::vector<int32_t> kept_sentences, parents;
    std::vector<double> next_scores;
    tokens.clear();
    for (size_t i = 0; i < live.size(); ++i) {
      Sentence& sentence = live[i];
      std::vector<Candidate> candidates;
      for (int64_t beam = 0; beam < beams; ++beam) {
        const auto& row = best[i * beams + beam];
        candidates.insert(candidates.end(), row.begin(), row.end());
      }
      std::sort(candidates.begin(), candidates.end());

      std::vector<Candidate> next;
      for (size_t rank = 0; rank < candidates.size(); ++rank) {
        const Candidate& c = candidates[rank];
        if (c.token != task.eos_id) {
          if (static_cast<int64_t>(next.size()) < beams) next.push_back(c);
        } else if (static_cast<int64_t>(rank) < beams || at_limit[i]) {
          add_finished(sentence,
                       {sentence.histories[c.beam], c.log_probability,
                        normalized_score(c.log_probability, length, options)},
                       options.n_best);
        }
      }
      const double best_live = next.empty() ? kImpossible : next[0].log_probability;
      if (is_decided(sentence, best_live, length, options)) {
        results[sentence.index] = std::move(sentence.finished);
        continue;
      }
      std::vector<std::vector<int32_t>> histories;
      for (int64_t beam = 0; beam < beams; ++beam) {
        // Where the vocabulary offers fewer candidates than beams, the rest stay impossible.
        const bool real = beam < static_cast<int64_t>(next.size());
        const Candidate c = real ? next[beam] : Candidate{kImpossible, 0, task.bos_id};
        histories.push_back(sentence.histories[c.beam]);
        histories.back().push_back(c.token);
        parents.push_back(static_cast<int32_t>(i * beams) + c.beam);
        next_scores.push_back(c.log_probability);
        tokens.push_back(c.token);
      }
      sentence.histories = std::move(histories);
      kept_sentences.push_back(static_cast<int32_t>(i));
      still_live.push_back(std::move(sentence));
    }
    if (!still_live.empty()) model.select(kept_sentences, parents);
    live = std::move(still_live);
    scores = std::move(next_scores);
  }
  return results;
}

namespace {

class TransformerSteps : public NextToken {
 public:
  TransformerSteps(const EncoderDecoder& model, const Tensor& source, const Tensor& lengths)
      : model_(model), state_(model.start(source, lengths)), sentences_(lengths.numel()) {}

  Tensor step(const std::vector<int32_t>& tokens) override {
    return model_.step(
        Tensor::from(tokens, {static_cast<int64_t>(tokens.size())}, state_.memory_lengths.device()),
        state_);
  }

  void select(const std::vector<int32_t>& sentences, const std::vector<int32_t>& rows) override {
    const Tensor row_ids = ids(rows);
    if (static_cast<int64_t>(sentences.size()) == sentences_) {
      state_.select_rows(row_ids);  // nobody left: the memory stays where it is
    } else {
      state_.select(ids(sentences), row_ids);
    }
    sentences_ = static_cast<int64_t>(sentences.size());
  }

 private:
  Tensor ids(const std::vector<int32_t>& values) const {
    return Tensor::from(values, {static_cast<int64_t>(values.size())},
                        state_.memory_lengths.device());
  }

  const EncoderDecoder& model_;
  EncoderDecoder::State state_;
  int64_t sentences_;
};

}  // namespace

std::vector<std::vector<Hypothesis>> translate(const EncoderDecoder& model, const Tensor& source,
                                               const Tensor& source_lengths, const SpecialIds& ids,
                                               const SearchOptions& options) {
  SearchTask task;
  task.sentences = source.shape()[0];
  task.bos_id = ids.bos;
  task.eos_id = ids.eos;
  task.banned = {ids.pad, ids.unk, ids.bos};
  for (const int32_t length : source_lengths.to_vector<int32_t>()) {
    const auto limit = static_cast<int64_t>(std::ceil(options.max_length_ratio * length)) + 10;
    task.max_lengths.push_back(std::min(limit, model.options.max_position_embeddings));
  }
  TransformerSteps steps(model, source, source_lengths);
  if (options.num_beams > 1) return beam_search(steps, task, options);
  std::vector<std::vector<Hypothesis>> results;
  for (Hypothesis& hypothesis : greedy_search(steps, task, options)) {
    results.push_back({std::move(hypothesis)});
  }
  return results;
}

}  // namespace tapestry
