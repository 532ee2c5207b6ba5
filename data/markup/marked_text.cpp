#include "data/markup/marked_text.h"

#include <algorithm>
#include <map>
#include <utility>

#include "data/files/utf8.h"
#include "data/markup/entities.h"

namespace tapestry {
namespace {

// Names for pairs, and what the text around a tag is, while it is read.
struct ReadTag {
  FoundTag found = {};
  size_t words = 0;  // bytes of the text before it that are no white space
  size_t at = 0;     // byte of the text
};

class Reader {
 public:
  Reader(std::string_view source, MarkupFormat format) : source_(source), finder_(source, format) {
    marked_.format = format;
  }

  MarkedText read() {
    // Whether a tag stands at the word before it depends on what its pair encloses.
    find_items();
    match();
    mark_overlaps();
    for (const Item& item : items_) take(item);
    end_run(/*goes_on=*/false);
    add_units();
    return std::move(marked_);
  }

 private:
  enum class ItemKind { kText, kSpace, kTag, kEntity };
  struct Item {
    ItemKind kind;
    std::string_view bytes;
    std::string character = {};  // of an entity that is text
  };

  bool html() const { return marked_.format == MarkupFormat::kHtml; }

  void add_tag(std::string_view bytes, FoundTag found) {
    items_.push_back({ItemKind::kTag, bytes, {}});
    marked_.tags.push_back({.bytes = std::string(bytes), .closes = found.kind == TagKind::kCloses});
    read_.push_back({.found = std::move(found), .words = words_});
  }

  void find_items() {
    for (size_t at = 0; at < source_.size();) {
      const char c = source_[at];
      if (c == '<') {
        FoundTag found = finder_.at(at);
        if (found.kind != TagKind::kNone) {
          const size_t length = found.length;
          add_tag(source_.substr(at, length), std::move(found));
          at += length;
          continue;
        }
      }
      const Entity entity = c == '&' ? entity_at(source_, at) : Entity{};
      if (entity.length > 0) {
        add_entity(entity, at);
        at += entity.length;
        continue;
      }
      size_t end = at + 1;
      const bool white = is_white(c);
      while (end < source_.size() && source_[end] != '<' && source_[end] != '&' &&
             is_white(source_[end]) == white) {
        ++end;
      }
      items_.push_back({white ? ItemKind::kSpace : ItemKind::kText, source_.substr(at, end - at)});
      if (!white) words_ += end - at;
      at = end;
    }
  }

  // A character of a word is read with the word, and in HTML each; others come out as a tag does.
  void add_entity(const Entity& entity, size_t at) {
    const std::string_view bytes = source_.substr(at, entity.length);
    const size_t behind = at + entity.length;
    const bool space = entity.character && is_space(*entity.character);
    if (entity.character && !space &&
        (html() || is_word_character(*entity.character) || (after_word() && is_word(behind)))) {
      items_.push_back({ItemKind::kText, bytes});
      append_utf8(items_.back().character, *entity.character);
      ++words_;
      return;
    }
    add_tag(bytes, {.kind = TagKind::kLone, .length = entity.length});
    items_.back().kind = ItemKind::kEntity;
    marked_.tags.back().is_entity = true;
    marked_.tags.back().is_space = space;
  }

  bool is_word(size_t at) const {
    if (at >= source_.size()) return false;
    const Entity entity = source_[at] == '&' ? entity_at(source_, at) : Entity{};
    if (entity.length > 0) return entity.character && is_word_character(*entity.character);
    return is_word_character(next_code_point(source_, at));
  }

  // Whether the last item ends with a character of a word.
  bool after_word() const {
    if (items_.empty() || items_.back().kind != ItemKind::kText) return false;
    const Item& last = items_.back();
    const std::string_view text = last.character.empty() ? last.bytes : last.character;
    size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    return is_word_character(next_code_point(text, at));
  }

  static bool begins_with_sign(const Item& item) {
    size_t end = 0;
    return !is_word_character(
        next_code_point(item.character.empty() ? item.bytes : item.character, end));
  }

  void match() {
    std::map<std::string, std::vector<int32_t>> open;
    for (int32_t i = 0; i < std::ssize(read_); ++i) {
      const FoundTag& found = read_[static_cast<size_t>(i)].found;
      if (found.kind == TagKind::kOpens) open[found.name].push_back(i);
      if (found.kind != TagKind::kCloses) continue;
      std::vector<int32_t>& same = open[found.name];
      if (same.empty()) continue;
      tag(i).partner = same.back();
      tag(same.back()).partner = i;
      same.pop_back();
    }
  }

  // Takes one pair of each two that overlap: the one that ends inside of the other.
  void mark_overlaps() {
    std::vector<int32_t> open;
    std::vector<bool> ended(marked_.tags.size());
    for (int32_t i = 0; i < std::ssize(marked_.tags); ++i) {
      const int32_t partner = tag(i).partner;
      if (partner < 0) continue;
      if (!tag(i).closes) {
        open.push_back(i);
        continue;
      }
      while (!open.empty() && ended[static_cast<size_t>(open.back())]) open.pop_back();
      if (open.back() == partner) {
        open.pop_back();
      } else {
        ended[static_cast<size_t>(partner)] = true;
        tag(i).overlaps = tag(partner).overlaps = true;
      }
    }
  }

  void take(const Item& item) {
    switch (item.kind) {
      case ItemKind::kSpace:
        spaces_.back() += item.bytes;
        return;
      case ItemKind::kTag:
      case ItemKind::kEntity:
        run_.push_back(next_tag_++);
        spaces_.emplace_back();
        return;
      case ItemKind::kText:
        sign_follows_ = begins_with_sign(item);
        end_run(/*goes_on=*/true);
        if (!item.character.empty()) {
          marked_.entities.push_back(
              {marked_.text.size(), item.character, std::string(item.bytes)});
        }
        marked_.text += item.character.empty() ? item.bytes : item.character;
        return;
    }
  }

  bool encloses_words(int32_t i) const {
    const int32_t partner = marked_.tags[static_cast<size_t>(i)].partner;
    return partner >= 0 &&
           read_[static_cast<size_t>(i)].words != read_[static_cast<size_t>(partner)].words;
  }

  // How many of the tags between two words stand at the first: up to the last that closes a pair,
  // and behind it lone ones with white space behind them only.
  size_t tags_on_left() const {
    size_t count = 0;
    for (size_t i = 0; i < run_.size(); ++i) {
      if (tag(run_[i]).closes && encloses_words(run_[i])) count = i + 1;
    }
    while (count < run_.size() && spaces_[count].empty() && !encloses_words(run_[count])) ++count;
    const auto is_filled = [](const std::string& space) { return !space.empty(); };
    const bool spaced =
        std::any_of(spaces_.begin() + static_cast<std::ptrdiff_t>(count), spaces_.end(), is_filled);
    // Without white space behind them they stand at the second; an entity not at a sign.
    const auto stays = [&](int32_t i) {
      return encloses_words(i) || (tag(i).is_entity && sign_follows_);
    };
    while (!spaced && count > 0 && !stays(run_[count - 1])) --count;
    return count;
  }

  // The one piece of white space that the text has between two words, if there is any.
  size_t kept_space(size_t left) const {
    for (size_t i = left; i < spaces_.size(); ++i) {
      if (!spaces_[i].empty()) return i;
    }
    for (size_t i = left; i-- > 0;) {
      if (!spaces_[i].empty()) return i;
    }
    return spaces_.size();
  }

  // HTML's white space has no line ends, which part its blocks.
  std::string as_read(const std::string& space) const {
    return html() && space.find_first_not_of(' ') != std::string::npos ? " " : space;
  }

  // Sees to white space and tags that stand between two words, or at an end of the source.
  void end_run(bool goes_on) {
    const bool between = goes_on && !marked_.text.empty();
    if (run_.empty() && (between || !html())) {
      marked_.text += as_read(spaces_[0]);
    } else if (!run_.empty() || !spaces_[0].empty()) {
      place_run(between, goes_on);
    }
    run_.clear();
    spaces_.assign(1, {});
  }

  void place_run(bool between, bool goes_on) {
    if (run_.empty()) {  // white space at an end of HTML is markup
      marked_.tags.insert(marked_.tags.begin() + next_tag_, Tag{});
      read_.insert(read_.begin() + next_tag_, ReadTag{.words = goes_on ? 0 : words_});
      for (Tag& one : marked_.tags) one.partner += one.partner >= next_tag_ ? 1 : 0;
      run_.push_back(next_tag_++);
      spaces_.emplace_back();
    }
    const size_t left = between ? tags_on_left() : goes_on ? 0 : run_.size();
    const bool block = std::ranges::any_of(
        run_, [&](int32_t i) { return read_[static_cast<size_t>(i)].found.is_block; });
    const size_t kept = between && !block ? kept_space(left) : spaces_.size();
    for (size_t i = 0; i < run_.size(); ++i) {
      tag(run_[i]).on_left = i < left;
      read_[static_cast<size_t>(run_[i])].at = marked_.text.size();
    }
    for (size_t i = 0; i < spaces_.size(); ++i) {
      if (i == kept) continue;
      const bool before = i < left || (i == left && left == 0);
      std::string& space = before ? tag(run_[i]).before : tag(run_[i - 1]).after;
      space += spaces_[i];
    }
    const auto entity = std::ranges::find_if(run_, [&](int32_t i) { return tag(i).is_space; });
    const bool only = between && !block && kept == spaces_.size() && entity != run_.end();
    for (const int32_t i : run_) tag(i).is_space = only && i == *entity;
    if (between && block) {
      marked_.text += '\n';
    } else if (only) {
      marked_.text += ' ';
    } else if (kept < spaces_.size()) {
      marked_.text += as_read(spaces_[kept]);
    }
  }

  void add_units() {
    std::vector<TextUnit>& units = marked_.units;
    const std::vector<TextUnit> whole = text_units(marked_.text);
    size_t next = 0;  // of the tags
    for (TextUnit unit : whole) {
      for (; next < read_.size() && read_[next].at < unit.end; ++next) {
        const size_t at = read_[next].at;
        if (at <= unit.begin) continue;
        units.push_back({unit.begin, at, unit.is_word});
        unit.begin = at;
      }
      units.push_back(unit);
    }
    for (size_t i = 0; i < read_.size(); ++i) {
      marked_.tags[i].unit = unit_at(units, read_[i].at);
    }
  }

  Tag& tag(int32_t i) { return marked_.tags[static_cast<size_t>(i)]; }
  const Tag& tag(int32_t i) const { return marked_.tags[static_cast<size_t>(i)]; }

  std::string_view source_;
  TagFinder finder_;
  MarkedText marked_;
  std::vector<Item> items_;
  std::vector<ReadTag> read_;  // of the tags
  size_t words_ = 0;
  int32_t next_tag_ = 0;
  std::vector<int32_t> run_;                // tags since the last word
  bool sign_follows_ = false;               // behind these tags
  std::vector<std::string> spaces_ = {{}};  // around them
};

}  // namespace

MarkedText read_markup(std::string_view source, MarkupFormat format) {
  return Reader(source, format).read();
}

MarkedText without_markup(std::string text) {
  MarkedText marked{.text = std::move(text)};
  marked.units = text_units(marked.text);
  return marked;
}

}  // namespace tapestry
