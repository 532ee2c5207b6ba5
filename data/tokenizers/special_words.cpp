#include "data/tokenizers/special_words.h"

#include <algorithm>
#include <string>
#include <utility>

#include "data/tokenizers/parts/added_tokens.h"

namespace tapestry {
namespace {

class SpecialWords : public Tokenizer {
 public:
  explicit SpecialWords(std::shared_ptr<const Tokenizer> plain) : plain_(std::move(plain)) {
    special_ = plain_->special();
    mask_id_ = plain_->mask_id();
    const bool finds_them = plain_->reads_special_words();
    if (finds_them) own_mask_ = plain_->piece(*mask_id_);
    if (mask_id_) words_.emplace_back(finds_them ? own_mask_ : kMaskPiece, *mask_id_);
    for (int64_t i = 0; i < plain_->sentinels(); ++i) {
      sentinel_ids_.push_back(*plain_->sentinel_id(i));
      if (!finds_them) words_.emplace_back(sentinel_piece(i), sentinel_ids_.back());
    }
  }

  std::vector<int32_t> encode(std::string_view text) const override { return encode(text, false); }
  std::vector<int32_t> encode_continuation(std::string_view text) const override {
    return encode(text, true);
  }

  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string text;
    std::vector<int32_t> run;
    const auto write = [&](const std::string& part, bool apart) {
      if (part.empty()) return;
      if (apart && !text.empty()) text += ' ';
      text += part;
    };
    // A tokenizer of characters has spaces among the ids; others drop spaces at the ends of a run.
    const bool spaces = plain_->encode(" ").empty();
    const auto write_run = [&] {
      if (!run.empty()) write(plain_->decode(run), spaces && plain_->starts_word(run[0]));
      run.clear();
    };
    for (const int32_t id : ids) {
      const auto word = std::find_if(words_.begin(), words_.end(),
                                     [id](const auto& entry) { return entry.second == id; });
      if (word == words_.end()) {
        run.push_back(id);
        continue;
      }
      write_run();
      write(word->first, spaces);
    }
    write_run();
    return text;
  }

  int64_t vocab_size() const override { return plain_->vocab_size(); }
  void forget_words() const override { plain_->forget_words(); }
  std::string piece(int32_t id) const override { return plain_->piece(id); }
  const std::string& serialized() const override { return plain_->serialized(); }
  bool starts_word(int32_t id) const override { return plain_->starts_word(id); }

 private:
  std::vector<int32_t> encode(std::string_view text, bool continued) const {
    if (!own_mask_.empty()) {
      const std::string known = with_own_mask(text);
      return continued ? plain_->encode_continuation(known) : plain_->encode(known);
    }
    std::vector<int32_t> ids;
    size_t begin = 0;
    const auto append = [&](size_t end) {
      const std::string_view part = text.substr(begin, end - begin);
      const auto more = continued ? plain_->encode_continuation(part) : plain_->encode(part);
      ids.insert(ids.end(), more.begin(), more.end());
    };
    for (size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at)) {
      const auto word = std::find_if(words_.begin(), words_.end(), [&](const auto& entry) {
        return text.substr(at).starts_with(entry.first);
      });
      if (word == words_.end()) {
        ++at;
        continue;
      }
      append(at);
      ids.push_back(word->second);
      begin = at += word->first.size();
      continued = true;
    }
    append(text.size());
    return ids;
  }

  // "<mask>" as the tokenizer itself calls it.
  std::string with_own_mask(std::string_view text) const {
    std::string known;
    for (size_t at = 0; at < text.size();) {
      const bool mask = text.substr(at).starts_with(kMaskPiece);
      known += mask ? std::string_view(own_mask_) : text.substr(at, 1);
      at += mask ? std::string_view(kMaskPiece).size() : 1;
    }
    return known;
  }

  std::shared_ptr<const Tokenizer> plain_;
  std::string own_mask_;  // of a tokenizer that finds it in a text
  std::vector<std::pair<std::string, int32_t>> words_;
};

class MarkedTokenizer : public Tokenizer {
 public:
  MarkedTokenizer(std::shared_ptr<const Tokenizer> plain, const std::vector<Mark>& marks,
                  const std::vector<int32_t>& ends)
      : plain_(std::move(plain)) {
    special_ = plain_->special();
    if (!special_.one_text) special_.frames_once = true;
    for (const int32_t end : ends) {
      if (!special_.is_end(end)) special_.more_ends.push_back(end);
    }
    mask_id_ = plain_->mask_id();
    for (int64_t i = 0; i < plain_->sentinels(); ++i) {
      sentinel_ids_.push_back(*plain_->sentinel_id(i));
    }
    symbol_ids_ = plain_->symbols();
    for (const Mark& mark : marks) finder_.add(mark.id, mark.text);
  }

  std::vector<int32_t> encode(std::string_view text) const override { return encode(text, false); }
  std::vector<int32_t> encode_continuation(std::string_view text) const override {
    return encode(text, true);
  }
  std::vector<PlacedToken> encode_with_places(std::string_view text) const override {
    std::vector<PlacedToken> tokens;
    for (const tokenizers::TextSection& section : finder_.sections(text)) {
      const int64_t at = section.text.data() - text.data();
      if (section.id >= 0) {
        tokens.push_back({section.id, at, at + std::ssize(section.text)});
        continue;
      }
      for (const PlacedToken& token : plain_->encode_with_places(section.text)) {
        tokens.push_back({token.id, at + token.begin, at + token.end});
      }
    }
    return tokens;
  }
  std::string decode(const std::vector<int32_t>& ids) const override { return plain_->decode(ids); }
  int64_t vocab_size() const override { return plain_->vocab_size(); }
  std::string piece(int32_t id) const override { return plain_->piece(id); }
  const std::string& serialized() const override { return plain_->serialized(); }
  bool starts_word(int32_t id) const override { return plain_->starts_word(id); }
  bool reads_special_words() const override { return plain_->reads_special_words(); }
  void forget_words() const override { plain_->forget_words(); }

 private:
  std::vector<int32_t> encode(std::string_view text, bool continued) const {
    std::vector<int32_t> ids;
    for (const tokenizers::TextSection& section : finder_.sections(text)) {
      if (section.id >= 0) {
        ids.push_back(section.id);
      } else {
        const auto more =
            continued ? plain_->encode_continuation(section.text) : plain_->encode(section.text);
        ids.insert(ids.end(), more.begin(), more.end());
      }
      continued = false;
    }
    return ids;
  }

  std::shared_ptr<const Tokenizer> plain_;
  tokenizers::TokenFinder finder_;
};

}  // namespace

std::shared_ptr<const Tokenizer> with_marks(std::shared_ptr<const Tokenizer> tokenizer,
                                            const std::vector<Mark>& marks,
                                            const std::vector<int32_t>& ends) {
  return std::make_shared<MarkedTokenizer>(std::move(tokenizer), marks, ends);
}

std::shared_ptr<const Tokenizer> with_special_words(std::shared_ptr<const Tokenizer> tokenizer) {
  if (tokenizer->reads_special_words() && !tokenizer->mask_id()) return tokenizer;
  return std::make_shared<SpecialWords>(std::move(tokenizer));
}

TokenizerPair with_special_words(const TokenizerPair& tokenizers) {
  const auto source = with_special_words(tokenizers.source);
  return {source, tokenizers.one() ? source : with_special_words(tokenizers.target),
          tokenizers.came_with};
}

}  // namespace tapestry
