#include "data/sentencepiece_model.h"

#include <algorithm>
#include <cstring>

#include "data/normalization.h"

namespace tapestry::tokenizers {
namespace {

// A field of a protobuf: a number, or bytes.
struct Field {
  uint64_t number = 0;
  uint64_t value = 0;
  std::string_view bytes;
};

bool read_varint(std::string_view& in, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in[0]);
    in.remove_prefix(1);
    value |= uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool take(std::string_view& in, uint64_t count, std::string_view& out) {
  if (count > in.size()) return false;
  out = in.substr(0, count);
  in.remove_prefix(count);
  return true;
}

// False at the end, and at what is no field.
bool read_field(std::string_view& in, Field& field) {
  uint64_t key = 0;
  if (!read_varint(in, key)) return false;
  field = {key >> 3, 0, {}};
  enum Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  switch (key & 7) {
    case kVarint:
      return read_varint(in, field.value);
    case kFixed64:
      return take(in, 8, field.bytes);
    case kBytes:
      return read_varint(in, field.value) && take(in, field.value, field.bytes);
    case kFixed32:
      return take(in, 4, field.bytes);
    default:
      return false;
  }
}

SentencePieceModel::Piece read_piece(std::string_view message) {
  SentencePieceModel::Piece piece;
  for (Field field; read_field(message, field);) {
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2 && field.bytes.size() == sizeof(float)) {
      std::memcpy(&piece.score, field.bytes.data(), sizeof(float));
    }
    if (field.number == 3) piece.type = field.value;
  }
  return piece;
}

// Whether a text that the rules replace has a space in it. Their trie is a double array of units of
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

SentencePieceModel::SentencePieceModel(std::string_view bytes) {
  for (Field field; read_field(bytes, field);) {
    if (field.number == 1) pieces.push_back(read_piece(field.bytes));
    for (Field inner; field.number == 2 && read_field(field.bytes, inner);) {
      if (inner.number == 3) algorithm = inner.value;
      if (inner.number == 24) whitespace_is_suffix = inner.value != 0;
    }
    for (Field inner; field.number == 3 && read_field(field.bytes, inner);) {
      if (inner.number == 2) normalization = inner.bytes;
      if (inner.number == 3) adds_dummy_prefix = inner.value != 0;
      if (inner.number == 4) removes_extra_spaces = inner.value != 0;
      if (inner.number == 5) escapes_spaces = inner.value != 0;
    }
  }
}

bool SentencePieceModel::encodes_word_by_word() const {
  if (algorithm != kUnigram && algorithm != kBpe && algorithm != kChar) return false;
  if (whitespace_is_suffix || !adds_dummy_prefix || !removes_extra_spaces || !escapes_spaces) {
    return false;
  }
  const bool inside = std::any_of(pieces.begin(), pieces.end(), [](const Piece& piece) {
    // Pieces of users are cut out of a text before it is normalised; unused ones are split again.
    return piece.type == kUserDefined || piece.type == kUnused ||
           (piece.type == kNormal && piece.text.rfind(kSpacePiece) != std::string_view::npos &&
            piece.text.rfind(kSpacePiece) > 0);
  });
  return !inside && normalization.find(kSpacePiece) == std::string_view::npos &&
         !replaces_spaces(normalization);
}

}  // namespace tapestry::tokenizers
