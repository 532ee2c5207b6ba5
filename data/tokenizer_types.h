// The types of tokenizers behind data/tokenizer.h; private to data/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace tapestry::tokenizers {

/// Throws Error(kConfig, "[tokenizer] what").
[[noreturn]] void fail_option(const std::string& what);

/// "<mask>" and the sentinels of the options, in the order of their ids.
std::vector<std::string> special_pieces(const TokenizerOptions& options);

std::shared_ptr<const Tokenizer> train_sentencepiece(const TokenizerOptions& options,
                                                     const LineSource& lines, uint64_t seed);
std::shared_ptr<const Tokenizer> load_sentencepiece(const std::string& bytes,
                                                    const std::string& name);

std::shared_ptr<const Tokenizer> train_characters(const TokenizerOptions& options,
                                                  const LineSource& lines);
/// Whether the bytes have the header of a vocabulary of characters.
bool is_characters(const std::string& bytes);
std::shared_ptr<const Tokenizer> load_characters(const std::string& bytes, const std::string& name);

}  // namespace tapestry::tokenizers
