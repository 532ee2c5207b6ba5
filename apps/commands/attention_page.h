// What a translation model attended to.
#pragma once

#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/commands/attention_html.h"

namespace tapestry {

/// What every layer of the model attended to, reading `source` and writing `target` (ids without
/// bos and eos).
AttentionPage attention_page(const TranslationModel<EncoderDecoder>& model,
                             const std::vector<int32_t>& source,
                             const std::vector<int32_t>& target);

}  // namespace tapestry
