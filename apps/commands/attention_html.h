// Attention weights as heat maps: one self-contained HTML page.
#pragma once

#include <string>
#include <vector>

#include "core/tensor.h"

namespace tapestry {

/// The weights of one kind of attention in one layer: every head's share of each key in each query.
struct AttentionMap {
  std::string name;     ///< "encoder layer 1, self-attention"
  bool source_queries;  ///< queries are source tokens, else target tokens
  bool source_keys;     ///< keys likewise
  Tensor weights;       ///< (H, T, S) on the CPU, floating
};

/// A sentence with its translation and everything that attended to something.
struct AttentionPage {
  std::vector<std::string> source;  ///< pieces, as labels
  std::vector<std::string> target;
  std::vector<AttentionMap> maps;
};

/// A page with a chooser of sentence and layer and a heat map for each head. It loads nothing.
std::string attention_html(const std::vector<AttentionPage>& pages);

}  // namespace tapestry
