// Text for language models: documents as one long sequence of token ids, kept in a cache file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/tokenizer.h"

namespace tapestry {

/// The origin of a token stream.
struct StreamFacts {
  int64_t characters = 0;  ///< Unicode characters of the text: the divisor for bits per character
  int64_t documents = 0;
  FilterCounts counts;
};

/// Token ids of documents, end to end, read-only; copies share them. eos separates documents: every
/// document except the last ends with it.
class TokenStream {
 public:
  TokenStream() = default;
  /// From ids in memory.
  explicit TokenStream(std::vector<int32_t> ids, StreamFacts facts = {});

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  std::span<const int32_t> tokens() const { return tokens_; }
  int64_t characters() const { return facts_.characters; }
  int64_t documents() const { return facts_.documents; }
  const FilterCounts& counts() const { return facts_.counts; }
  /// Whether the ids come from a cache file, so that nothing was encoded.
  bool from_cache() const { return from_cache_; }

 private:
  friend class TokenCache;

  std::shared_ptr<const void> owner_;  // owns the memory or the mapped file
  std::span<const int32_t> tokens_;
  StreamFacts facts_;
  bool from_cache_ = false;
};

/// Reads and encodes the corpora one after the other; of translations only the source side.
/// Documents of any length are kept whole.
///
/// With a `cache_path` the ids are kept in that file and mapped into memory. The file is used if
/// its key matches the bytes of all input files, the members of the specs and the tokenizer. If
/// not, or if it is damaged, it is written again: to a temporary file, which is then renamed.
///
/// Throws Error(kData) if nothing is left of a corpus or the cache cannot be written,
/// Error(kConfig) for bad specs.
TokenStream load_token_stream(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                              const std::string& cache_path = "");

}  // namespace tapestry
