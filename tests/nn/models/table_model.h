// A model that is a random table over whole histories, and plain searches on it: every sequence,
// beam search without early stops, greedy search and sampling of one sentence, with all rules. They
// share nothing with nn/ but normalized_score() and the uniform numbers.
#pragma once

#include "nn/decoding/decoding.h"
#include "nn/decoding/sampling.h"
#include "tests/autograd/support.h"

namespace tapestry::test {

inline constexpr int32_t kPad = 0, kUnk = 1, kBos = 2, kEos = 3;
inline constexpr int64_t kTableVocab = 7;  // and three words

using Tokens = std::vector<int32_t>;

// Logits of the next token after a history: random, but always the same for a history. The sentence
// is part of the key, so that a search which mixes up sentences fails.
class Table {
 public:
  explicit Table(uint64_t seed, double spread = 2, DType dtype = DType::kFloat64)
      : seed_(seed), spread_(spread), dtype_(dtype) {}

  std::vector<double> logits(int32_t sentence, const Tokens& history) const {
    uint64_t key = seed_ * 1000003 + static_cast<uint64_t>(sentence);
    for (const int32_t token : history) key = key * 0x9E3779B97F4A7C15u + token + 1;
    std::vector<double> z;
    for (int64_t v = 0; v < kTableVocab; ++v)
      z.push_back(spread_ * philox_normal({.seed = key}, v));
    if (dtype_ == DType::kFloat32) {
      for (double& value : z) value = static_cast<float>(value);
    }
    return z;
  }
  DType dtype() const { return dtype_; }

 private:
  uint64_t seed_;
  double spread_;
  DType dtype_;
};

// The table as the search sees it.
class TableModel : public NextToken {
 public:
  /// `alike`: every sentence is sentence 0 of the table.
  explicit TableModel(const Table& table, bool alike = false) : table_(table), alike_(alike) {}

  void add(const std::vector<NewSentence>& sentences) override {
    EXPECT_FALSE(sentences.empty());
    for (const NewSentence& s : sentences) {
      EXPECT_FALSE(s.prompt.empty());
      rows_.push_back({alike_ ? 0 : static_cast<int32_t>(s.index),
                       Tokens(s.prompt.begin(), s.prompt.end() - 1)});
      ++joined;
    }
    most_rows = std::max(most_rows, rows_.size());
  }

  Tensor step(const std::vector<int32_t>& tokens) override {
    ++steps;
    EXPECT_EQ(tokens.size(), rows_.size());
    std::vector<double> all;
    for (size_t i = 0; i < rows_.size(); ++i) {
      rows_[i].history.push_back(tokens[i]);
      const auto z = table_.logits(rows_[i].sentence, rows_[i].history);
      all.insert(all.end(), z.begin(), z.end());
    }
    return Tensor::from<double>(all, {static_cast<int64_t>(rows_.size()), kTableVocab})
        .to(table_.dtype());
  }

  void select(const std::vector<int32_t>& rows) override {
    std::vector<Row> next;
    for (const int32_t row : rows) next.push_back(rows_.at(static_cast<size_t>(row)));
    rows_ = std::move(next);
    most_rows = std::max(most_rows, rows_.size());
  }

  int64_t rows() const { return std::ssize(rows_); }
  int steps = 0;
  int joined = 0;  ///< sentences
  size_t most_rows = 0;

 private:
  struct Row {
    int32_t sentence;
    Tokens history;
  };
  const Table& table_;
  bool alike_;
  std::vector<Row> rows_;
};

inline SearchTask task_of(std::vector<int64_t> max_lengths) {
  return {.sentences = static_cast<int64_t>(max_lengths.size()),
          .bos_id = kBos,
          .eos_id = kEos,
          .banned = {kPad, kUnk, kBos},
          .max_lengths = std::move(max_lengths)};
}

/// One sentence to search.
struct Question {
  const Table& table;
  int32_t sentence;
  int64_t max_length;
  Tokens prompt = {kBos};
  bool force_eos = true;
  Tokens prefix = {};  ///< that the output must begin with
  Tokens source = {};  ///< that the repetition penalty counts
  Tokens more_ends = {};

  bool is_end(int32_t token) const {
    return token == kEos || std::count(more_ends.begin(), more_ends.end(), token) > 0;
  }
};

/// How often the unit of 1 to 8 tokens that ends the list comes in a row there, at most.
inline int64_t most_in_a_row(const Tokens& tokens) {
  int64_t most = 0;
  for (int64_t unit = 1; unit <= std::min<int64_t>(8, std::ssize(tokens)); ++unit) {
    const Tokens last(tokens.end() - unit, tokens.end());
    int64_t times = 0;
    for (int64_t end = std::ssize(tokens); end >= unit; end -= unit, ++times) {
      if (Tokens(tokens.begin() + end - unit, tokens.begin() + end) != last) break;
    }
    most = std::max(most, times);
  }
  return most;
}

/// The possible next tokens, by the rules of nn/decoding/decoding.h.
struct Choices {
  std::vector<double> logits, log_probabilities;  ///< after the penalties
  Tokens allowed;                                 ///< after the bans, in the order of ids
};

inline Choices choices(const Question& q, const Tokens& generated, const SearchOptions& options) {
  Tokens sequence = q.prompt;
  sequence.insert(sequence.end(), generated.begin(), generated.end());
  Choices result{q.table.logits(q.sentence, sequence), {}, {}};
  const auto n = static_cast<size_t>(options.no_repeat_ngram_size);
  double total = 0;
  for (int32_t v = 0; v < kTableVocab; ++v) {
    double& z = result.logits[v];
    const auto count = std::count(generated.begin(), generated.end(), v);
    z -= options.frequency_penalty * static_cast<double>(count);
    if (count > 0) z -= options.presence_penalty;
    if (std::count(sequence.begin(), sequence.end(), v) > 0 ||
        std::count(q.source.begin(), q.source.end(), v) > 0) {
      z = z > 0 ? z / options.repetition_penalty : z * options.repetition_penalty;
    }
    total += std::exp(z);
    bool allowed = v >= kEos && !(q.is_end(v) && std::ssize(generated) < options.min_new_tokens);
    for (size_t i = 0; n > 0 && i + n <= sequence.size(); ++i) {
      Tokens gram(sequence.end() - std::min(n - 1, sequence.size()), sequence.end());
      gram.push_back(v);
      if (gram == Tokens(sequence.begin() + i, sequence.begin() + i + n)) allowed = false;
    }
    Tokens longer = generated;
    longer.push_back(v);
    if (options.max_repeat > 0 && most_in_a_row(longer) > options.max_repeat) allowed = false;
    if (allowed) result.allowed.push_back(v);
  }
  for (const double z : result.logits) result.log_probabilities.push_back(z - std::log(total));
  const bool at_limit = std::ssize(generated) + 1 >= q.max_length;
  if (result.allowed.empty() || (at_limit && q.force_eos)) result.allowed = {kEos};
  if (generated.size() < q.prefix.size()) result.allowed = {q.prefix[generated.size()]};
  return result;
}

/// The hypothesis that ends with `token`.
inline Hypothesis ended(const Question& q, Tokens generated, int32_t token, double log_probability,
                        const SearchOptions& options) {
  const auto length = static_cast<int64_t>(generated.size()) + 1;
  if (!q.is_end(token)) generated.push_back(token);
  return {std::move(generated), log_probability, normalized_score(log_probability, length, options),
          q.is_end(token)};
}

/// Every sequence within the limit.
inline void enumerate(const Question& q, const Tokens& generated, double log_probability,
                      const SearchOptions& options, std::vector<Hypothesis>& all) {
  const Choices next = choices(q, generated, options);
  for (const int32_t token : next.allowed) {
    const double total = log_probability + next.log_probabilities[token];
    if (q.is_end(token) || std::ssize(generated) + 1 == q.max_length) {
      all.push_back(ended(q, generated, token, total, options));
    } else {
      Tokens longer = generated;
      longer.push_back(token);
      enumerate(q, longer, total, options, all);
    }
  }
}

/// The n best of every sequence, best score first.
inline std::vector<Hypothesis> exhaustive(const Question& q, const SearchOptions& options) {
  std::vector<Hypothesis> all;
  enumerate(q, {}, 0, options, all);
  std::sort(all.begin(), all.end(),
            [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  all.resize(std::min(all.size(), static_cast<size_t>(options.n_best)));
  return all;
}

/// Textbook beam search: each round keeps the k most probable continuations; those among the k best
/// of all that end in eos are finished. early_stopping: never searches to the end; the others stop
/// when k are finished, false only if the best live one has no better score than the worst of them.
inline std::vector<Hypothesis> plain_beam_search(const Question& q, const SearchOptions& options) {
  struct Beam {
    Tokens generated;
    double log_probability;
  };
  struct Extension {
    size_t beam;
    int32_t token;
    double log_probability;
  };
  const auto k = static_cast<size_t>(options.num_beams);
  std::vector<Beam> beams = {{{}, 0}};
  std::vector<Hypothesis> finished;
  for (int64_t length = 1; length <= q.max_length; ++length) {
    std::vector<Extension> extensions;
    for (size_t b = 0; b < beams.size(); ++b) {
      const Choices next = choices(q, beams[b].generated, options);
      for (const int32_t token : next.allowed) {
        extensions.push_back({b, token, beams[b].log_probability + next.log_probabilities[token]});
      }
    }
    std::stable_sort(extensions.begin(), extensions.end(), [](const auto& x, const auto& y) {
      return x.log_probability > y.log_probability;
    });
    std::vector<Beam> survivors;
    for (size_t rank = 0; rank < extensions.size(); ++rank) {
      const Extension& e = extensions[rank];
      if (length == q.max_length || (q.is_end(e.token) && rank < k)) {
        finished.push_back(ended(q, beams[e.beam].generated, e.token, e.log_probability, options));
      } else if (!q.is_end(e.token) && survivors.size() < k) {
        survivors.push_back({beams[e.beam].generated, e.log_probability});
        survivors.back().generated.push_back(e.token);
      }
    }
    beams = std::move(survivors);
    std::stable_sort(finished.begin(), finished.end(),
                     [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    if (options.early_stopping == EarlyStopping::kNever || finished.size() < k) continue;
    if (options.early_stopping == EarlyStopping::kTrue || beams.empty()) break;
    if (finished[k - 1].score >= normalized_score(beams[0].log_probability, length, options)) break;
  }
  finished.resize(std::min(finished.size(), static_cast<size_t>(options.n_best)));
  return finished;
}

/// The distribution that a token is drawn from, by sorting: temperature, top-k, top-p, min-p,
/// epsilon.
inline std::vector<double> distribution(const Choices& next, const SearchOptions& options) {
  Tokens order = next.allowed;
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return next.logits[a] > next.logits[b]; });
  if (options.top_k > 0 && options.top_k < std::ssize(order)) order.resize(options.top_k);
  std::vector<double> p(next.logits.size());
  const auto normalise = [&] {
    double total = 0;
    for (const int32_t token : order) {
      total += p[token] = std::exp(next.logits[token] / options.temperature);
    }
    for (double& value : p) value /= total;
  };
  normalise();
  double mass = 0;
  size_t nucleus = 0;
  while (nucleus < order.size() && mass < options.top_p) mass += p[order[nucleus++]];
  order.resize(nucleus);
  const double least = options.min_p * p[order[0]];
  std::erase_if(order, [&](int32_t token) { return p[token] < least; });
  std::fill(p.begin(), p.end(), 0);
  normalise();
  const int32_t best = order[0];
  std::erase_if(order,
                [&](int32_t token) { return token != best && p[token] < options.epsilon_cutoff; });
  std::fill(p.begin(), p.end(), 0);
  normalise();
  return p;
}

/// Greedy search or sampling of one sentence, whose sequence id is `id`.
inline Hypothesis plain_generate(const Question& q, const SearchOptions& options, int64_t id = 0) {
  Tokens generated;
  double log_probability = 0;
  for (;;) {
    const Choices next = choices(q, generated, options);
    int32_t token = next.allowed.at(0);
    if (options.do_sample) {
      const double u = sampling_uniform(options.seed, id, std::ssize(generated));
      const std::vector<double> p = distribution(next, options);
      double cumulative = 0;
      for (const int32_t candidate : next.allowed) {
        if (p[candidate] > 0 && cumulative <= u) token = candidate;
        cumulative += p[candidate];
      }
    } else {
      for (const int32_t other : next.allowed) {
        if (next.logits[other] > next.logits[token]) token = other;
      }
    }
    log_probability += next.log_probabilities[token];
    if (q.is_end(token) || std::ssize(generated) + 1 >= q.max_length) {
      return ended(q, generated, token, log_probability, options);
    }
    generated.push_back(token);
  }
}

inline void expect_same(const std::vector<Hypothesis>& actual,
                        const std::vector<Hypothesis>& expected, double tolerance = 1e-12) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].tokens, expected[i].tokens) << "hypothesis " << i;
    EXPECT_NEAR(actual[i].log_probability, expected[i].log_probability, tolerance);
    EXPECT_NEAR(actual[i].score, expected[i].score, tolerance);
    EXPECT_EQ(actual[i].has_eos, expected[i].has_eos);
  }
}

}  // namespace tapestry::test
