#include "data/tokenizers/sentencepiece_model.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "data/tokenizers/normalization.h"
#include "data/tokenizers/protobuf.h"

namespace tapestry {
namespace {

// Field numbers of ModelProto and of the messages in it. Numbers from 200 on are free for other
// programs; SentencePiece's readers skip them.
enum Model : uint32_t { kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3, kOneOfTwo = 1037 };
enum PieceField : uint32_t { kText = 1, kScore = 2, kType = 3 };
enum TrainerField : uint32_t { kModelType = 3, kWhitespaceAsSuffix = 24, kByteFallback = 35 };
enum NormalizerField : uint32_t {
  kCharsmap = 2,
  kDummyPrefix = 3,
  kRemoveSpaces = 4,
  kEscapeSpaces = 5
};

SentencePieceModel::Piece parse_piece(std::string_view bytes) {
  SentencePieceModel::Piece piece;
  for (ProtobufReader fields(bytes); fields.next();) {
    if (fields.field() == kText) piece.text = fields.bytes();
    if (fields.field() == kScore) piece.score = fields.single();
    if (fields.field() == kType) piece.type = static_cast<int>(fields.integer());
  }
  return piece;
}

// True if a text that the rules replace has a space in it. Their trie is a double array of units of
// 32 bits (darts-clone): the child of a unit for a byte is at (its place ^ its offset ^ the byte)
// and has the byte as its label.
bool replaces_spaces(std::string_view rules) {
  uint32_t trie_bytes = 0;
  if (rules.size() < sizeof(trie_bytes)) return !rules.empty();
  std::memcpy(&trie_bytes, rules.data(), sizeof(trie_bytes));
  if (trie_bytes > rules.size() - sizeof(trie_bytes)) return true;
  std::vector<uint32_t> units(trie_bytes / sizeof(uint32_t));
  if (units.empty()) return false;
  std::memcpy(units.data(), rules.data() + sizeof(trie_bytes), units.size() * sizeof(uint32_t));
  const auto offset_of = [](uint32_t unit) {
    return static_cast<size_t>(unit >> 10) << ((unit & (1U << 9)) >> 6);
  };
  constexpr uint32_t kLabel = 1U << 31 | 0xFF;
  std::vector<bool> seen(units.size());
  std::vector<size_t> open = {0};
  while (!open.empty()) {
    const size_t children = open.back() ^ offset_of(units[open.back()]);
    open.pop_back();
    for (uint32_t byte = 1; byte < 256; ++byte) {
      const size_t child = children ^ byte;
      if (child >= units.size() || (units[child] & kLabel) != byte || seen[child]) continue;
      if (byte == ' ') return true;
      seen[child] = true;
      open.push_back(child);
    }
  }
  return false;
}

}  // namespace

SentencePieceModel SentencePieceModel::parse(std::string_view bytes, const std::string& name) {
  SentencePieceModel model;
  try {
    for (ProtobufReader fields(bytes); fields.next();) {
      if (fields.field() == kOneOfTwo) model.one_of_two = fields.integer() != 0;
      if (fields.field() == kPieces) model.pieces.push_back(parse_piece(fields.bytes()));
      if (fields.field() == kTrainerSpec) {
        for (ProtobufReader spec(fields.bytes()); spec.next();) {
          if (spec.field() == kModelType) model.algorithm = static_cast<int>(spec.integer());
          if (spec.field() == kWhitespaceAsSuffix) {
            model.treat_whitespace_as_suffix = spec.integer() != 0;
          }
          if (spec.field() == kByteFallback) model.byte_fallback = spec.integer() != 0;
        }
      }
      if (fields.field() == kNormalizerSpec) {
        for (ProtobufReader spec(fields.bytes()); spec.next();) {
          if (spec.field() == kCharsmap) model.charsmap = spec.bytes();
          if (spec.field() == kDummyPrefix) model.add_dummy_prefix = spec.integer() != 0;
          if (spec.field() == kEscapeSpaces) model.escape_whitespaces = spec.integer() != 0;
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

bool SentencePieceModel::encodes_word_by_word() const {
  if (algorithm != kUnigram && algorithm != kBpe && algorithm != kChar) return false;
  if (treat_whitespace_as_suffix || !add_dummy_prefix || !remove_extra_whitespaces ||
      !escape_whitespaces) {
    return false;
  }
  const bool inside = std::any_of(pieces.begin(), pieces.end(), [this](const Piece& piece) {
    const size_t space = piece.text.rfind(tokenizers::kSpacePiece);
    // User-defined pieces are cut out of a text before it is normalised; a lattice does not know
    // them.
    if (piece.type == kUser) {
      return algorithm == kUnigram || space != std::string::npos ||
             piece.text.find_first_of(" \t\n") != std::string::npos;
    }
    // Unused ones are split again.
    return piece.type == kUnused ||
           (piece.type == kNormal && space != std::string::npos && space > 0);
  });
  return !inside && charsmap.find(tokenizers::kSpacePiece) == std::string::npos &&
         !replaces_spaces(charsmap);
}

// Appending fields to a message continues it.
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

std::string with_normalization_of(const std::string& bytes, const std::string& other) {
  // If a field comes again, the last one counts; also in a message that is continued.
  std::string normalizer;
  for (ProtobufReader fields(other); fields.next();) {
    if (fields.field() == kNormalizerSpec) normalizer += fields.bytes();
  }
  return bytes + ProtobufWriter().bytes(kNormalizerSpec, normalizer).integer(kOneOfTwo, 1).text();
}

}  // namespace tapestry
