// A text whose markup is taken out, with all that is needed to put it into a translation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/markup/tag_syntax.h"
#include "data/markup/text_units.h"

namespace tapestry {

/// What stands in the source and not in the text: a tag, or an entity that is no part of a word.
struct Tag {
  std::string bytes;
  size_t unit = 0;       ///< of the text, that it stands before
  int32_t partner = -1;  ///< the other tag of its pair; -1: it has none
  bool closes = false;
  /// Its pair overlaps another one, each having one of its tags inside of the other.
  bool overlaps = false;
  bool on_left = false;    ///< it stands at the word before it, not at the one behind it
  bool is_entity = false;  ///< not a tag
  bool is_space = false;   ///< an entity that is the only white space between two words
  std::string before = {}, after = {};  ///< white space around it that the text does not have

  bool opens() const { return partner >= 0 && !closes; }
};

/// An entity whose character stands in the text.
struct WrittenEntity {
  size_t at = 0;          ///< byte of the text
  std::string character;  ///< as the text has it
  std::string bytes;      ///< as the source has it
};

struct MarkedText {
  MarkupFormat format = MarkupFormat::kXml;
  /// What the model reads. HTML's blocks are parted by \n, which has no other meaning there.
  std::string text = {};
  std::vector<TextUnit> units = {};  ///< of the text; those with a tag inside are cut there
  std::vector<Tag> tags = {};        ///< as the source has them
  std::vector<WrittenEntity> entities = {};
};

/// Takes markup out of well-formed UTF-8. Of white space that only tags part, the text has one
/// piece. What is no tag is text. A tag pairs with the nearest one before it that is open and has
/// its name.
MarkedText read_markup(std::string_view source, MarkupFormat format);
/// A text that has no markup, whatever it looks like.
MarkedText without_markup(std::string text);

}  // namespace tapestry
