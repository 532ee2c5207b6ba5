// What translations begin with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/tasks/answers/translator.h"
#include "data/files/text.h"

namespace tapestry {

/// The beginning of each translation: a line of a file, or the second column of the input.
class Prefixes {
 public:
  /// Without a path and a column there are none.
  Prefixes(const std::string& path, bool in_column);

  /// Takes the prefix of the next line of the input, which loses its other columns. Throws
  /// Error(kData) at the end of the file.
  std::string take(std::string& line);
  /// Call at the end of the input. Throws Error(kData) if the file goes on.
  void check_end();
  bool any() const { return in_column_ || file_; }

 private:
  bool in_column_;
  std::optional<LineReader> file_;
};

/// The tokens of the prefix of a line. Throws Error(kData) if the models cannot write them.
std::vector<int32_t> prefix_tokens(const Translator& models, const std::string& text, int64_t line);

}  // namespace tapestry
