// Search for the most probable output sequences, on any model that scores the next token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace tapestry {

struct EncoderDecoder;

enum class LengthPenalty {
  kNone,     ///< the log-probability itself
  kAverage,  ///< / t^a, t tokens with eos (document 001, Beam Search)
  kGnmt,     ///< / ((5 + t) / 6)^a (Wu et al. 2016)
};

/// "none", "average", "gnmt". Throws Error(kConfig) on anything else.
LengthPenalty parse_length_penalty(const std::string& name);

struct SearchOptions {
  int64_t num_beams = 5;  ///< 1: greedy search
  int64_t n_best = 1;     ///< hypotheses to return, at most num_beams
  double length_penalty = 1.0;
  LengthPenalty length_penalty_type = LengthPenalty::kAverage;
  double max_length_ratio = 1.5;  ///< longest output: ratio * source tokens + 10
};

struct Hypothesis {
  std::vector<int32_t> tokens;  ///< without bos and eos
  double log_probability = 0;   ///< of the tokens and eos
  double score = 0;             ///< log_probability with the length penalty: what is compared
};

/// The model as the search sees it: R = sentences * beams rows, each with its own history.
class NextToken {
 public:
  virtual ~NextToken() = default;
  /// Appends one token to each row and returns logits (R, V) of the next one.
  virtual Tensor step(const std::vector<int32_t>& tokens) = 0;
  /// Sentence i becomes what sentences[i] was, row i what row rows[i] was.
  virtual void select(const std::vector<int32_t>& sentences, const std::vector<int32_t>& rows) = 0;
};

struct SearchTask {
  int64_t sentences = 1;
  int32_t bos_id = 2;
  int32_t eos_id = 3;
  std::vector<int32_t> banned;       ///< never generated: padding, bos, unknown
  std::vector<int64_t> max_lengths;  ///< per sentence, tokens with eos
};

/// Always the most probable token, the lowest id on a tie; stops at eos.
std::vector<Hypothesis> greedy_search(NextToken& model, const SearchTask& task,
                                      const SearchOptions& options);

/// Beam search: finished hypotheses compete by normalised score, and a sentence is done when no
/// live beam can still win. Returns the n best of each sentence, best first. Ties go to the lower
/// beam, then the lower id. At the length limit only eos may follow.
std::vector<std::vector<Hypothesis>> beam_search(NextToken& model, const SearchTask& task,
                                                 const SearchOptions& options);

/// log_probability with the length penalty for `length` tokens (eos included).
double normalized_score(double log_probability, int64_t length, const SearchOptions& options);

/// Special ids of the target vocabulary.
struct SpecialIds {
  int32_t pad = 0, unk = 1, bos = 2, eos = 3;
};

/// Translates a batch: source (B, S) int32, lengths (B) -> the n best hypotheses of each sentence.
std::vector<std::vector<Hypothesis>> translate(const EncoderDecoder& model, const Tensor& source,
                                               const Tensor& source_lengths, const SpecialIds& ids,
                                               const SearchOptions& options);

}  // namespace tapestry
