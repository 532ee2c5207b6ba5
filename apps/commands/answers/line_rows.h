// Lines as rows of models that read texts as a whole.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "apps/commands/answers/line_filter.h"
#include "apps/config/config.h"

namespace tapestry {

/// A block of lines, and the rows of those that have one: an empty line has none.
struct LineRows {
  std::span<const std::string> lines = {};
  int64_t number = 0;                  ///< of the first line, from 0
  std::vector<FramedText> texts = {};  ///< the results of encoder_input()
  std::vector<size_t> places = {};     ///< of the texts among the lines
};

/// Calls answer() for one block after the other, as LineFilter::run() does. With `two_texts` a line
/// has two texts with a tab between them; others are records that LineFilter::takes_record()
/// refuses.
void answer_rows(LineFilter& filter, int64_t block_lines, const Config& config,
                 const Tokenizer& tokenizer, bool two_texts,
                 const std::function<void(const LineRows&)>& answer);

}  // namespace tapestry
