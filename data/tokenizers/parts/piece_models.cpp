#include "data/tokenizers/parts/piece_models.h"

#include <cstdio>

#include "core/base/error.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry::tokenizers {

std::unique_ptr<const PieceModel> make_piece_model(const Part& part, bool byte_level) {
  struct Row {
    const char* type;
    decltype(&make_bpe) make;
  };
  static constexpr Row kTable[] = {{"BPE", make_bpe},
                                   {"WordPiece", make_wordpiece},
                                   {"Unigram", make_unigram},
                                   {"WordLevel", make_word_level}};
  // Old files lack the type.
  const char* guess = part.has("merges") ? "BPE" : "WordPiece";
  const std::string type = part.text("type", guess);
  for (const Row& row : kTable) {
    if (row.type == type) return row.make(part, byte_level);
  }
  part.refuse(concat("is of the unknown type ", type));
}

std::vector<std::optional<std::string>> vocabulary_of(const Part& part, const char* key) {
  const Part::Json& vocab = part.value(key);
  if (!vocab.is_object()) part.refuse(concat("must have an object as ", key));
  std::vector<std::optional<std::string>> tokens(vocab.size());
  for (const auto& [token, id] : vocab.items()) {
    if (!id.is_number_integer() || id < 0 || id >= TokenizerOptions::kMostPieces) {
      part.refuse(concat("gives '", token, "' the id ", id.dump()));
    }
    const auto place = id.get<size_t>();
    if (place >= tokens.size()) tokens.resize(place + 1);
    tokens[place] = token;
  }
  return tokens;
}

std::vector<int32_t> byte_pieces(const TextIds& ids) {
  std::vector<int32_t> pieces(256, -1);
  for (unsigned byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    const auto found = ids.find(std::string_view(name));
    if (found != ids.end()) pieces[byte] = found->second;
  }
  return pieces;
}

}  // namespace tapestry::tokenizers
