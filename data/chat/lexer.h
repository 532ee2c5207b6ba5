// Cuts the source of a chat template into tokens; private to data/chat/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/chat/value.h"

namespace tapestry::jinja {

/// Lines and columns of the source, both from 1; columns count bytes.
struct Place {
  int line = 1;
  int column = 1;
};

/// A Problem with its place.
struct PlacedProblem {
  Place place;
  std::string message;
};

struct Token {
  enum class Kind {
    kText,           ///< outside of tags, after the rules of white space
    kVariableBegin,  ///< {{
    kVariableEnd,
    kBlockBegin,  ///< {%
    kBlockEnd,
    kName,
    kString,  ///< without quotes, escapes resolved
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };

  Kind kind = Kind::kEnd;
  std::string text = {};
  Place place = {};

  /// As messages show it: "'endfor'", "a text", "the end of the template".
  std::string shown() const;
};

/// Jinja's tokens with trim_blocks and lstrip_blocks, as transformers sets them: the line end after
/// a block or a comment, and the white space in front of one that begins a line, are no text.
/// Comments and the marks of raw blocks are left out. Throws PlacedProblem.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace tapestry::jinja
