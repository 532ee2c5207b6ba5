// The file of a byte-pair encoding and the pieces that follow from it; private to data/.
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
// U+2581 begins each word. A merge names two pieces, characters or pieces of merges above it. It
// can make a piece that is there already, in another way. Nothing may be missing, nothing may
// follow.
//
// Ids: pad, unk, bos, eos; the mask; the sentinels; with byte_fallback 256 bytes; the characters;
// the pieces in the order of the merges.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/bpe.h"

namespace tapestry::tokenizers {

/// What is in the file.
struct BpeModel {
  std::string normalization;  ///< one of TokenizerOptions::kNormalizations
  bool byte_fallback = false;
  bool mask = false;
  int64_t sentinels = 0;
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

  /// The merge of two pieces of text, whose piece is added unless it is there.
  bpe::Merge add(const bpe::Pair& pair);
  /// The id of a piece of text, kUnkId if there is none.
  int32_t id_of(const std::string& text) const;

  int64_t size() const { return static_cast<int64_t>(pieces_.size()); }
  const std::string& piece(int32_t id) const { return pieces_[static_cast<size_t>(id)]; }
  /// Whether the id stands for text: not for the reserved ones, the mask, a sentinel or a byte.
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
  int32_t first_byte_ = 0;
  int32_t first_character_ = 0;
};

}  // namespace tapestry::tokenizers
