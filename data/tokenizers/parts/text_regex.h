// Regular expressions in the syntax of Ruby over UTF-8, which tokenizer.json uses: Oniguruma.
// Private to data/.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/parts/placed_text.h"

namespace tapestry::tokenizers {

/// Immutable and safe to use from several threads at once.
class TextRegex {
 public:
  /// Throws Error(kData), beginning with `place`, if `pattern` is no expression.
  TextRegex(const std::string& pattern, const std::string& place);

  /// All matches that do not overlap, from the left; an empty match never where another ends. None
  /// in an empty text. `text` is well-formed UTF-8.
  void find_all(std::string_view text, std::vector<ByteRange>& matches) const;

 private:
  struct Free {
    void operator()(void* regex) const;
  };
  std::unique_ptr<void, Free> regex_;
};

}  // namespace tapestry::tokenizers
