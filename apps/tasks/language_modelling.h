// What commands do with a causal or masked language model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/tasks/task.h"
#include "data/token_stream.h"

namespace tapestry {

/// Quality of a language model on a text.
struct TextQuality {
  double nll = 0;       ///< summed, in nats
  int64_t tokens = 0;   ///< predicted ones: all but the first, or the masked ones
  double accuracy = 0;  ///< of the most probable token, in percent
  /// nll in bits for each Unicode character of the text; 0 for a masked model, which does not
  /// give the text a probability.
  double bits_per_character = 0;
  double perplexity() const;
};
TextQuality text_quality(const TextModel& model, const TokenStream& text);

/// Whether the model has seen documents with eos between them, so that eos begins a text.
bool begins_with_eos(const Config& config);

/// One score per line, of its tokens and the eos behind them, each line a document of its own. A
/// model of one long document knows no eos: the first token, before which there is nothing, and the
/// end are then left out.
std::vector<Score> score_lines(const TextModel& model, const std::vector<std::string>& lines);

/// A guess at a masked place.
struct Fill {
  int32_t token = 0;
  double probability = 0;
};
/// For each mask in `ids`, which has bos in front, the most probable tokens, best first.
std::vector<std::vector<Fill>> fill_masks(const TextModel& model, const std::vector<int32_t>& ids,
                                          int64_t top_k);

}  // namespace tapestry
