// Attention weights as heat maps: one self-contained HTML page.
#pragma once

#include <string>
#include <vector>

#include "core/tensor.h"

namespace tapestry {

/// The weights of one attention layer: for each head and query, the share of each key.
struct AttentionMap {
  std::string name;     ///< "encoder layer 1, self-attention"
  bool source_queries;  ///< queries are source tokens, else target tokens
  bool source_keys;     ///< keys likewise
  Tensor weights;       ///< (H, T, S) on the CPU, floating
};

/// A sentence, its translation, and the weights of all attention layers.
struct AttentionPage {
  std::vector<std::string> source;  ///< pieces, as labels
  std::vector<std::string> target;
  std::vector<AttentionMap> maps;
};

/// A page that lets the reader choose sentence and layer, with a heat map for each head. It loads
/// no other file.
std::string attention_html(const std::vector<AttentionPage>& pages);

}  // namespace tapestry
