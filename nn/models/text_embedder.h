// A vector for each text, such that texts which mean the same lie together (Reimers and Gurevych
// 2019), and the loss that teaches it from pairs.
#pragma once

#include "nn/models/language_model.h"

namespace tapestry {

struct TextEmbedder {
  TextEmbedder(const ModelOptions& options, const LanguageModel::Vocabulary& vocabulary,
               const ParamScope& scope);

  /// ids (B, T), lengths (B) in host memory -> (B, D), float32 or wider; (B, options.vector_size)
  /// where there is a dense layer behind the pooling.
  Var operator()(const Tensor& ids, const Tensor& lengths) const;

  Trunk trunk;
  TextPooling pooling;
  std::optional<Linear> dense;
  bool dense_tanh;
  bool unit_vectors;
};

/// Texts of a batch that are equal to others: equal numbers for equal texts, of the targets also
/// for further choices behind them. Empty: all differ.
struct EqualTexts {
  std::vector<int64_t> sources, targets;
};

struct ContrastiveOptions {
  double temperature = 0.05;  ///< divides the products of vectors
  bool both_directions = false;
};
/// InfoNCE (van den Oord et al. 2018; Henderson et al. 2017): the cross-entropy of finding each
/// source's own target among the targets of all pairs, by the products of their vectors; with both
/// directions the mean with that of finding the source. A text that is equal to the one to find is
/// no choice. sources (B, D), targets (C, D) of which the first B belong to the sources and the
/// others are further choices (hard negatives); a weight or label smoothing in `options` has no
/// meaning.
CrossEntropy contrastive_loss(const Var& sources, const Var& targets, const EqualTexts& equal,
                              const ContrastiveOptions& contrast,
                              const CrossEntropyOptions& options);

/// CoSENT (Su 2022): log(1 + sum of exp((p_j - p_i) / temperature) over all i, j with scores[i] >
/// scores[j]), where p_i is the product of both vectors of pair i: pairs with a larger score shall
/// have a larger product. sources, targets (B, D). A batch is one target of the loss.
CrossEntropy ranking_loss(const Var& sources, const Var& targets, const std::vector<float>& scores,
                          double temperature, const CrossEntropyOptions& options);

}  // namespace tapestry
