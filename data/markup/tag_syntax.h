// Tags of XML and HTML in a text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tapestry {

enum class MarkupFormat {
  kXml,   ///< attributes have quoted values; entities come out as they went in
  kHtml,  ///< also names in any case, void elements, blocks; entities are text
};

/// What separates attributes, and words of a text.
inline bool is_white(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f';
}

enum class TagKind { kNone, kOpens, kCloses, kLone };

/// A tag, comment, declaration, instruction or CDATA section, or in HTML a whole element whose
/// content is no language: a script, a style, code.
struct FoundTag {
  TagKind kind = TagKind::kNone;
  size_t length = 0;      ///< bytes; 0 for what is no tag, which is text
  std::string name = {};  ///< in HTML in lower case; none for a lone one
  bool is_block = false;  ///< in HTML: no sentence goes on behind it
};

/// Finds the tags of one text from its beginning on. The time grows with the text's length only,
/// whatever stands in it.
class TagFinder {
 public:
  TagFinder(std::string_view text, MarkupFormat format) : text_(text), format_(format) {}

  /// The tag that begins with the < at byte `at`, which never decreases from call to call.
  FoundTag at(size_t at);

 private:
  FoundTag to(size_t at, std::string_view end);
  FoundTag closing(size_t at);
  FoundTag opening(size_t at);
  bool skip_attributes(size_t& at);
  bool skip_value(size_t& at);
  size_t find(std::string_view what, size_t from);
  size_t skip_space(size_t at) const;
  size_t skip_name(size_t at) const;
  bool html() const { return format_ == MarkupFormat::kHtml; }
  char byte(size_t at) const { return at < text_.size() ? text_[at] : '\0'; }

  std::string_view text_;
  MarkupFormat format_;
  std::map<std::string, bool> missing_ = {};  // what the rest of the text does not have
};

}  // namespace tapestry
