// Byte-pair encoding (Sennrich et al. 2016) as tokenizer.json has it: symbols are characters, or
// bytes, and the merges are a list.
#include <algorithm>

#include "core/base/error.h"
#include "data/tokenizers/bpe.h"
#include "data/tokenizers/parts/piece_models.h"
#include "data/tokenizers/parts/pre_tokenizers.h"
#include "data/tokenizers/parts/unicode_text.h"

namespace tapestry::tokenizers {
namespace {

class BpePieces : public PieceModel {
 public:
  BpePieces(const Part& part, bool byte_level) : byte_level_(byte_level) {
    part.allow({"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
    if (part.has("dropout") && part.value("dropout") != 0.0) part.refuse("must have no dropout");
    tokens = vocabulary_of(part, "vocab");
    TextIds written;
    for (size_t id = 0; id < tokens.size(); ++id) {
      if (tokens[id]) written.emplace(*tokens[id], static_cast<int32_t>(id));
    }
    prefix_ = part.text("continuing_subword_prefix", "");
    suffix_ = part.text("end_of_word_suffix", "");
    fuses_unk_ = part.flag("fuse_unk", false);
    whole_words_ = part.flag("ignore_merges", false);
    if (byte_level_ && !(prefix_.empty() && suffix_.empty())) {
      part.refuse("must have neither prefix nor suffix with ByteLevel");
    }
    if (part.has("unk_token")) {
      const auto found = written.find(part.text("unk_token"));
      if (found == written.end()) part.refuse("has an unk_token that is not in its vocab");
      unk = found->second;
    }
    if (part.flag("byte_fallback", false)) bytes_ = byte_pieces(written);
    merger_.emplace(merges_of(part, written));
    if (!byte_level_) {
      ids_ = std::move(written);
      return;
    }
    for (size_t byte = 0; byte < 256; ++byte) {
      const auto found = written.find(byte_characters()[byte]);
      single_bytes_.push_back(found == written.end() ? -1 : found->second);
    }
    for (const auto& [token, id] : written) ids_.emplace(bytes_of_token(token), id);
  }

  void encode(std::string_view piece, std::vector<int32_t>& ids,
              std::vector<ByteRange>* places) const override {
    if (whole_words_) {
      const auto found = ids_.find(piece);
      if (found != ids_.end()) {
        if (places) places->emplace_back(0, piece.size());
        return ids.push_back(found->second);
      }
    }
    std::vector<int32_t> word;
    std::vector<Symbol> symbols;
    Unknown unknown{*this, word, places ? &symbols : nullptr};
    if (byte_level_) {
      for (size_t i = 0; i < piece.size(); ++i) {
        const int32_t id = single_bytes_[static_cast<unsigned char>(piece[i])];
        id >= 0 ? unknown.end_with(id, {{i, i + 1}, 1}) : unknown.add({i, i + 1});
      }
    } else {
      split(piece, unknown);
    }
    unknown.flush();
    std::vector<int32_t> first;
    if (places) first = word;
    merger_->apply(word);
    ids.insert(ids.end(), word.begin(), word.end());
    if (places) add_places(first, symbols, word, *places);
  }

 private:
  // A symbol to merge: the bytes of the piece, and the bytes that its token has.
  struct Symbol {
    ByteRange place;
    size_t written = 0;
  };

  // Makes the list of symbols. Turns runs of unknown characters into one unk or several.
  struct Unknown {
    const BpePieces& model;
    std::vector<int32_t>& word;
    std::vector<Symbol>* symbols;  // null: nobody asks
    bool open = false;
    ByteRange run = {};

    void add(const ByteRange& place) {
      if (!model.unk) return;
      if (open && !model.fuses_unk_) flush();
      run = {open ? run.first : place.first, place.second};
      open = true;
    }
    void flush() {
      if (open) push(*model.unk, {run, 0});
      open = false;
    }
    void end_with(int32_t id, const Symbol& symbol) {
      flush();
      push(id, symbol);
    }
    void push(int32_t id, const Symbol& symbol) {
      word.push_back(id);
      if (symbols) symbols->push_back(symbol);
    }
  };

  // A token that was there before the merges is its symbol; another one has the bytes of several,
  // with the prefix once.
  void add_places(const std::vector<int32_t>& first, const std::vector<Symbol>& symbols,
                  const std::vector<int32_t>& word, std::vector<ByteRange>& places) const {
    size_t next = 0;
    for (const int32_t id : word) {
      if (next == symbols.size()) {  // a merge of the unknown token has bytes that are not here
        places.push_back(places.back());
        continue;
      }
      ByteRange place = symbols[next].place;
      size_t written = symbols[next].written;
      const bool merged = id != first[next++];
      const std::string& token = *tokens[static_cast<size_t>(id)];
      const size_t wanted = !merged ? 0 : byte_level_ ? bytes_of_token(token).size() : token.size();
      while (written < wanted && next < symbols.size()) {
        written += symbols[next].written - prefix_.size();
        place.second = symbols[next++].place.second;
      }
      places.push_back(place);
    }
  }

  void split(std::string_view piece, Unknown& unknown) const {
    std::string symbol;
    for_each_character(piece, [&](char32_t, std::string_view bytes) {
      const bool first = bytes.data() == piece.data();
      const bool last = bytes.data() + bytes.size() == piece.data() + piece.size();
      std::string_view key = bytes;
      if ((!first && !prefix_.empty()) || (last && !suffix_.empty())) {
        symbol = first ? "" : prefix_;
        symbol += bytes;
        if (last) symbol += suffix_;
        key = symbol;
      }
      const auto found = ids_.find(key);
      const auto at = static_cast<size_t>(bytes.data() - piece.data());
      const ByteRange place = {at, at + bytes.size()};
      if (found != ids_.end()) return unknown.end_with(found->second, {place, key.size()});
      const auto id_of_byte = [this](char byte) {
        return bytes_[static_cast<unsigned char>(byte)];
      };
      if (!bytes_.empty() &&
          std::all_of(key.begin(), key.end(), [&](char b) { return id_of_byte(b) >= 0; })) {
        for (const char byte : key) {
          const int32_t id = id_of_byte(byte);
          unknown.push(id, {place, tokens[static_cast<size_t>(id)]->size()});
        }
        return;
      }
      unknown.add(place);
    });
  }

  // "a b", or ["a", "b"]. The merged token has the prefix once.
  std::vector<bpe::Merge> merges_of(const Part& part, const TextIds& ids) const {
    const Part::Json& list = part.value("merges");
    if (!list.is_array()) part.refuse("must have a list as merges");
    std::vector<bpe::Merge> merges;
    merges.reserve(list.size());
    for (const Part::Json& merge : list) {
      std::string left, right;
      if (merge.is_string()) {
        const auto& text = merge.get_ref<const std::string&>();
        const size_t space = text.find(' ');
        if (space == std::string::npos) part.refuse(concat("has the merge '", text, "'"));
        left = text.substr(0, space);
        right = text.substr(space + 1);
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
                 merge[1].is_string()) {
        left = merge[0];
        right = merge[1];
      } else {
        part.refuse(concat("has the merge ", merge.dump()));
      }
      const std::string result =
          left + right.substr(right.starts_with(prefix_) ? prefix_.size() : 0);
      const auto id_of = [&](const std::string& token) {
        const auto found = ids.find(token);
        if (found == ids.end()) part.refuse(concat("merges '", token, "', which its vocab lacks"));
        return found->second;
      };
      merges.push_back({{id_of(left), id_of(right)}, id_of(result)});
    }
    return merges;
  }

  bool byte_level_, fuses_unk_ = false, whole_words_ = false;
  std::string prefix_, suffix_;
  TextIds ids_;  // with ByteLevel, by their bytes
  std::vector<int32_t> single_bytes_;
  std::vector<int32_t> bytes_;  // empty: no fallback
  std::optional<bpe::Merger> merger_;
};

}  // namespace

std::unique_ptr<const PieceModel> make_bpe(const Part& part, bool byte_level) {
  return std::make_unique<BpePieces>(part, byte_level);
}

}  // namespace tapestry::tokenizers
