#include "data/sentencepiece_model.h"

#include <bit>

#include "core/error.h"
#include "data/protobuf.h"

namespace tapestry {
namespace {

// Field numbers of ModelProto and of the messages in it.
enum Model : uint32_t { kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3 };
enum PieceField : uint32_t { kText = 1, kScore = 2, kType = 3 };
enum TrainerField : uint32_t { kModelType = 3, kByteFallback = 35 };
enum NormalizerField : uint32_t { kCharsmap = 2, kDummyPrefix = 3, kRemoveSpaces = 4 };

SentencePieceModel::Piece parse_piece(std::string_view bytes) {
  SentencePieceModel::Piece piece;
  for (ProtobufReader fields(bytes); fields.next();) {
    if (fields.field() == kText) piece.text = fields.bytes();
    if (fields.field() == kScore) piece.score = fields.single();
    if (fields.field() == kType) piece.type = static_cast<int>(fields.integer());
  }
  return piece;
}

}  // namespace

SentencePieceModel SentencePieceModel::parse(std::string_view bytes, const std::string& name) {
  SentencePieceModel model;
  try {
    for (ProtobufReader fields(bytes); fields.next();) {
      if (fields.field() == kPieces) model.pieces.push_back(parse_piece(fields.bytes()));
      if (fields.field() == kTrainerSpec) {
        for (ProtobufReader spec(fields.bytes()); spec.next();) {
          if (spec.field() == kModelType) model.algorithm = static_cast<int>(spec.integer());
          if (spec.field() == kByteFallback) model.byte_fallback = spec.integer() != 0;
        }
      }
      if (fields.field() == kNormalizerSpec) {
        for (ProtobufReader spec(fields.bytes()); spec.next();) {
          if (spec.field() == kCharsmap) model.charsmap = spec.bytes();
          if (spec.field() == kDummyPrefix) model.add_dummy_prefix = spec.integer() != 0;
          if (spec.field() == kRemoveSpaces) {
            model.remove_extra_whitespaces = spec.integer() != 0;
          }
        }
      }
    }
  } catch (const Error& error) {
    fail(ErrorKind::kData, "[tokenizer] ", name, " is not a SentencePiece model: ", error.what());
  }
  return model;
}

// A message goes on where more fields follow it.
std::string with_unused_pieces(const std::string& bytes, int64_t pieces, int64_t size) {
  ProtobufWriter more;
  for (int64_t id = pieces; id < size; ++id) {
    more.message(kPieces, ProtobufWriter()
                              .bytes(kText, concat("<unused_", id, '>'))
                              .single(kScore, 0)
                              .integer(kType, SentencePieceModel::kUnused));
  }
  return bytes + more.text();
}

}  // namespace tapestry
