// WordPiece (Schuster and Nakajima 2012) as BERT has it: the longest token from the left, again and
// again; a word that cannot be covered is one unknown token.
#include <algorithm>

#include "core/base/error.h"
#include "data/files/utf8.h"
#include "data/tokenizers/parts/piece_models.h"

namespace tapestry::tokenizers {
namespace {

class WordPiece : public PieceModel {
 public:
  WordPiece(const Part& part, bool byte_level) {
    part.allow({"unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
    if (byte_level) part.refuse("must not stand behind ByteLevel");
    tokens = vocabulary_of(part, "vocab");
    const std::string prefix = part.text("continuing_subword_prefix", "##");
    most_characters_ = part.integer("max_input_chars_per_word", 100);
    for (size_t id = 0; id < tokens.size(); ++id) {
      if (!tokens[id]) continue;
      const auto number = static_cast<int32_t>(id);
      begins_.emplace(*tokens[id], number);
      longest_ = std::max(longest_, tokens[id]->size());
      if (tokens[id]->starts_with(prefix)) {
        continues_.emplace(tokens[id]->substr(prefix.size()), number);
      }
    }
    const auto found = begins_.find(part.text("unk_token", "[UNK]"));
    if (found == begins_.end()) part.refuse("has an unk_token that is not in its vocab");
    unk = found->second;
  }

  void encode(std::string_view piece, std::vector<int32_t>& ids,
              std::vector<ByteRange>* places) const override {
    const size_t before = ids.size(), places_before = places ? places->size() : 0;
    const auto unknown = [&] {
      ids.resize(before);
      ids.push_back(*unk);
      if (!places) return;
      places->resize(places_before);
      places->emplace_back(0, piece.size());
    };
    if (count_code_points(piece) > most_characters_) return unknown();
    for (size_t at = 0; at < piece.size();) {
      const TextIds& known = at == 0 ? begins_ : continues_;
      size_t end = std::min(piece.size(), at + longest_);
      auto found = known.end();
      for (; end > at; --end) {
        const bool inside =
            end < piece.size() && (static_cast<unsigned char>(piece[end]) & 0xC0) == 0x80;
        if (inside) continue;
        found = known.find(piece.substr(at, end - at));
        if (found != known.end()) break;
      }
      if (end == at) return unknown();
      ids.push_back(found->second);
      if (places) places->emplace_back(at, end);
      at = end;
    }
  }

 private:
  TextIds begins_, continues_;  // continues_ without the prefix
  size_t longest_ = 0;          // bytes of a token
  int64_t most_characters_ = 100;
};

}  // namespace

std::unique_ptr<const PieceModel> make_wordpiece(const Part& part, bool byte_level) {
  return std::make_unique<WordPiece>(part, byte_level);
}

}  // namespace tapestry::tokenizers
