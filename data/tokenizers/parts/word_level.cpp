// A vocabulary of whole words: a piece is a token or unknown.
#include "core/base/error.h"
#include "data/tokenizers/parts/piece_models.h"

namespace tapestry::tokenizers {
namespace {

class WordLevel : public PieceModel {
 public:
  WordLevel(const Part& part, bool byte_level) {
    part.allow({"unk_token", "vocab"});
    if (byte_level) part.refuse("must not stand behind ByteLevel");
    tokens = vocabulary_of(part, "vocab");
    for (size_t id = 0; id < tokens.size(); ++id) {
      if (tokens[id]) ids_.emplace(*tokens[id], static_cast<int32_t>(id));
    }
    const auto found = ids_.find(part.text("unk_token", "<unk>"));
    if (found == ids_.end()) part.refuse("has an unk_token that is not in its vocab");
    unk = found->second;
  }

  void encode(std::string_view piece, std::vector<int32_t>& ids,
              std::vector<ByteRange>* places) const override {
    const auto found = ids_.find(piece);
    ids.push_back(found == ids_.end() ? *unk : found->second);
    if (places) places->emplace_back(0, piece.size());
  }

 private:
  TextIds ids_;
};

}  // namespace

std::unique_ptr<const PieceModel> make_word_level(const Part& part, bool byte_level) {
  return std::make_unique<WordLevel>(part, byte_level);
}

}  // namespace tapestry::tokenizers
