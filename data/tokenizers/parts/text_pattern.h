// {"String": ...} or {"Regex": ...} of a tokenizer.json; private to data/tokenizers/parts/.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/parts/part.h"
#include "data/tokenizers/parts/text_regex.h"

namespace tapestry::tokenizers {

class TextPattern {
 public:
  explicit TextPattern(const Part& part) {
    part.allow({"String", "Regex"});
    if (part.has("Regex")) {
      regex_.emplace(part.text("Regex"), part.place());
    } else {
      literal_ = part.text("String");
      if (literal_.empty()) part.refuse("must not be empty");
    }
  }

  /// See TextRegex.
  void find_all(std::string_view text, std::vector<ByteRange>& matches) const {
    if (regex_) return regex_->find_all(text, matches);
    matches.clear();
    for (size_t at = text.find(literal_); at != std::string_view::npos;
         at = text.find(literal_, at + literal_.size())) {
      matches.emplace_back(at, at + literal_.size());
    }
  }

 private:
  std::string literal_;
  std::optional<TextRegex> regex_;
};

}  // namespace tapestry::tokenizers
