// Models over one sequence: causal and masked language models, and classifiers of whole sequences.
#pragma once

#include <optional>
#include <vector>

#include "nn/classifier_head.h"
#include "nn/decoding.h"
#include "nn/trunk.h"

namespace tapestry {

/// The head of a masked model (Devlin et al. 2019): transforms a hidden state by
/// norm(act(dense(x))) before the classifier, and holds the classifier's bias.
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
    int32_t no_target = -1;  ///< in the place of a target where there is none
  };
  LanguageModel(const ModelOptions& options, const Vocabulary& vocabulary, bool causal,
                const ParamScope& scope);

  struct Batch {
    Tensor ids;            ///< (B, T) int32
    Tensor targets;        ///< (B, T): the token to predict at each place, else no_target
    Tensor lengths = {};   ///< (B), or undefined: every row is full
    Tensor segments = {};  ///< (B, T), or undefined: all 0
    /// (B) of a causal model, or undefined: all tokens see those before prefix_lengths[b].
    Tensor prefix_lengths = {};
  };
  /// Cross-entropy at the places that have a target. A masked model computes its head only there.
  CrossEntropy loss(const Batch& batch, CrossEntropyOptions options) const;

  /// ids (B, T), lengths (B) or undefined, -> hidden states (B, T, D) after the head's transform.
  Var hidden(const Tensor& ids, const Tensor& lengths = {}, const Tensor& segments = {},
             const AttentionContext& context = {}) const;
  /// hidden (..., D) -> logits (..., V).
  Var logits(const Var& hidden) const { return output(hidden); }

  /// Feeds n tokens to each row: ids (R, n) -> logits (R, V) of the next one. Causal models only. A
  /// prefix (R) or undefined counts for the first tokens, which must hold it whole.
  Tensor step(const Tensor& ids, std::vector<KeyValueCache>& caches,
              const Tensor& prefix_lengths = {}) const;

  ModelOptions options;
  Vocabulary vocabulary;
  WeightMatrix table;
  Linear output;  ///< a masked model's has the head's bias
  Trunk trunk;
  std::optional<MaskedHead> head;
};

/// Feeds a causal model for a search (nn/decoding.h). When a sequence outgrows learned positions,
/// its last half is read again and it goes on from there. With prefix_lm the tokens of the first
/// step are the prompt, so that prompts must be equally long.
class LanguageModelSteps : public NextToken {
 public:
  LanguageModelSteps(const LanguageModel& model, int64_t rows)
      : model_(model), histories_(static_cast<size_t>(rows)) {}
  Tensor step(const std::vector<int32_t>& tokens) override;
  void select(const std::vector<int32_t>& sentences, const std::vector<int32_t>& rows) override;

 private:
  const LanguageModel& model_;
  std::vector<std::vector<int32_t>> histories_;  ///< per row, the tokens in the caches
  std::vector<KeyValueCache> caches_;
};

/// A trunk with a classifier of its first token (Devlin et al. 2019).
struct SequenceClassifier {
  SequenceClassifier(const ModelOptions& options, const LanguageModel::Vocabulary& vocabulary,
                     int64_t classes, const ParamScope& scope);
  /// ids (B, T), lengths (B) -> logits (B, classes).
  Var operator()(const Tensor& ids, const Tensor& lengths, const Tensor& segments = {}) const;

  Trunk trunk;
  ClassifierHead head;
};

}  // namespace tapestry
