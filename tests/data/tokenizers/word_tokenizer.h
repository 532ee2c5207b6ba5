// A tokenizer that tests can predict: one id per word between spaces, the word's length plus 4.
#pragma once

#include <sstream>

#include "data/tokenizers/tokenizer.h"

namespace tapestry {

class WordTokenizer : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    std::istringstream words{std::string(text)};
    for (std::string word; words >> word;) ids.push_back(static_cast<int32_t>(word.size()) + 4);
    return ids;
  }
  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string text;
    for (const int32_t id : ids) text += piece(id);
    return text;
  }
  int64_t vocab_size() const override { return 1000; }
  std::string piece(int32_t id) const override {
    return std::string(static_cast<size_t>(id - 4), 'x');
  }
  const std::string& serialized() const override { return bytes_; }

 private:
  std::string bytes_;
};

inline TokenizerPair word_tokenizers() {
  const auto words = std::make_shared<WordTokenizer>();
  return {words, words};
}

}  // namespace tapestry
