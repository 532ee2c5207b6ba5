// What a SentencePiece model says of itself, read from its file (a protobuf of known fields, for
// which the library has no public type), and where its encoding goes word by word; private to
// data/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapestry::tokenizers {

struct SentencePieceModel {
  enum Algorithm : uint64_t { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };
  enum Type : uint64_t { kNormal = 1, kUserDefined = 4, kUnused = 5 };

  struct Piece {
    std::string_view text;
    float score = 0;
    uint64_t type = kNormal;
  };

  /// Of a serialized model, which must outlive this. A damaged one gives what was read until then:
  /// SentencePiece itself refuses it.
  explicit SentencePieceModel(std::string_view bytes);

  /// Whether the tokens of a text are those of its words, one word after the other, where words are
  /// what stands between spaces (U+0020), of any text without U+2581 (data/sentencepiece.cpp has
  /// the one exception of unigram models).
  ///
  /// Normalisation replaces the longest known prefix of the rest of a text, again and again, then
  /// runs of spaces by one U+2581, puts one in front, and drops those at the end. So what a word
  /// becomes does not depend on its neighbours if no such prefix has a space in it. Merges and the
  /// best path of a lattice do not go over a U+2581 in which no piece but begins.
  bool encodes_word_by_word() const;

  std::vector<Piece> pieces;
  uint64_t algorithm = kUnigram;
  bool whitespace_is_suffix = false;
  bool adds_dummy_prefix = true;
  bool removes_extra_spaces = true;
  bool escapes_spaces = true;
  std::string_view normalization;  ///< compiled rules: a trie, then the texts that replace
};

}  // namespace tapestry::tokenizers
