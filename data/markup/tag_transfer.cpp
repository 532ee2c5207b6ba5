#include "data/markup/tag_transfer.h"

#include <algorithm>
#include <map>

#include "data/files/utf8.h"
#include "data/markup/entities.h"
#include "data/markup/tag_places.h"

namespace tapestry {
namespace {

// The places of some characters in two texts, and their entities.
struct Character {
  std::vector<size_t> there = {}, here = {};
  std::vector<const WrittenEntity*> entities = {};
};
using Characters = std::map<std::string, Character, std::less<>>;

void find_places(std::string_view text, Characters& characters,
                 std::vector<size_t> Character::*places) {
  if (characters.empty()) return;
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    next_code_point(text, end);
    const auto found = characters.find(text.substr(at, end - at));
    if (found != characters.end()) (found->second.*places).push_back(at);
  }
}

// The entities of a source that its translation has, too, by their bytes there.
class WrittenAgain {
 public:
  WrittenAgain(const MarkedText& source, const std::string& translation) {
    Characters characters;
    for (const WrittenEntity& one : source.entities) {
      characters[one.character].entities.push_back(&one);
    }
    find_places(source.text, characters, &Character::there);
    find_places(translation, characters, &Character::here);
    for (const auto& [character, its] : characters) {
      size_t next = 0;
      for (const WrittenEntity* const one : its.entities) {
        // If all came through, each keeps its number.
        if (its.here.size() == its.there.size()) {
          next =
              static_cast<size_t>(std::ranges::lower_bound(its.there, one->at) - its.there.begin());
        }
        if (next < its.here.size()) {
          by_place_[its.here[next++]] = one;
        } else {
          left_.push_back(one);
        }
      }
    }
    std::ranges::sort(left_, {}, &WrittenEntity::at);
  }

  const WrittenEntity* at(size_t place) const {
    const auto found = by_place_.find(place);
    return found == by_place_.end() ? nullptr : found->second;
  }
  // The first place from `place` on.
  size_t next(size_t place) const {
    const auto found = by_place_.lower_bound(place);
    return found == by_place_.end() ? std::string::npos : found->first;
  }
  // Those that the translation does not have.
  const std::vector<const WrittenEntity*>& left() const { return left_; }

 private:
  std::map<size_t, const WrittenEntity*> by_place_;
  std::vector<const WrittenEntity*> left_;
};

// The source with a tag for each of these entities.
MarkedText with_tags_for(const std::vector<const WrittenEntity*>& entities, MarkedText source) {
  for (const WrittenEntity* const one : entities) {
    const size_t unit = unit_at(source.units, one->at);
    const auto behind = std::ranges::upper_bound(source.tags, unit, {}, &Tag::unit);
    const auto number = static_cast<int32_t>(behind - source.tags.begin());
    source.tags.insert(behind, {.bytes = one->bytes,
                                .unit = unit,
                                .on_left = !source.units[unit].is_word,
                                .is_entity = true});
    for (Tag& tag : source.tags) tag.partner += tag.partner >= number ? 1 : 0;
  }
  return source;
}

class Writer {
 public:
  Writer(const MarkedText& source, const AlignedText& translation, const TextOut& written)
      : source_(source),
        translation_(translation),
        written_(written),
        entities_(source, translation.text) {}

  std::string write() {
    const bool html = source_.format == MarkupFormat::kHtml;
    if (html || entities_.left().empty()) return write(source_);
    return write(with_tags_for(entities_.left(), source_));
  }

 private:
  std::string write(const MarkedText& source) {
    const std::vector<TextUnit>& units = translation_.units;
    const std::vector<TagGap> places = tag_places(source, translation_);
    for (size_t gap = 0; gap < places.size(); ++gap) {
      const size_t begin = gap == 0 ? 0 : units[gap - 1].end;
      const size_t end = gap < units.size() ? units[gap].begin : translation_.text.size();
      for (const int32_t tag : places[gap].left) add(source.tags[static_cast<size_t>(tag)]);
      if (!takes_space(source, places[gap]) || end != begin + 1) add_text(begin, end);
      for (const int32_t tag : places[gap].right) add(source.tags[static_cast<size_t>(tag)]);
      if (gap < units.size()) add_text(units[gap].begin, units[gap].end);
    }
    return std::move(out_);
  }

  void add(const Tag& tag) { out_ += tag.before + tag.bytes + tag.after; }

  // Whether one of the tags is itself the white space of a gap.
  static bool takes_space(const MarkedText& source, const TagGap& gap) {
    const auto is_space = [&](int32_t tag) {
      return source.tags[static_cast<size_t>(tag)].is_space;
    };
    return std::ranges::any_of(gap.left, is_space) || std::ranges::any_of(gap.right, is_space);
  }

  void add_text(size_t begin, size_t end) {
    while (begin < end) {
      if (const WrittenEntity* const entity = entities_.at(begin)) {
        out_ += entity->bytes;
        begin += entity->character.size();
        continue;
      }
      const size_t next = std::min(end, entities_.next(begin));
      add_plain(translation_.text.substr(begin, next - begin));
      begin = next;
    }
  }

  void add_plain(std::string text) {
    if (source_.format == MarkupFormat::kHtml) {
      std::erase(text, '\n');
      text = with_entities(text);
    }
    out_ += written_(text);
  }

  const MarkedText& source_;
  const AlignedText& translation_;
  const TextOut& written_;
  WrittenAgain entities_;
  std::string out_;
};

}  // namespace

std::string with_markup(const MarkedText& source, const AlignedText& translation,
                        const TextOut& written) {
  return Writer(source, translation, written).write();
}

}  // namespace tapestry
