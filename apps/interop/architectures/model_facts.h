// Facts about a model that the tables of tensors need: sizes by the letters of their rows, and the
// parts that the model has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/config/config.h"

namespace tapestry::interop {

/// Numbers that come from tokenizers and data, not from a config.
struct Counts {
  int64_t source_vocab = 0;
  int64_t target_vocab = 0;
  bool shared_vocab = true;
  int64_t classes = 0;
};

/// Rows of a classifier's matrix: its classes, or one for a number.
int64_t outputs_of(const Config& config);

/// True if a row of the task is one whole text, with a begin and an end, or one image.
bool reads_whole(const Config& config);

struct ModelFacts {
  ModelFacts(const Config& config, const Counts& counts);

  /// The size that a letter of a row stands for:
  ///
  ///     V W  rows of the (source, target) vocabulary   D  hidden_size      F  intermediate_size
  ///     Q K  columns of all queries, of all keys       H  those of one head
  ///     P    positions                                 T  segments
  ///     C    classes                                   I  numbers of a patch
  ///     E    embedding_width()
  ///     B N  biases by distance of a head, heads      1 2  one row, and two
  int64_t size(char letter) const;
  /// Layers of the stack that a parameter of ours belongs to.
  int64_t layers_of(const std::string& ours) const;

  Config config;
  Counts counts;
  // Conditions of rows.
  bool both_sides, shared, separate, tied, untied;
  bool learned, relative, final_norm, embedding_norm, segments, output_bias;
  bool gated, plain;
  bool classifies = false;  ///< or gives a number
  bool masked, fills_tied, fills_untied, pooled, finds_spans, tags;
  bool pooled_tokens, widened;  ///< embeddings by a matrix
  /// True if THEIR dense layers and norms have biases. If ours have none, theirs are zeros.
  bool biases = true, norm_biases = true;
  /// The same of the projections of attention, where they differ from `biases`.
  std::optional<bool> query_biases = {}, attention_out_biases = {};
  bool pre, sandwich, branch;             ///< norm_position
  bool normed_heads, normed_projections;  ///< qk_norm

  /// Whether their dense layer for this one of ours has a bias.
  bool has_bias(const std::string& ours) const;
};

}  // namespace tapestry::interop
