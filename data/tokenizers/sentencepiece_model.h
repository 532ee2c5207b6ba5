// The fields of a SentencePiece model file that other formats need, and that show if its encoding
// goes word by word.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapestry {

/// Numbers as in SentencePiece's ModelProto.
struct SentencePieceModel {
  enum PieceType { kNormal = 1, kUnknown = 2, kControl = 3, kUser = 4, kUnused = 5, kByte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    int type = kNormal;
  };
  enum Algorithm { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };

  std::vector<Piece> pieces;  ///< by id
  int algorithm = kUnigram;
  bool byte_fallback = false;
  std::string charsmap;  ///< rules of the normalisation; empty: none
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool treat_whitespace_as_suffix = false;
  bool one_of_two = false;  ///< the other side of a translation has these pieces, too

  /// True if the tokens of a text are those of its words, one word after the other, where words are
  /// separated by spaces (U+0020), for any text without U+2581 (data/tokenizers/sentencepiece.cpp
  /// has the one exception of unigram models).
  ///
  /// Normalisation replaces the longest known prefix of the rest of a text, again and again, then
  /// runs of spaces by one U+2581, puts one in front, and drops those at the end. So a word becomes
  /// the same beside any neighbours if no such prefix has a space in it. Merges and the best path
  /// of a lattice do not cross a U+2581 if every piece has it only at its beginning.
  bool encodes_word_by_word() const;

  /// Throws Error(kData) naming the file if the bytes are no such message.
  static SentencePieceModel parse(std::string_view bytes, const std::string& name);
};

/// The bytes of a model file with more pieces behind its `pieces`, up to `size`, which no text
/// becomes.
std::string with_unused_pieces(const std::string& bytes, int64_t pieces, int64_t size);

/// The bytes of a model file that normalises texts as `other` does, and is marked as one of two
/// that have the same pieces (SentencePieceModel::one_of_two).
std::string with_normalization_of(const std::string& bytes, const std::string& other);

}  // namespace tapestry
