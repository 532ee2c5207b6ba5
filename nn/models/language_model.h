// Models over one sequence: causal and masked language models, and classifiers of whole sequences.
#pragma once

#include <optional>
#include <vector>

#include "nn/decoding/decoding.h"
#include "nn/models/classifier_head.h"
#include "nn/models/trunk.h"

namespace tapestry {

/// The head of a masked model (Devlin et al. 2019): transforms a hidden state by
/// norm(act(dense(x))), as wide as the embeddings, before the classifier, and holds its bias.
struct MaskedHead {
  MaskedHead(const ModelOptions& options, int64_t vocab, const ParamScope& scope);
  Var operator()(const Var& x) const { return norm(dense(x)); }

  Linear dense;
  Norm norm;
  Var bias;  ///< (V)
};

/// A trunk with a classifier over the vocabulary: causal (GPT-2, Llama) or masked (BERT, RoBERTa).
struct LanguageModel {
  struct Vocabulary {
    int64_t size = 0;
    int32_t no_target = -1;  ///< stands in for a missing target
  };
  LanguageModel(const ModelOptions& options, const Vocabulary& vocabulary, bool causal,
                const ParamScope& scope);

  struct Batch {
    Tensor ids;            ///< (B, T) int32
    Tensor targets;        ///< (B, T): the token to predict at each place, else no_target
    Tensor lengths = {};   ///< (B), or undefined: every row is full
    Tensor segments = {};  ///< (B, T), or undefined: all 0
    /// (B) for a causal model, or undefined: all tokens see those before prefix_lengths[b].
    Tensor prefix_lengths = {};
    /// The documents that the rows hold, one after the other, or undefined: no token sees another
    /// document, and positions begin again with each. They take the place of lengths.
    Sequences sequences = {};
  };
  /// Cross-entropy at the places that have a target. A masked model computes its head only there.
  CrossEntropy loss(const Batch& batch, CrossEntropyOptions options) const;

  /// The log-probability of all targets of each row, which has at least one: (B), float32 or wider.
  /// Causal models only. Their targets are in host memory.
  Var log_probabilities(const Batch& batch) const;

  /// ids (B, T), lengths (B) or undefined, -> hidden states (B, T, D) after the head's transform.
  Var hidden(const Tensor& ids, const Tensor& lengths = {}, const Tensor& segments = {},
             const AttentionContext& context = {}) const;
  /// All that a batch says: its documents and prefixes, too.
  Var hidden(const Batch& batch) const {
    return hidden(batch.ids, batch.lengths, batch.segments, context_of(batch));
  }
  /// hidden (..., D) -> logits (..., V).
  Var logits(const Var& hidden) const { return output(hidden); }

  /// The decoding state of R sequences. Causal models only.
  struct State {
    std::vector<KeyValueCache> layers;
    CacheRows tokens;
  };
  /// Adds new sequences, which begin with the ids (B, T) up to lengths[b]. As a `prefix` their
  /// tokens see each other, and the last one's place is left for a step that feeds it again.
  void add(const Tensor& ids, const std::vector<int32_t>& lengths, bool prefix, State& state) const;
  /// Feeds one token to each sequence (R) int32 and returns the hidden states (R, D) ...
  Var advance(const Tensor& tokens, State& state) const;
  /// ... or the logits of the next one (R, V).
  Tensor step(const Tensor& tokens, State& state) const {
    return logits(advance(tokens, state)).value();
  }

  ModelOptions options;
  Vocabulary vocabulary;
  WeightMatrix table;
  Linear output;  ///< a masked model's has the head's bias
  Trunk trunk;
  std::optional<MaskedHead> head;  ///< of a masked model with ModelOptions::transformed_head
  bool masked = false;             ///< not causal

 private:
  static AttentionContext context_of(const Batch& batch) {
    return {.prefix_lengths = batch.prefix_lengths, .sequences = batch.sequences};
  }
};

/// Feeds a causal model for a search (nn/decoding/decoding.h). When a sequence outgrows learned
/// positions, its last half is read again and it goes on from there. With prefix_lm its prompt is
/// the prefix.
class LanguageModelSteps : public NextToken {
 public:
  explicit LanguageModelSteps(const LanguageModel& model) : model_(model) {}
  void add(const std::vector<NewSentence>& sentences) override;
  Tensor step(const std::vector<int32_t>& tokens) override;
  Tensor best(const std::vector<int32_t>& tokens, int64_t count,
              const std::vector<int32_t>& banned) override;
  Tensor largest(const std::vector<int32_t>& tokens, const std::vector<int32_t>& banned) override;
  void select(const std::vector<int32_t>& rows) override;

 private:
  using Tokens = std::vector<int32_t>;
  void read(const std::vector<Tokens>& histories, bool prefix);
  bool shorten(Tokens& history) const;
  void read_again();
  Tensor feed(const std::vector<int32_t>& tokens);
  Device device() const { return model_.table.device(); }

  const LanguageModel& model_;
  std::vector<Tokens> histories_;  ///< per row, the tokens that the state has
  LanguageModel::State state_;
};

/// A trunk with a classifier of its first token (Devlin et al. 2019), or of the mean of all.
struct SequenceClassifier {
  SequenceClassifier(const ModelOptions& options, const LanguageModel::Vocabulary& vocabulary,
                     int64_t classes, const ParamScope& scope);
  /// ids (B, T), lengths (B) -> logits (B, classes).
  Var operator()(const Tensor& ids, const Tensor& lengths, const Tensor& segments = {}) const;

  Trunk trunk;
  ClassifierHead head;
};

}  // namespace tapestry
