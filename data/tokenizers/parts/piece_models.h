// The models of a tokenizer.json: from a piece of text to ids; private to data/tokenizers/.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizers/parts/part.h"
#include "data/tokenizers/parts/placed_text.h"

namespace tapestry::tokenizers {

/// Finds a string by a view of it.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using TextIds = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

/// Immutable and safe to use from several threads at once.
class PieceModel {
 public:
  virtual ~PieceModel() = default;
  /// Appends the ids of a piece, which is not empty, and the bytes of it that each stands for if
  /// there is a list for them.
  virtual void encode(std::string_view piece, std::vector<int32_t>& ids,
                      std::vector<ByteRange>* places) const = 0;

  /// Tokens by id as the file writes them; unset: no token has this id.
  std::vector<std::optional<std::string>> tokens;
  std::optional<int32_t> unk;
};

/// The part "model". `byte_level`: the pieces are bytes, which the vocabulary writes as characters.
/// Throws Error(kData) for a type or a key that is not known.
std::unique_ptr<const PieceModel> make_piece_model(const Part& part, bool byte_level);

// Implemented in one file each.
std::unique_ptr<const PieceModel> make_bpe(const Part& part, bool byte_level);
std::unique_ptr<const PieceModel> make_wordpiece(const Part& part, bool byte_level);
std::unique_ptr<const PieceModel> make_unigram(const Part& part, bool byte_level);
std::unique_ptr<const PieceModel> make_word_level(const Part& part, bool byte_level);

/// {token: id} of a part: tokens by id. Throws Error(kData) for an id that is out of bounds.
std::vector<std::optional<std::string>> vocabulary_of(const Part& part, const char* key);
/// The ids of "<0x00>" to "<0xFF>"; -1 for a byte without one.
std::vector<int32_t> byte_pieces(const TextIds& ids);

}  // namespace tapestry::tokenizers
