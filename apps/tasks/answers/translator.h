// Translation with trained models: one, or several that answer together.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/checkpoint/model_choice.h"
#include "apps/tasks/task.h"
#include "data/lexicon/shortlist.h"
#include "nn/models/translate.h"

namespace tapestry {

struct Sentences;

/// Trained encoder-decoders of either kind, over one vocabulary.
class Translator {
 public:
  /// Languages that are "" are the first model's. Throws Error(kConfig) for weights that do not fit
  /// or languages that are unknown, and as read_model_files() and
  /// ModelBundle::load().
  Translator(const ModelChoice& choice, const std::string& device, const std::string& who,
             Ability ability, const LanguageOptions& languages = {});

  const PairModels& models() const { return models_; }
  /// The first model's.
  const Config& config() const;
  const PairRows& rows() const { return rows_; }
  /// The tokenizers, with the special words if the models restore text.
  const TokenizerPair& tokenizers() const { return tokenizers_; }
  /// Tokens that a source or target may have, with eos.
  int64_t longest() const { return longest_; }
  /// Limits sources to `tokens`; unset: 2048, or the positions of the training if these are more,
  /// since the time of one line grows with the square of its length.
  void limit_sources(std::optional<int64_t> tokens);
  /// Reads the shortlist of options.shortlist, if there is one (apps/tasks/answers/shortlists.h).
  void use_shortlist(const SearchOptions& options);
  /// Adds to `sentences` what the last of its sources may be translated into, if there is a
  /// shortlist: with its prefix and its constraints, which stand there already.
  void choose_words(Sentences& sentences) const;
  /// The first of the ids that no search writes, an unknown token or an end; ids.end() for none.
  std::vector<int32_t>::const_iterator never_written(const std::vector<int32_t>& ids) const;
  /// The ids of line `number`, from 1. A long line is cut, with a warning.
  std::vector<int32_t> encode_source(const std::string& line, int64_t number) const;
  /// The edges of the tokens that are written; made when they are first asked for. Scripts without
  /// spaces between words have no edges.
  const TokenEdges& edges() const;
  /// Cuts the ids of a line in the same way.
  void cut_source(std::vector<int32_t>& ids, int64_t number) const;

 private:
  using Bundle = std::variant<std::unique_ptr<TranslationModel<EncoderDecoder>>,
                              std::unique_ptr<TranslationModel<RnnAttention>>>;

  std::vector<Bundle> bundles_;
  PairModels models_;
  TokenizerPair tokenizers_;
  PairRows rows_;
  std::optional<Shortlist> shortlist_;
  mutable std::once_flag edges_made_;
  mutable TokenEdges edges_;
  int64_t longest_ = 0;
  int64_t longest_source_ = 0;  ///< without the tokens around it
};

/// Sentences to translate, as ids without bos and eos.
struct Sentences {
  PairRows rows = {};  ///< the tokens around them
  std::vector<std::vector<int32_t>> sources = {};
  std::vector<std::vector<int32_t>> prefixes = {};  ///< as in SearchTask
  std::vector<std::vector<int32_t>> chosen = {};    ///< as in SearchTask
  std::vector<Phrases> constraints = {};            ///< as in SearchTask
  TokenEdges edges = {};                            ///< as in SearchTask
  std::vector<int64_t> numbers = {};     ///< of each in the whole input: sampling draws by it
  bool log_probabilities = true;         ///< as in SearchTask
  bool token_log_probabilities = false;  ///< as in SearchTask
};

/// Removes the first tokens: the fixed beginning of every target, PairRows::target.before, is not
/// part of an answer.
void drop_front(Hypothesis& hypothesis, int64_t count);

/// The n best translations of each source, best first, in the order of the input. `batch_size` is
/// the number of sentences that a thread searches at once.
std::vector<std::vector<Hypothesis>> translate(const PairModels& models, const Sentences& sentences,
                                               const SearchOptions& options,
                                               int64_t sentences_at_once);

/// Called when a sentence is translated, from one thread at a time, with its number and its
/// translations.
using SentenceDone = std::function<void(size_t sentence, std::vector<Hypothesis> translations)>;
void translate(const PairModels& models, const Sentences& sentences, const SearchOptions& options,
               int64_t sentences_at_once, const SentenceDone& done);

/// One score per pair: of the target and eos, given the source.
std::vector<Score> score(const PairModels& models, const ParallelCorpus& pairs,
                         int64_t batch_sentences);

/// The attention that each token of a translation, and its eos, gave to each token of the source
/// and its eos when it was written: for pair i (targets[i] + 1, sources[i] + 1) float64, the
/// weighted mean over the models. `layer` as in source_attention().
std::vector<Tensor> source_attention(const PairModels& models,
                                     const std::vector<std::vector<int32_t>>& sources,
                                     const std::vector<std::vector<int32_t>>& targets,
                                     int64_t layer, int64_t batch_sentences,
                                     const PairRows& around = {});

}  // namespace tapestry
