// What is in a SentencePiece model file: the fields that other systems' files need.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapestry {

/// The numbers are those of SentencePiece's ModelProto.
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

  /// Throws Error(kData) naming the file if the bytes are no such message.
  static SentencePieceModel parse(std::string_view bytes, const std::string& name);
};

/// The bytes of a model file with more pieces behind its `pieces`, up to `size`, which no text
/// becomes.
std::string with_unused_pieces(const std::string& bytes, int64_t pieces, int64_t size);

}  // namespace tapestry
