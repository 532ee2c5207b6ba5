// Encodes corpora for all loaders; private to data/.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/corpus.h"

namespace tapestry {

struct EncodedPair {
  TextPair text;
  std::vector<int32_t> source;
  std::vector<int32_t> target;
};

/// The limit of a row: `max_length` tokens, of which `specials` are bos and eos.
struct LengthRule {
  int64_t max_length;
  std::string overlong;
  int64_t specials = 1;
  /// The target follows the source in one row. What is cut off is the beginning of the source; a
  /// target that does not fit is dropped.
  bool one_row = false;
};

/// Encodes one corpus and passes its pairs to `accept` in order; the target tokenizer may be null.
/// With rule.one_row the target is encoded as the continuation of another text.
/// Throws Error(kData) if nothing is left.
FilterCounts encode_corpus(const CorpusSpec& spec, const Tokenizer& source_tokenizer,
                           const Tokenizer* target_tokenizer, const LengthRule& rule,
                           const std::function<void(const EncodedPair&)>& accept);

/// Throws Error(kConfig) for an empty list.
void check_not_empty(const std::vector<CorpusSpec>& specs);

}  // namespace tapestry
