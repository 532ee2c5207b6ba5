// Translation with encoder-decoders of either kind, one or several together, and alignments from
// their attention.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "nn/decoding/decoding.h"
#include "nn/decoding/ensemble.h"
#include "nn/models/rnn_attention.h"
#include "nn/models/transformer.h"

namespace tapestry {

/// Ids of the target vocabulary that a search needs.
struct SearchIds {
  int32_t start = 2;  ///< the decoder's first token
  int32_t eos = 3;
  std::vector<int32_t> banned = {0, 1, 2};  ///< as in SearchTask
  std::vector<int32_t> more_ends = {};      ///< as in SearchTask
};

/// An encoder-decoder of either kind; it must outlive this.
using PairModel = std::variant<const EncoderDecoder*, const RnnAttention*>;

/// Models over one vocabulary whose probabilities are averaged.
struct PairModels {
  std::vector<PairModel> models;
  std::vector<double> weights = {};  ///< as in ensemble_of()
};

Device device_of(const PairModels& models);
/// Tokens that every one of them can read and write, eos included.
int64_t longest_sequence(const PairModels& models);

/// The most tokens, with eos, of the translation of a source with `source_tokens`, eos included:
/// max_new_tokens if set, else by max_length_ratio.
int64_t translation_limit(int64_t source_tokens, const SearchOptions& options);

/// The same, at most the model's `longest` sequence, with room for a prefix of `prefix` tokens and
/// eos, and as many more as `constraints` has. Throws Error(kData) if the model has no positions
/// for the prefix.
int64_t length_limit(int64_t source_tokens, int64_t prefix, const Phrases& constraints,
                     int64_t longest, const SearchOptions& options);

/// Sources of a search by their index in its task. Rows may be replaced while it runs, those of
/// sentences that it does not have.
struct SourceRows {
  std::vector<std::vector<int32_t>> rows = {};  ///< each ends with eos
  int32_t filler = 0;                           ///< id of padding
  Device device = {};
  const std::vector<std::vector<int32_t>>* chosen = nullptr;  ///< as in SearchTask
};
/// The models as a search sees them. Everything given must outlive the result.
std::unique_ptr<NextToken> translation_steps(const PairModels& models, const SourceRows& sources);

/// SearchTask::sources of a source: nothing if the penalty of `options` does not see it.
std::vector<int32_t> penalised_words(const PairModels& models, std::vector<int32_t> source,
                                     int32_t eos, const SearchOptions& options);

/// A batch to translate.
struct TranslationInput {
  Tensor source;   ///< (B, S) int32, each row ends with eos
  Tensor lengths;  ///< (B) int32
  SearchIds ids = {};
  std::vector<int64_t> sequence_ids = {};           ///< as in SearchTask
  std::vector<std::vector<int32_t>> prefixes = {};  ///< as in SearchTask
  std::vector<std::vector<int32_t>> chosen = {};    ///< as in SearchTask
  std::vector<Phrases> constraints = {};            ///< as in SearchTask
  TokenEdges edges = {};                            ///< as in SearchTask
  bool log_probabilities = true;                    ///< as in SearchTask
  bool token_log_probabilities = false;             ///< as in SearchTask
  int64_t sentences_at_once = 0;  ///< of each thread that translates, as in SearchTask
};

/// Called when a sentence is translated, from one thread at a time.
using TranslationDone = std::function<void(int64_t sentence, std::vector<Hypothesis> hypotheses)>;

/// The n best hypotheses of each sentence. With one vocabulary for both sides the repetition
/// penalty counts the source's tokens, but for eos. A prefix raises the limit of its sentence where
/// it would leave no room for eos, and phrases raise it by their tokens. Throws Error(kData) if the
/// model has no positions for a prefix.
std::vector<std::vector<Hypothesis>> translate(const PairModels& models,
                                               const TranslationInput& input,
                                               const SearchOptions& options);
void translate(const PairModels& models, const TranslationInput& input,
               const SearchOptions& options, const TranslationDone& done);

/// A batch of pairs.
struct PairInput {
  Tensor source;     ///< (B, S) int32, each row ends with eos
  Tensor lengths;    ///< (B) int32
  Tensor target_in;  ///< (B, T) int32: bos, y_1, ...
};

/// Of a decoder's layers, from 1: the last but one, whose attention is nearest to an alignment of
/// words (Garg et al. 2019), or the only one.
inline int64_t usual_alignment_layer(int64_t layers) { return layers > 1 ? layers - 1 : 1; }

/// logits (B, T, V) of y_1, y_2, ...
Var pair_logits(const PairModel& model, const PairInput& input);

/// The share of its attention that each place of the target gives to each token of the source: (B,
/// T, S) float64 in host memory, the mean over the heads; row t is the step that writes y_{t+1}.
/// `layer` counts the decoder's from 1; 0: the head that alignments guided, if the model has one,
/// else usual_alignment_layer(). A recurrent model has one layer with
/// attention. Throws Error(kConfig) if there is no such layer.
Tensor source_attention(const PairModel& model, const PairInput& input, int64_t layer);

}  // namespace tapestry
