// From next-token scores to sequences, on any model that gives them: greedy search, sampling with
// temperature, top-k and top-p, and beam search. Rules that change or forbid tokens are in
// logits_rules.h, random draws in sampling.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/enumerators.h"
#include "core/base/option_report.h"
#include "core/tensor.h"
#include "nn/decoding/constraints.h"

namespace tapestry {

enum class LengthPenalty {
  kNone,     ///< the log-probability itself
  kAverage,  ///< / t^a, t tokens with eos
  kGnmt,     ///< / ((5 + t) / 6)^a (Wu et al. 2016)
};

/// "none", "average", "gnmt".
constexpr const char* name_of(LengthPenalty penalty) {
  switch (penalty) {
    case LengthPenalty::kNone:
      return "none";
    case LengthPenalty::kAverage:
      return "average";
    case LengthPenalty::kGnmt:
      return "gnmt";
  }
  return nullptr;
}
inline constexpr auto kLengthPenalties = enumerators<LengthPenalty>();

/// When a beam search has enough of a sentence, once it has as many finished hypotheses as it
/// returns (kNever) or as it has beams.
enum class EarlyStopping {
  kTrue,   ///< at once
  kFalse,  ///< when the best live beam, if it ended here, would not be among them
  kNever,  ///< when no live beam can still win, however long it becomes
};

/// "true", "false", "never".
constexpr const char* name_of(EarlyStopping stopping) {
  switch (stopping) {
    case EarlyStopping::kTrue:
      return "true";
    case EarlyStopping::kFalse:
      return "false";
    case EarlyStopping::kNever:
      return "never";
  }
  return nullptr;
}
inline constexpr auto kEarlyStoppings = enumerators<EarlyStopping>();

/// What draws are compared by for the one of least risk (data/scores/draws/expected_scores.h): with
/// all of them at once, by their expected counts of n-grams, or with each.
enum class MbrUtility { kChrf, kBleu, kChrfPairs, kBleuPairs };

/// "chrf", "bleu", "chrf_pairs", "bleu_pairs".
constexpr const char* name_of(MbrUtility utility) {
  switch (utility) {
    case MbrUtility::kChrf:
      return "chrf";
    case MbrUtility::kBleu:
      return "bleu";
    case MbrUtility::kChrfPairs:
      return "chrf_pairs";
    case MbrUtility::kBleuPairs:
      return "bleu_pairs";
  }
  return nullptr;
}
inline constexpr auto kMbrUtilities = enumerators<MbrUtility>();

/// How the next token is chosen. Each step works on the logits in this order: penalties; bans
/// (SearchTask::banned, repeated n-grams, eos before min_new_tokens); for sampling also
/// temperature, top-k, top-p, min-p, epsilon and the draw. Every strategy reports and compares the
/// same log-probability: the log-softmax of the logits after the penalties. Bans, temperature,
/// top-k, top-p, min-p and epsilon affect only the choice of a token, not the reported
/// log-probability.
struct SearchOptions {
  static constexpr int64_t kMostBeams = 1024;
  // A model that never produces eos must stop somewhere, even if its positions have no end.
  static constexpr double kMostLengthRatio = 100;
  static constexpr int64_t kMostNewTokens = int64_t{1} << 24;

  int64_t num_beams = 5;  ///< 1: greedy search, or sampling
  int64_t n_best = 1;     ///< hypotheses to return, at most num_beams; with do_sample: draws
  double length_penalty = 1.0;
  LengthPenalty length_penalty_type = LengthPenalty::kAverage;
  EarlyStopping early_stopping = EarlyStopping::kFalse;  ///< of a beam search
  /// Translations have at most ratio * source tokens + 10 tokens. Of Multi30k's 29,000 pairs none
  /// exceeds 8 between pieces, and six where pieces of 8,000 become characters; 1.5 is exceeded by
  /// up to 3 % between pieces.
  double max_length_ratio = 8;

  bool do_sample = false;  ///< draws tokens; num_beams must be 1
  double temperature = 1;  ///< > 0; logits are divided by it
  int64_t top_k = 0;       ///< draws among the k most probable tokens; 0: among all
  double top_p = 1;        ///< in (0, 1]: draws from the nucleus of this mass; 1: from all
  double min_p = 0;        ///< in [0, 1): draws tokens of this share of the best one's probability
  double epsilon_cutoff = 0;  ///< in [0, 1): draws tokens of at least this probability

  double frequency_penalty = 0;      ///< logit -= penalty * its count in the generated tokens
  double presence_penalty = 0;       ///< logit -= penalty if it is among the generated tokens
  double repetition_penalty = 1;     ///< > 0; see apply_repetition_penalty()
  int64_t no_repeat_ngram_size = 0;  ///< no n-gram of the prompt and the output twice; 0: off
  int64_t max_repeat = 0;      ///< a unit of 1 to 8 tokens comes so many times in a row; 0: off
  int64_t min_new_tokens = 0;  ///< ends are banned until there are this many tokens before it
  /// The limit of generated tokens, with eos. 0: by max_length_ratio in translation, else by the
  /// model's positions.
  int64_t max_new_tokens = 0;
  uint64_t seed = 1;  ///< of the draws

  /// Of translations, which the program that calls the search does. Minimum Bayes risk: so many
  /// draws, of which the n_best are kept that are most similar to all; 0: no such choice.
  int64_t mbr_samples = 0;
  MbrUtility mbr_utility = MbrUtility::kChrf;
  std::string shortlist = {};    ///< file of a Lexicon (data/lexicon/lexicon.h), or ""
  int64_t shortlist_size = 100;  ///< as in Shortlist

  bool operator==(const SearchOptions&) const = default;

  /// Values outside the ranges above, and do_sample with beams.
  void validate(const OptionReport& report = OptionReport::throwing("search")) const;
};

struct Hypothesis {
  std::vector<int32_t> tokens;  ///< the generated ones, without eos or another end
  double log_probability = 0;   ///< of the tokens and, if it came, the end
  double score = 0;     ///< log_probability with the length penalty; hypotheses compete by it
  bool has_eos = true;  ///< false: the limit or a hook ended it
  /// The limit put eos there (SearchTask::force_eos), although the model would have gone on.
  bool cut = false;
  /// The phrases of SearchTask::constraints that it lacks, by their numbers: the limit ended it.
  std::vector<size_t> unmet = {};
  /// With SearchTask::token_log_probabilities: the log-probability of each token and of eos, if it
  /// came. Their sum is log_probability.
  std::vector<double> token_log_probabilities = {};
};

/// A sentence that joins a search.
struct NewSentence {
  int64_t index;                    ///< in the task
  std::span<const int32_t> prompt;  ///< never empty; its last token is the first that is fed
};

/// The model as the search sees it: rows, each with a history of its own.
class NextToken {
 public:
  virtual ~NextToken() = default;
  /// A row for each sentence behind the rows that are there. Its history is the prompt without the
  /// last token, which the next step feeds.
  virtual void add(const std::vector<NewSentence>& sentences) = 0;
  /// Appends a token to each of the R rows, and returns the logits (R, V) of the one after it.
  virtual Tensor step(const std::vector<int32_t>& tokens) = 0;
  /// As step(), but finds only the `count` best tokens of each row that are not banned: (R, 1 + 2 *
  /// count) float64 in host memory, as top_logits() gives them (core/kernels/top_logits.h). A model
  /// that cannot do so appends nothing and returns an undefined tensor.
  virtual Tensor best(const std::vector<int32_t>& /*tokens*/, int64_t /*count*/,
                      const std::vector<int32_t>& /*banned*/) {
    return {};
  }
  /// Only the first token of best(): (R) int32 in host memory, with kNoToken if all are banned and
  /// kNotFinite if logits are not finite (core/kernels/packed/packed_top_logits.h). A model without
  /// a faster way appends nothing and returns an undefined tensor.
  virtual Tensor largest(const std::vector<int32_t>& /*tokens*/,
                         const std::vector<int32_t>& /*banned*/) {
    return {};
  }
  /// New row i is old row rows[i].
  virtual void select(const std::vector<int32_t>& rows) = 0;
};

struct SearchTask {
  int64_t sentences = 1;
  /// The most that are searched at once. When some are done, the next ones join. 0: all.
  int64_t sentences_at_once = 0;
  int32_t bos_id = 2;
  int32_t eos_id = 3;
  std::vector<int32_t> more_ends = {};    ///< other tokens that end a sequence as eos does
  std::vector<int32_t> banned = {};       ///< never generated: padding, bos, unknown
  std::vector<int64_t> max_lengths = {};  ///< per sentence, >= 1: generated tokens with eos
  /// Per sentence, the tokens that the decoder reads before it generates; none: only bos.
  std::vector<std::vector<int32_t>> prompts = {};
  /// Per sentence, the tokens that its output must begin with, shorter than its limit; none: no
  /// output is forced. They count as generated tokens in everything: the log-probability, the
  /// limits, the penalties. Bans do not concern them.
  std::vector<std::vector<int32_t>> prefixes = {};
  /// Per sentence, the tokens that it may generate, ascending, with eos and those of its prefix;
  /// none: each may generate all. The others have probability 0, as if the model had them not.
  std::vector<std::vector<int32_t>> chosen = {};
  /// Per sentence, the phrases that its output must contain, as ConstraintTracker says; none: none.
  /// An output may end only with all of them, unless the limit ends it. The search of a sentence
  /// that has phrases is a beam search, also beside greedy ones; nothing is drawn.
  std::vector<Phrases> constraints = {};
  TokenEdges edges = {};  ///< of the vocabulary, for these phrases
  /// Per sentence, the tokens of an encoder's input over the same vocabulary; none: the repetition
  /// penalty sees only what the decoder reads.
  std::vector<std::vector<int32_t>> sources = {};
  /// Per sentence, a number that decides its draws; none: 0, 1, ... Numbered through the whole
  /// input, a sentence gets the same draws in batches of any size and order.
  std::vector<int64_t> sequence_ids = {};
  /// Per sentence, the seed of its draws; none: SearchOptions::seed.
  std::vector<uint64_t> seeds = {};
  /// Answers to each sentence, which a queue numbers sentence * draws + 0, 1, ...: each has draws
  /// of its own, and the first has those of a sentence with one answer.
  int64_t draws = 1;
  /// true: at the length limit only eos may follow (translation). false: any token may be the last,
  /// and the hypothesis ends without eos (open-ended generation).
  bool force_eos = true;
  /// false: the caller does not read them, and a greedy search may skip them if that is faster
  bool log_probabilities = true;
  bool token_log_probabilities = false;  ///< fill Hypothesis::token_log_probabilities

  bool is_end(int32_t token) const {
    return token == eos_id || std::ranges::find(more_ends, token) != more_ends.end();
  }
};

struct GenerationHooks {
  /// Called on the calling thread after each generated token except eos, with the sentence's index
  /// in the task and its generated tokens. Returning true ends that sentence (stop strings).
  std::function<bool(int64_t sentence, const std::vector<int32_t>& generated)> on_token = {};
};

/// The source of a search's sentences, and the function that receives finished ones; several
/// searches may share one task.
struct SearchQueue {
  /// The next sentences, at most `most` >= 1 of them; none: there are none now. The search asks
  /// before each step that has places for them, and ends if it has no sentence then. The function
  /// may replace what the task says of a sentence that is done, and give its index again.
  std::function<std::vector<int64_t>(int64_t most)> next;
  std::function<void(int64_t sentence, std::vector<Hypothesis> hypotheses)> done;
};

/// One sequence per sentence. Greedy search: always the most probable token, the lowest id on a
/// tie. Sampling (do_sample): a token drawn from softmax(logits / temperature), cut to top-k and
/// top-p; the draw depends on the seed, the sentence's sequence id and the number of tokens it has,
/// not on batch or threads. Stops at eos, at the limit, or when the hook returns true. If bans
/// leave no token, eos follows. Ignores num_beams. Throws as validate() does, and Error(kRuntime)
/// if the parts of the task do not fit together or logits are not finite.
std::vector<Hypothesis> generate(NextToken& model, const SearchTask& task,
                                 const SearchOptions& options, const GenerationHooks& hooks = {});
void generate(NextToken& model, const SearchTask& task, const SearchOptions& options,
              const GenerationHooks& hooks, const SearchQueue& queue);

/// Beam search: finished hypotheses compete by normalised score, until early_stopping ends it or
/// no beam is left. Returns the n best of each sentence, best first. Ties go to the lower
/// beam, then the lower id. With constraints the beams are shared out among the numbers of tokens
/// of phrases that they have (dynamic beam allocation: Post and Vilar 2018; Hu et al. 2019). Rules
/// apply to each beam's own history. Limits, bans and errors are those of generate(). Throws if
/// do_sample is set.
std::vector<std::vector<Hypothesis>> beam_search(NextToken& model, const SearchTask& task,
                                                 const SearchOptions& options);
void beam_search(NextToken& model, const SearchTask& task, const SearchOptions& options,
                 const SearchQueue& queue);

/// beam_search() if `options` have several beams, else generate(). Returns the hypotheses of each
/// sentence, best first.
std::vector<std::vector<Hypothesis>> search(NextToken& model, const SearchTask& task,
                                            const SearchOptions& options);

/// Number of sentences that each search of search_together() takes when there are `rows` in all.
int64_t rows_of_a_search(int64_t rows, Device device);

/// The same by up to num_threads() searches at once, each on a thread and a model of its own, which
/// share the sentences of the task: on a CPU that is faster than sharing each step. With do_sample
/// n_best answers are drawn for each sentence. Calls `done` and the hooks from one thread at a
/// time. A single search runs on the calling thread.
void search_together(const std::function<std::unique_ptr<NextToken>()>& model,
                     const SearchTask& task, const SearchOptions& options,
                     const GenerationHooks& hooks,
                     const std::function<void(int64_t, std::vector<Hypothesis>)>& done,
                     Device device = {});

/// The most tokens, with eos, that may follow a prompt: max_new_tokens if set, else the room that
/// is left in the `positions` of the training (the last token is never fed). Throws Error(kData) if
/// the prompt is longer than the `longest` sequence that the model can read, or if it leaves no
/// room and max_new_tokens is not set.
int64_t generation_limit(int64_t prompt_tokens, int64_t positions, int64_t longest,
                         const SearchOptions& options);

/// log_probability with the length penalty for `length` tokens (with eos, if it came).
double normalized_score(double log_probability, int64_t length, const SearchOptions& options);

}  // namespace tapestry
