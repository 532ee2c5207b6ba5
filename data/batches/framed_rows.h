// Texts as rows of tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "data/corpora/corpus.h"
#include "data/tokenizers/special_ids.h"

namespace tapestry {

/// Rows on the CPU, int32.
struct FramedRows {
  Tensor ids;            ///< (B, T): texts in their frame, filled up
  Tensor lengths;        ///< (B): tokens of each row, the frame's included
  Tensor segments = {};  ///< (B, T): 1 from the second text on, else 0; undefined: no row has one
  int64_t tokens = 0;    ///< sum of the lengths
};

/// These texts, in this order.
FramedRows framed_rows(const TokenLists& texts, std::span<const int64_t> rows,
                       const TextFrame& frame, int32_t filler);
/// Texts that stand in their frames.
FramedRows framed_rows(const std::vector<FramedText>& texts, int32_t filler);

}  // namespace tapestry
