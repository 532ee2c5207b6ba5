// The file of a byte-pair encoding and the pieces that follow from it; private to data/tokenizers/.
//
//   tapestry bpe 1
//   normalization nmt_nfkc
//   byte_fallback false
//   mask false
//   sentinels 0
//   characters 3
//   U+0065
//   U+0068
//   U+2581
//   merges 2
//   h e
//   ▁ he
//
// Version 2 has these lines behind the sentinels, for what version 1 cannot say: another file has
// the same pieces for the other side of a translation, and words that are one piece each:
//
//   one_of_two true
//   symbols 1
//   <BT>
//
// U+2581 begins each word. A merge names two pieces, characters or pieces of merges above it. It
// can make a piece that is there already, in another way. Nothing may be missing, nothing may
// follow.
//
// Ids: pad, unk, bos, eos; the mask; the sentinels; the symbols; with byte_fallback 256 bytes; the
// characters; the pieces in the order of the merges.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/tokenizers/bpe.h"

namespace tapestry::tokenizers {

/// Reads a tokenizer's file of text line by line. Every complaint names the line.
class TokenizerLines {
 public:
  /// Both must outlive it.
  TokenizerLines(const std::string& bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  std::string next();
  [[noreturn]] void refuse(const std::string& line, const std::string& expected) const;
  /// The value of a line "key value".
  std::string value_of(const std::string& key);
  int64_t count_of(const std::string& key, int64_t most);
  bool flag_of(const std::string& key);
  std::string normalization_of(const std::string& key);
  /// The lines behind "symbols 2".
  std::vector<std::string> symbols_of(const std::string& key);
  void expect_end() const;

 private:
  const std::string& bytes_;
  const std::string& name_;
  size_t at_ = 0;
  int64_t number_ = 0;
};
/// The lines that symbols_of() reads.
std::string symbol_lines(const std::vector<std::string>& symbols);

/// The contents of the file.
struct BpeModel {
  std::string normalization;  ///< one of TokenizerOptions::kNormalizations
  bool byte_fallback = false;
  bool mask = false;
  int64_t sentinels = 0;
  bool one_of_two = false;
  std::vector<std::string> symbols = {};
  std::vector<char32_t> characters;  ///< ascending
  std::vector<std::pair<std::string, std::string>> merges = {};

  std::string serialized() const;
  /// Throws Error(kData) naming the line of `name` that is wrong.
  static BpeModel parse(const std::string& bytes, const std::string& name);
};

/// The pieces by their ids, which are the symbols of the merges.
class BpeVocabulary {
 public:
  /// Without the pieces of the model's merges.
  explicit BpeVocabulary(const BpeModel& model);

  /// Adds a merge of two pieces of text, and its piece unless it exists.
  bpe::Merge add(const bpe::Pair& pair);
  /// The id of a piece of text, kUnkId if there is none.
  int32_t id_of(const std::string& text) const;

  int64_t size() const { return static_cast<int64_t>(pieces_.size()); }
  const std::vector<std::string>& pieces() const { return pieces_; }
  const std::string& piece(int32_t id) const { return pieces_[static_cast<size_t>(id)]; }
  bool is_symbol(int32_t id) const { return id >= first_symbol_ && id < first_byte_; }
  int32_t first_symbol() const { return first_symbol_; }  ///< if there are any
  /// True if the id stands for text: false for the reserved ids, the mask, a sentinel, a symbol or
  /// a byte.
  bool is_text(int32_t id) const { return id >= first_character_; }
  bool is_byte(int32_t id) const { return id >= first_byte_ && id < first_character_; }
  char byte(int32_t id) const { return static_cast<char>(id - first_byte_); }
  int32_t mask() const { return mask_; }                      ///< -1: none
  int32_t first_sentinel() const { return first_sentinel_; }  ///< if there are any

  /// Appends the characters of a text: their ids, or those of their bytes, or kUnkId.
  void split(std::string_view text, std::vector<int32_t>& ids) const;

 private:
  void add_text(const std::string& text);

  std::vector<std::string> pieces_;
  std::unordered_map<std::string, int32_t> ids_;  // of text
  std::unordered_map<char32_t, int32_t> characters_;
  std::array<int32_t, 128> ascii_;  // the same for the most frequent ones
  int32_t mask_ = -1;
  int32_t first_sentinel_ = 0;
  int32_t first_symbol_ = 0;
  int32_t first_byte_ = 0;
  int32_t first_character_ = 0;
};

}  // namespace tapestry::tokenizers
