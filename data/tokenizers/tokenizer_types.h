// The types of tokenizers behind data/tokenizers/tokenizer.h; private to data/.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace tapestry::tokenizers {

/// Throws Error(kConfig, "[tokenizer] what").
[[noreturn]] void fail_option(const std::string& what);

/// Throws the same for a vocab_size that the text does not fit; `largest` and `needed` are sizes.
[[noreturn]] void fail_too_large(const TokenizerOptions& options, const std::string& largest);
[[noreturn]] void fail_too_small(const TokenizerOptions& options, const std::string& needed);

/// Throws the same unless `how` is BPE dropout alone.
void expect_dropout(const SubwordSampling& how);

class TextRegex;
class TokenFinder;

/// The rules of user_symbols and of their pattern.
void validate_symbols(const TokenizerOptions& options, const OptionReport& report);
/// The symbols with the ids first_id, first_id + 1, ...
void add_symbols(const std::vector<std::string>& symbols, int32_t first_id, TokenFinder& finder);
/// Adds the pattern's matches in a text.
void find_symbols(const TextRegex& pattern, std::string_view text, std::set<std::string>& found);

/// "<pad>", "<unk>", "<s>", "</s>"
std::vector<std::string> reserved_pieces();
/// "<mask>" and the sentinels of the options, in the order of their ids.
std::vector<std::string> special_pieces(const TokenizerOptions& options);

/// What an unknown piece decodes to, as in SentencePiece.
inline constexpr std::string_view kUnknownText = " \xE2\x81\x87 ";

inline constexpr char32_t kMostCodePoint = 0x10FFFF;
/// "U+0061"
std::string code_point_name(char32_t c);
/// Sets `c` to the code point of that name; false if it is unknown, or a surrogate.
bool parse_code_point(const std::string& name, char32_t& c);

std::shared_ptr<const Tokenizer> train_sentencepiece(const TokenizerOptions& options,
                                                     const LineSource& lines, uint64_t seed);
std::shared_ptr<const Tokenizer> load_sentencepiece(const std::string& bytes,
                                                    const std::string& name);
/// as_side() of the bytes of a tokenizer.
std::shared_ptr<const Tokenizer> sentencepiece_side(const std::string& bytes,
                                                    const std::string& normalization);

std::shared_ptr<const Tokenizer> train_bpe(const TokenizerOptions& options, const LineSource& lines,
                                           uint64_t seed);
/// True if the bytes have the header of a byte-pair encoding, of any version.
bool is_bpe(const std::string& bytes);
std::shared_ptr<const Tokenizer> load_bpe(const std::string& bytes, const std::string& name);
std::shared_ptr<const Tokenizer> bpe_side(const std::string& bytes,
                                          const std::string& normalization);

std::shared_ptr<const Tokenizer> train_words(const TokenizerOptions& options,
                                             const LineSource& lines, uint64_t seed);
/// True if the bytes have the header of a vocabulary of words.
bool is_words(const std::string& bytes);
std::shared_ptr<const Tokenizer> load_words(const std::string& bytes, const std::string& name);
std::shared_ptr<const Tokenizer> words_side(const std::string& bytes,
                                            const std::string& normalization);

std::shared_ptr<const Tokenizer> train_characters(const TokenizerOptions& options,
                                                  const LineSource& lines, uint64_t seed);
/// True if the bytes have the header of a vocabulary of characters.
bool is_characters(const std::string& bytes);
std::shared_ptr<const Tokenizer> load_characters(const std::string& bytes, const std::string& name);

/// Throws Error(kConfig): there is no way to train one.
std::shared_ptr<const Tokenizer> train_huggingface(const TokenizerOptions& options,
                                                   const LineSource& lines, uint64_t seed);
/// Loads joined files (data/tokenizers/huggingface_files.h).
std::shared_ptr<const Tokenizer> load_huggingface(const std::string& bytes,
                                                  const std::string& name);

/// Loads joined files (data/tokenizers/marian.h).
std::shared_ptr<const Tokenizer> load_marian(const std::string& bytes, const std::string& name);

}  // namespace tapestry::tokenizers
