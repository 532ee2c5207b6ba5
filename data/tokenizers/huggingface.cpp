// tokenizer.json of Hugging Face's library; its parts are read from the file
// (data/tokenizers/parts). A text goes through these steps: added tokens are cut out; the rest is
// normalised; added tokens of normalised text are cut out; the rest is cut into pieces; the model
// makes ids of each.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/tokenizers/huggingface_files.h"
#include "data/tokenizers/languages.h"
#include "data/tokenizers/parts/added_tokens.h"
#include "data/tokenizers/parts/decoders.h"
#include "data/tokenizers/parts/normalizers.h"
#include "data/tokenizers/parts/piece_models.h"
#include "data/tokenizers/parts/post_processors.h"
#include "data/tokenizers/parts/pre_tokenizers.h"
#include "data/tokenizers/parts/unicode_text.h"
#include "data/tokenizers/tokenizer_types.h"
#include "data/tokenizers/word_cache.h"

namespace tapestry::tokenizers {
namespace {

using Json = nlohmann::json;

class HuggingFaceTokenizer : public Tokenizer {
 public:
  HuggingFaceTokenizer(const std::string& bytes, const std::string& name) : bytes_(bytes) {
    const HuggingFaceFiles files = split_huggingface(bytes, name);
    const Json json = Json::parse(files.tokenizer, nullptr, /*allow_exceptions=*/false);
    const Part file(json, name);
    file.allow({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                "post_processor", "decoder", "model"});
    if (file.has("normalizer")) normalize_ = make_normalizer(file.part("normalizer"));
    if (file.has("pre_tokenizer")) {
      PreTokenizer pre = make_pre_tokenizer(file.part("pre_tokenizer"));
      cut_ = pre.cut;
      byte_level_ = pre.byte_level;
    }
    model_ = make_piece_model(file.part("model"), byte_level_);
    if (file.has("decoder")) decode_ = make_decoder(file.part("decoder"));
    tokens_ = model_->tokens;
    if (file.has("added_tokens")) add_tokens(file, files.ids.rows);
    read_ids(files.ids, file);
    const Part model = file.part("model");
    prefix_ = model.text("continuing_subword_prefix", "");
    of_whole_words_ = model.text("type", "") == "WordLevel";
  }

  std::vector<int32_t> encode(std::string_view text) const override { return encode(text, false); }
  std::vector<PlacedToken> encode_with_places(std::string_view text) const override {
    std::vector<PlacedToken> tokens;
    Found found{.placed = &tokens};
    encode_whole(PlacedText::with_places(text), /*continued=*/false, found);
    return tokens;
  }
  std::vector<int32_t> encode_continuation(std::string_view text) const override {
    return encode(text, true);
  }

  std::string decode(const std::vector<int32_t>& ids) const override {
    std::vector<std::string> tokens;
    for (const int32_t id : ids) {
      check_id(id);
      const auto place = static_cast<size_t>(id);
      if (silent_[place] || !tokens_[place]) continue;
      const auto changed = spoken_.find(id);
      tokens.push_back(changed == spoken_.end() ? *tokens_[place] : changed->second);
    }
    if (decode_) decode_(tokens);
    std::string text;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && !decode_) text += ' ';
      text += tokens[i];
    }
    return text;
  }

  int64_t vocab_size() const override { return std::ssize(tokens_); }
  void forget_words() const override { cache_.clear(); }
  std::string piece(int32_t id) const override {
    check_id(id);
    const auto& token = tokens_[static_cast<size_t>(id)];
    return token ? *token : concat("<unused_", id, '>');
  }
  const std::string& serialized() const override { return bytes_; }
  bool reads_special_words() const override { return true; }

  bool starts_word(int32_t id) const override {
    const std::string text = piece(id);
    if (of_whole_words_) return true;
    if (!prefix_.empty()) return !text.starts_with(prefix_);
    return text.starts_with("\xE2\x96\x81") || text.starts_with("\xC4\xA0");  // U+2581, U+0120
  }

 private:
  // An added token without a row in the model's table is ignored: its text stays as it is.
  void add_tokens(const Part& file, int64_t rows) {
    for (const Part& part : file.parts("added_tokens")) {
      const AddedToken token(part);
      if (rows > 0 && token.id >= rows) continue;
      const auto place = static_cast<size_t>(token.id);
      if (place >= tokens_.size()) tokens_.resize(place + 1);
      tokens_[place] = token.content;
      if (token.special) special_.further.push_back(token.id);
      if (!token.normalized) {
        raw_.add(token, token.content);
        continue;
      }
      PlacedText content(token.content);
      if (normalize_) normalize_(content, /*continued=*/false);
      normalized_.add(token, content.text);
      spoken_.emplace(token.id, content.text);
    }
    silent_.assign(tokens_.size(), false);
    for (const int32_t id : special_.further) silent_[static_cast<size_t>(id)] = true;
  }

  void read_ids(const HuggingFaceIds& ids, const Part& file) {
    const auto known = [&](const char* what, int64_t id) {
      if (id < 0 || id >= std::max(std::ssize(tokens_), ids.rows)) {
        file.refuse(concat("has no token with the id ", id, ", which is to be its ", what));
      }
      return static_cast<int32_t>(id);
    };
    if (ids.rows > 0 && ids.rows < std::ssize(tokens_)) {
      file.refuse(concat("has ", tokens_.size(), " tokens, expected ", ids.rows, " at most"));
    }
    tokens_.resize(static_cast<size_t>(std::max(ids.rows, std::ssize(tokens_))));
    silent_.resize(tokens_.size());
    for (int32_t id = 0; id < vocab_size(); ++id) {
      if (!tokens_[static_cast<size_t>(id)]) special_.unused.push_back(id);
    }
    special_.pad = ids.pad ? std::optional(known("pad", *ids.pad)) : std::nullopt;
    special_.unk = ids.unk ? std::optional(known("unk", *ids.unk)) : model_->unk;
    special_.bos = known("bos", ids.bos);
    special_.eos = known("eos", ids.eos);
    for (const int64_t end : ids.ends) special_.more_ends.push_back(known("end", end));
    special_.frames_once = ids.frames_once;
    if (ids.start) special_.start = known("start", *ids.start);
    if (ids.first) special_.first = known("first", *ids.first);
    if (ids.mask) mask_id_ = known("mask", *ids.mask);
    Frames frames;
    if (file.has("post_processor")) frames = frames_of(file.part("post_processor"));
    std::vector<const std::vector<int32_t>*> around = {&frames.one.before, &frames.one.after};
    if (frames.two) {
      around.insert(around.end(), {&frames.two->before, &frames.two->between, &frames.two->after});
    }
    for (const std::vector<int32_t>* const some : around) {
      for (const int32_t id : *some) known("frame", id);
    }
    set_languages(ids, frames.one);
    special_.one_text = frames.one;
    special_.two_texts = frames.two;
    for (int64_t i = 0;; ++i) {
      const auto found = std::find(tokens_.begin(), tokens_.end(), sentinel_piece(i));
      if (found == tokens_.end()) break;
      sentinel_ids_.push_back(static_cast<int32_t>(found - tokens_.begin()));
    }
  }

  // Languages count only where texts have one around them, which may be another than the file's.
  void set_languages(const HuggingFaceIds& ids, TextFrame& frame) {
    std::vector<int32_t> languages;
    for (const int32_t id : special_.further) {
      if (is_language_token(piece(id))) languages.push_back(id);
    }
    std::ranges::sort(languages);
    bool any = false;
    for (std::vector<int32_t>* const side : {&frame.before, &frame.after}) {
      for (int32_t& id : *side) {
        if (!std::ranges::binary_search(languages, id)) continue;
        any = true;
        if (ids.language) id = static_cast<int32_t>(*ids.language);
      }
    }
    if (any) special_.languages = std::move(languages);
  }

  // Destination of the tokens: only ids, or ids with their places.
  struct Found {
    std::vector<int32_t> ids = {};
    std::vector<PlacedToken>* placed = nullptr;

    void add(int32_t id, const PlacedText& text, size_t begin, size_t end) {
      if (placed == nullptr) return ids.push_back(id);
      const auto [first, last] = text.place(begin, end);
      placed->push_back({id, static_cast<int64_t>(first), static_cast<int64_t>(last)});
    }
  };

  std::vector<int32_t> encode(std::string_view text, bool continued) const {
    Found found;
    found.ids.reserve(text.size() / 3 + 1);
    std::string buffer;
    encode_whole(PlacedText(well_formed(text, buffer)), continued, found);
    return std::move(found.ids);
  }

  void encode_whole(const PlacedText& text, bool continued, Found& found) const {
    for_each_section(raw_, text, found, [&](PlacedText part, bool begins) {
      encode_text(std::move(part), {begins, continued && begins}, found);
    });
  }

  void encode_text(PlacedText text, const PiecePlace& place, Found& found) const {
    if (normalize_) normalize_(text, place.continued);
    if (normalized_.empty()) return encode_normalized(std::move(text), place, found);
    for_each_section(normalized_, text, found, [&](PlacedText part, bool begins) {
      encode_normalized(std::move(part), {place.begins_text && begins, place.continued && begins},
                        found);
    });
  }

  // Calls use(text, whether it begins the whole) for the parts between the tokens of a text.
  template <class Use>
  static void for_each_section(const TokenFinder& finder, const PlacedText& text, Found& found,
                               Use use) {
    for (const TextSection& section : finder.sections(text.text)) {
      const auto begin = static_cast<size_t>(section.text.data() - text.text.data());
      const size_t end = begin + section.text.size();
      if (section.id >= 0) {
        found.add(section.id, text, begin, end);
      } else {
        use(text.part(begin, end), begin == 0);
      }
    }
  }

  void encode_normalized(PlacedText text, const PiecePlace& place, Found& found) const {
    if (text.text.empty()) return;
    std::vector<PlacedText> pieces;
    pieces.push_back(std::move(text));
    if (cut_) cut_(pieces, place);
    for (const PlacedText& piece : pieces) {
      if (found.placed != nullptr) {
        add_placed(piece, found);
        continue;
      }
      cache_.with(
          piece.text, 0,
          [&](std::vector<int32_t>& made) { model_->encode(piece.text, made, nullptr); },
          [&](std::span<const int32_t> known) {
            found.ids.insert(found.ids.end(), known.begin(), known.end());
          });
    }
  }

  void add_placed(const PlacedText& piece, Found& found) const {
    std::vector<int32_t> ids;
    std::vector<ByteRange> places;
    model_->encode(piece.text, ids, &places);
    for (size_t i = 0; i < ids.size(); ++i) {
      found.add(ids[i], piece, places[i].first, places[i].second);
    }
  }

  void check_id(int32_t id) const {
    check(id >= 0 && id < vocab_size(), "tokenizer", "ids must be in [0, ", vocab_size(), "), got ",
          id, '.');
  }

  std::string bytes_;
  TextChange normalize_;  // may be empty
  Cut cut_;               // may be empty
  Decoder decode_;        // empty: tokens are separated by spaces
  bool byte_level_ = false;
  std::string prefix_;  // of tokens inside a word, in BERT's way
  bool of_whole_words_ = false;
  std::unique_ptr<const PieceModel> model_;
  std::vector<std::optional<std::string>> tokens_;
  std::vector<bool> silent_;  // tokens that decoding skips
  TokenFinder raw_, normalized_;
  std::unordered_map<int32_t, std::string> spoken_;  // tokens that decode to their normalised form
  mutable WordCache cache_;
};

}  // namespace

std::shared_ptr<const Tokenizer> train_huggingface(const TokenizerOptions&, const LineSource&,
                                                   uint64_t) {
  fail_option("type huggingface cannot be trained: path must name a tokenizer.json.");
}

std::shared_ptr<const Tokenizer> load_huggingface(const std::string& bytes,
                                                  const std::string& name) {
  return std::make_shared<HuggingFaceTokenizer>(bytes, name);
}

}  // namespace tapestry::tokenizers
