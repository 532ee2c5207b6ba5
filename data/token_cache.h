// The cache file of a token stream; private to data/.
//
// The file has, in the byte order of the machine, a header of 64 bytes, the facts, and the ids as
// int32 at a multiple of 64. Checksums cover the whole file, so that damage is always found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/token_stream.h"

namespace tapestry {

class TokenCache {
 public:
  /// Reads all input files once to compute the key. Throws Error(kData) if one cannot be opened.
  TokenCache(std::string path, const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer);

  /// The stream in the file, mapped. Empty if the file is missing, damaged or has another key.
  std::optional<TokenStream> load() const;
  /// Writes the stream and returns it mapped from the file. Throws Error(kData) if the file cannot
  /// be written.
  TokenStream store(const TokenStream& stream) const;

 private:
  std::string path_;
  uint64_t key_;
};

}  // namespace tapestry
