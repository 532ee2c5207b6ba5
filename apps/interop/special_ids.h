// The ids of special tokens that other systems' files must name.
#pragma once

#include <cstdint>
#include <optional>

#include "data/tokenizer.h"

namespace tapestry::interop {

/// Unset: the vocabulary has no such token.
struct SpecialIds {
  std::optional<int32_t> pad, unk, bos, eos, mask;
};

inline SpecialIds special_ids(const Tokenizer& tokenizer) {
  const tapestry::SpecialIds& own = tokenizer.special();
  return {
      .pad = own.pad, .unk = own.unk, .bos = own.bos, .eos = own.eos, .mask = tokenizer.mask_id()};
}

}  // namespace tapestry::interop
