// The ids of special tokens that other systems' files must name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/text.h"
#include "data/tokenizers/tokenizer.h"

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

/// Tokens as a message names them: the first eight, in quotes.
inline std::string quoted_tokens(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  constexpr size_t kShown = 8;
  std::vector<std::string> names;
  for (const int32_t id : ids.first(std::min(ids.size(), kShown))) {
    names.push_back(concat('\'', tokenizer.piece(id), '\''));
  }
  if (ids.size() > kShown) names.push_back(concat(ids.size() - kShown, " more"));
  return join(names, ", ");
}

}  // namespace tapestry::interop
