// The attention weights of a translation model, collected for a page.
#pragma once

#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/commands/attention_html.h"

namespace tapestry {

/// The weights of every layer while the model reads `source` and writes `target` (ids without bos
/// and eos).
AttentionPage attention_page(const TranslationModel<EncoderDecoder>& model,
                             const std::vector<int32_t>& source,
                             const std::vector<int32_t>& target);

}  // namespace tapestry
