// The file that keeps a token stream; private to data/.
//
// In the byte order of the machine: a header of 64 bytes, the facts, the ids as int32 at a multiple
// of 64. Checksums cover all of it, so that a damaged file is never taken for a good one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/token_stream.h"

namespace tapestry {

class TokenCache {
 public:
  /// Reads all input files once, for the key. Throws Error(kData) when one cannot be opened.
  TokenCache(std::string path, const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer);

  /// The stream in the file, mapped; nothing when the file is missing, damaged or of another key.
  std::optional<TokenStream> load() const;
  /// Writes the stream and returns it as mapped. Throws Error(kData) when the file cannot be
  /// written.
  TokenStream store(const TokenStream& stream) const;

 private:
  std::string path_;
  uint64_t key_;
};

}  // namespace tapestry
