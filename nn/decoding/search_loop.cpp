#include "nn/decoding/search_loop.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

#include "core/base/error.h"
#include "core/cpu/parallel.h"

namespace tapestry {
namespace {

int64_t answers_of(const SearchTask& task) { return task.sentences * task.draws; }

// All answers of a task, in their order.
SearchQueue queue_of_all(const SearchTask& task, std::atomic<int64_t>& first) {
  const auto next = [&](int64_t most) {
    std::vector<int64_t> indices;
    const int64_t begin = first.fetch_add(most);
    for (int64_t i = begin; i < std::min(begin + most, answers_of(task)); ++i) indices.push_back(i);
    return indices;
  };
  return {.next = next, .done = {}};
}

class Loop {
 public:
  Loop(NextToken& model, const SearchTask& task, const SearchOptions& options, size_t count,
       const SearchQueue& queue, const Advance& advance)
      : model_(model),
        task_(task),
        options_(options),
        count_(count),
        queue_(queue),
        advance_(advance),
        prompts_(task),
        most_(task.sentences_at_once > 0 ? task.sentences_at_once
                                         : std::max<int64_t>(1, answers_of(task))) {}

  void run() {
    for (join(); !live_.empty(); join()) {
      std::vector<SearchRow> rows;
      for (const LiveSentence& s : live_) {
        for (size_t b = 0; b < s.beams.size(); ++b) rows.push_back(row_of(s, b));
      }
      const size_t count = candidates_of_step();
      if (!find_best(model_, tokens_, rows, task_, options_, count, candidates_)) {
        find_candidates(model_.step(tokens_), rows, task_, options_, count, candidates_);
      }
      go_on();
    }
  }

 private:
  // Few at a time would each read the model's weights for themselves, so places are kept free until
  // a quarter is.
  void join() {
    const int64_t free = most_ - std::ssize(live_);
    if (!live_.empty() && 4 * free < most_) return;
    const std::vector<int64_t> indices = queue_.next(free);
    if (indices.empty()) return;
    std::vector<NewSentence> fresh;
    for (const int64_t i : indices) {
      const std::span<const int32_t> prompt = prompts_[i];
      fresh.push_back({i / task_.draws, prompt});
      tokens_.push_back(prompt.back());
      live_.push_back({i, prompts_.max_length(i), {{{}, 0}}});
      if (task_.constraints.empty()) continue;
      const Phrases& phrases = task_.constraints[static_cast<size_t>(i / task_.draws)];
      if (!phrases.empty()) live_.back().beams[0].constraints.emplace(phrases, task_.edges);
    }
    model_.add(fresh);
  }

  SearchRow row_of(const LiveSentence& s, size_t beam) const {
    const Beam& b = s.beams[beam];
    return {.context = {prompts_[s.index], b.generated, prompts_.source(s.index)},
            .log_probability = b.log_probability,
            .beam = static_cast<int32_t>(beam),
            .sequence_id = prompts_.sequence_id(s.index),
            .seed = prompts_.seed(s.index),
            .only = prompts_.only(s.index, std::ssize(b.generated) + 1),
            .chosen = prompts_.chosen(s.index),
            .wanted = b.constraints ? b.constraints->next() : std::vector<int32_t>()};
  }

  // Behind a phrase the best tokens may go on with its last word, so that one needs more.
  size_t candidates_of_step() const {
    constexpr int64_t kBeams = 4;
    const bool constrained = std::ranges::any_of(live_, &LiveSentence::has_constraints);
    return constrained ? std::max(count_, candidates_of_beams(task_, kBeams)) : count_;
  }

  // Each sentence chooses among the candidates of its rows, and the rows of the model follow.
  void go_on() {
    std::vector<LiveSentence> still_live;
    std::vector<int32_t> parents;
    int32_t first_row = 0;
    tokens_.clear();
    for (LiveSentence& sentence : live_) {
      const size_t beams = sentence.beams.size();
      const auto candidates = std::span(candidates_).subspan(static_cast<size_t>(first_row), beams);
      const int64_t length = std::ssize(sentence.beams[0].generated) + 1;
      const std::vector<Candidate> next = advance_(sentence, candidates, length);
      for (const Candidate& c : next) {
        parents.push_back(first_row + c.beam);
        tokens_.push_back(c.token);
      }
      first_row += static_cast<int32_t>(beams);
      if (next.empty()) {
        queue_.done(sentence.index, std::move(sentence.finished));
      } else {
        follow(sentence, next);
        still_live.push_back(std::move(sentence));
      }
    }
    live_ = std::move(still_live);
    bool same = std::ssize(parents) == first_row;
    for (size_t i = 0; same && i < parents.size(); ++i) {
      same = parents[i] == static_cast<int32_t>(i);
    }
    if (!same) model_.select(parents);
  }

  // Replaces the beams by those of the candidates.
  void follow(LiveSentence& sentence, const std::vector<Candidate>& next) const {
    std::vector<Beam> beams;
    for (const Candidate& c : next) {
      const Beam& parent = sentence.beams[static_cast<size_t>(c.beam)];
      beams.push_back(
          {parent.generated, c.log_probability, token_log_probabilities(parent, c, task_)});
      beams.back().generated.push_back(c.token);
      beams.back().constraints = parent.constraints;
      if (parent.constraints) beams.back().constraints->add(c.token);
    }
    sentence.beams = std::move(beams);
  }

  NextToken& model_;
  const SearchTask& task_;
  const SearchOptions& options_;
  size_t count_;
  const SearchQueue& queue_;
  const Advance& advance_;
  Prompts prompts_;
  int64_t most_;
  std::vector<LiveSentence> live_;
  std::vector<int32_t> tokens_;  // that the next step feeds
  std::vector<std::vector<Candidate>> candidates_;
};

// The draws of each sentence, until it has all.
class Drawn {
 public:
  explicit Drawn(const SearchTask& task)
      : draws_(task.draws), all_(task.draws > 1 ? static_cast<size_t>(task.sentences) : 0) {}

  // Takes an answer. Returns true once its sentence has all of them; `hypotheses` then holds them,
  // best first, whichever finished first.
  bool add(int64_t answer, std::vector<Hypothesis>& hypotheses) {
    Sentence& sentence = all_[static_cast<size_t>(answer / draws_)];
    sentence.hypotheses.resize(static_cast<size_t>(draws_));
    sentence.hypotheses[static_cast<size_t>(answer % draws_)] = std::move(hypotheses.at(0));
    if (++sentence.done < draws_) return false;
    hypotheses = std::move(sentence.hypotheses);
    std::ranges::stable_sort(hypotheses, std::greater(), &Hypothesis::score);
    return true;
  }

 private:
  struct Sentence {
    std::vector<Hypothesis> hypotheses;
    int64_t done = 0;
  };

  const int64_t draws_;
  std::vector<Sentence> all_;
};

}  // namespace

void run_search(NextToken& model, const SearchTask& task, const SearchOptions& options,
                size_t count, const SearchQueue& queue, const Advance& advance) {
  Loop(model, task, options, count, queue, advance).run();
}

std::vector<std::vector<Hypothesis>> collect(
    const SearchTask& task, const std::function<void(const SearchQueue&)>& search) {
  std::vector<std::vector<Hypothesis>> results(static_cast<size_t>(answers_of(task)));
  std::atomic<int64_t> first{0};
  SearchQueue queue = queue_of_all(task, first);
  queue.done = [&](int64_t index, std::vector<Hypothesis> hypotheses) {
    results[static_cast<size_t>(index)] = std::move(hypotheses);
  };
  search(queue);
  return results;
}

int64_t rows_of_a_search(int64_t rows, Device device) {
  const int64_t searches = device.is_cpu() ? num_threads() : 1;
  return (rows + searches - 1) / searches;
}

void search_together(const std::function<std::unique_ptr<NextToken>()>& model,
                     const SearchTask& task, const SearchOptions& options,
                     const GenerationHooks& hooks,
                     const std::function<void(int64_t, std::vector<Hypothesis>)>& done,
                     Device device) {
  SearchTask shared = task;
  const int64_t draws = shared.draws = options.do_sample ? options.n_best : 1;
  const int64_t answers = answers_of(shared);
  const int64_t searches = device.is_cpu() ? std::min<int64_t>(num_threads(), answers) : 1;
  if (searches == 0) return;
  // No search takes sentences that another one could search at once.
  const int64_t share = (answers + searches - 1) / searches;
  if (task.sentences_at_once == 0 || task.sentences_at_once > share) {
    shared.sentences_at_once = share;
  }
  std::mutex mutex;
  std::atomic<int64_t> first{0};
  SearchQueue queue = queue_of_all(shared, first);
  Drawn drawn(shared);
  queue.done = [&](int64_t answer, std::vector<Hypothesis> hypotheses) {
    const std::lock_guard lock(mutex);
    if (draws > 1 && !drawn.add(answer, hypotheses)) return;
    done(answer / draws, std::move(hypotheses));
  };
  GenerationHooks one_at_a_time;
  if (hooks.on_token) {
    one_at_a_time.on_token = [&](int64_t answer, const std::vector<int32_t>& generated) {
      const std::lock_guard lock(mutex);
      return hooks.on_token(answer / draws, generated);
    };
  }
  const auto one = [&](int64_t) {
    try {
      const std::unique_ptr<NextToken> own = model();
      if (options.num_beams > 1) {
        beam_search(*own, shared, options, queue);
      } else {
        generate(*own, shared, options, one_at_a_time, queue);
      }
    } catch (...) {
      first = answers;  // nothing is left for the others
      throw;
    }
  };
  parallel_for(searches, one);
}

std::vector<double> token_log_probabilities(const Beam& beam, const Candidate& next,
                                            const SearchTask& task) {
  if (!task.token_log_probabilities) return {};
  std::vector<double> values = beam.token_log_probabilities;
  values.push_back(next.log_probability - beam.log_probability);
  return values;
}

Hypothesis hypothesis_of(const Beam& beam, const Candidate& last, int64_t length,
                         const SearchTask& task, const SearchOptions& options) {
  Hypothesis hypothesis{.tokens = beam.generated,
                        .log_probability = last.log_probability,
                        .score = normalized_score(last.log_probability, length, options),
                        .has_eos = task.is_end(last.token),
                        .cut = last.forced && task.is_end(last.token)};
  if (!hypothesis.has_eos) hypothesis.tokens.push_back(last.token);
  hypothesis.token_log_probabilities = token_log_probabilities(beam, last, task);
  return hypothesis;
}

}  // namespace tapestry
