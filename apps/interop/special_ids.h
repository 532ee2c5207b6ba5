// The ids that other systems' files must tell: of tokens that are no text.
#pragma once

#include <cstdint>
#include <optional>

#include "data/tokenizer.h"

namespace tapestry::interop {

/// Unset: the vocabulary has no such token.
struct SpecialIds {
  std::optional<int32_t> pad, unk, bos, eos, mask;
};

/// The one place that knows where these ids come from. Our tokenizers reserve the first four.
inline SpecialIds special_ids(const Tokenizer& tokenizer) {
  return {.pad = kPadId, .unk = kUnkId, .bos = kBosId, .eos = kEosId, .mask = tokenizer.mask_id()};
}

}  // namespace tapestry::interop
