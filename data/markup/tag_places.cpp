#include "data/markup/tag_places.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace tapestry {
namespace {

// Units [begin, end) of the translation; nothing if it is empty.
struct Span {
  int32_t begin = std::numeric_limits<int32_t>::max();
  int32_t end = 0;
  bool empty() const { return begin >= end; }
  bool contains(const Span& other) const { return begin <= other.begin && other.end <= end; }
  void cover(const Span& other) {
    begin = std::min(begin, other.begin);
    end = std::max(end, other.end);
  }
};

// The smallest spans that cover those of a row of units: a table of the spans of 1, 2, 4, ...
// units.
class Covers {
 public:
  explicit Covers(std::vector<Span> each) : levels_{std::move(each)} {
    for (size_t step = 1; 2 * step <= levels_[0].size(); step *= 2) {
      std::vector<Span> next(levels_.back().begin(),
                             levels_.back().end() - static_cast<int64_t>(step));
      for (size_t i = 0; i < next.size(); ++i) next[i].cover(levels_.back()[i + step]);
      levels_.push_back(std::move(next));
    }
  }
  // Of the units [begin, end).
  Span of(size_t begin, size_t end) const {
    if (begin >= end) return {};
    const auto level = static_cast<size_t>(std::bit_width(end - begin) - 1);
    Span span = levels_[level][begin];
    span.cover(levels_[level][end - (size_t{1} << level)]);
    return span;
  }
  const Span& operator[](size_t unit) const { return levels_[0][unit]; }

 private:
  std::vector<std::vector<Span>> levels_;
};

std::vector<Span> spans_of(const std::vector<AlignedText::Pair>& pairs, size_t sources) {
  std::vector<Span> spans(sources);
  for (const auto& [source, target] : pairs) {
    spans.at(static_cast<size_t>(source)).cover({target, target + 1});
  }
  return spans;
}

class Placer {
 public:
  Placer(const MarkedText& source, const AlignedText& translation)
      : source_(source),
        translation_(translation),
        sources_(source.units.size()),
        targets_(static_cast<int32_t>(translation.units.size())),
        pairs_(spans_of(translation.pairs, sources_)),
        guesses_(spans_of(translation.guesses, sources_)),
        spans_(source.tags.size()),
        parents_(source.tags.size(), -1),
        gaps_(translation.units.size() + 1) {}

  std::vector<TagGap> place() {
    if (targets_ == 0) {
      for (int32_t i = 0; i < tags(); ++i) gaps_[0].left.push_back(i);
      return std::move(gaps_);
    }
    find_borders();
    find_neighbours();
    find_spans();
    nest_spans();
    place_pairs();
    place_points();
    std::ranges::sort(left_);
    std::ranges::sort(right_);
    for (const Event& event : left_) gaps_[event.gap].left.push_back(event.tag);
    for (const Event& event : right_) gaps_[event.gap].right.push_back(event.tag);
    return std::move(gaps_);
  }

 private:
  // A tag in a gap, by its rank there and its number.
  struct Event {
    size_t gap;
    int32_t rank;
    int32_t tag;
    auto operator<=>(const Event&) const = default;
  };

  const Tag& tag(int32_t i) const { return source_.tags[static_cast<size_t>(i)]; }
  int32_t tags() const { return static_cast<int32_t>(source_.tags.size()); }
  Span& span(int32_t opening) { return spans_[static_cast<size_t>(opening)]; }
  const Span& span(int32_t opening) const { return spans_[static_cast<size_t>(opening)]; }
  int32_t parent(int32_t i) const { return parents_[static_cast<size_t>(i)]; }

  // Whether a block begins or ends at each gap between units, both ends of the text among them.
  static std::vector<bool> borders_of(const std::string& text, const std::vector<TextUnit>& units) {
    std::vector<bool> borders(units.size() + 1, true);
    for (size_t gap = 1; gap < units.size(); ++gap) {
      const size_t begin = units[gap - 1].end;
      borders[gap] = text.substr(begin, units[gap].begin - begin).find('\n') != std::string::npos;
    }
    return borders;
  }

  // How far units that are aligned with nothing go on, from each gap, if they do so up to a border.
  void find_borders() {
    borders_ = borders_of(source_.text, source_.units);
    for (size_t gap = 0, blocks = 0; gap <= sources_; ++gap) {
      blocks_before_.push_back(blocks);
      blocks += gap > 0 && borders_[gap] ? 1 : 0;
    }
    const std::vector<bool> ours = borders_of(translation_.text, translation_.units);
    std::vector<bool> aligned(static_cast<size_t>(targets_));
    for (const auto& pair : translation_.pairs) aligned.at(static_cast<size_t>(pair.second)) = true;
    for (int32_t gap = 0; gap <= targets_; ++gap) to_begin_.push_back(gap), to_end_.push_back(gap);
    int32_t border = 0;
    for (int32_t gap = 0; gap <= targets_; ++gap) {
      if (ours[gap]) border = gap;
      if (gap > 0 && !ours[gap] && aligned[gap - 1]) border = -1;
      if (border >= 0) to_begin_[gap] = border;
    }
    for (int32_t gap = targets_; gap >= 0; --gap) {
      if (ours[gap]) border = gap;
      if (gap < targets_ && !ours[gap] && aligned[gap]) border = -1;
      if (border >= 0) to_end_[gap] = border;
    }
    for (size_t at = 0; (at = translation_.text.find('\n', at)) != std::string::npos; ++at) {
      our_borders_.push_back(static_cast<int32_t>(unit_at(translation_.units, at)));
    }
  }

  // For each unit of the source the next one, and the one before, that is aligned.
  void find_neighbours() {
    next_.assign(sources_ + 1, sources_);
    before_.assign(sources_ + 1, sources_);
    for (size_t unit = sources_; unit-- > 0;) {
      next_[unit] = pairs_[unit].empty() ? next_[unit + 1] : unit;
    }
    for (size_t unit = 0; unit < sources_; ++unit) {
      before_[unit + 1] = pairs_[unit].empty() ? before_[unit] : unit;
    }
  }

  Span whole() const { return {0, targets_}; }

  // What each pair encloses, and the pair around each tag that encloses anything and overlaps none.
  void find_spans() {
    std::vector<int32_t> around;
    int32_t empty_until = -1;  // the end of a pair that encloses nothing
    for (int32_t i = 0; i < tags(); ++i) {
      const Tag& one = tag(i);
      if (one.partner >= 0 && one.closes && !around.empty() && around.back() == one.partner) {
        around.pop_back();
      }
      parents_[static_cast<size_t>(i)] = around.empty() ? -1 : around.back();
      if (!one.opens()) continue;
      if (i < empty_until) continue;
      const Span outer = around.empty() ? whole() : span(around.back());
      span(i) = enclosed(one.unit, tag(one.partner).unit, outer);
      if (one.overlaps) continue;
      if (span(i).empty()) {
        empty_until = one.partner;
      } else {
        around.push_back(i);
      }
    }
    // An inner pair may go on to the border of a block, where the one around it has nothing.
    for (int32_t i = tags(); i-- > 0;) {
      const bool inside = tag(i).opens() && !tag(i).overlaps && !span(i).empty() && parent(i) >= 0;
      if (inside) span(parent(i)).cover(span(i));
    }
  }

  Span enclosed(size_t begin, size_t end, const Span& outer) const {
    Span found = pairs_.of(begin, end);
    if (found.empty()) {
      found = guesses_.of(begin, end);
      if (found.empty() || !outer.contains(found)) return {};
    }
    if (borders_[begin]) found.begin = to_begin_[static_cast<size_t>(found.begin)];
    if (borders_[end]) found.end = to_end_[static_cast<size_t>(found.end)];
    return found;
  }

  // Pairs by where they begin here, the larger first; ties as in the source.
  std::vector<int32_t> pairs_in_order() const {
    std::vector<int32_t> order;
    for (int32_t i = 0; i < tags(); ++i) {
      if (tag(i).opens() && !span(i).empty()) order.push_back(i);
    }
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
      return span(a).begin != span(b).begin ? span(a).begin < span(b).begin
                                            : span(a).end > span(b).end;
    });
    return order;
  }

  // Makes the first of two pairs that would overlap here enclose the other.
  void nest_spans() {
    std::vector<int32_t> open;
    const auto close = [&] {
      const Span inner = span(open.back());
      open.pop_back();
      if (!open.empty()) span(open.back()).end = std::max(span(open.back()).end, inner.end);
    };
    for (const int32_t i : pairs_in_order()) {
      if (tag(i).overlaps) continue;
      while (!open.empty() && span(open.back()).end <= span(i).begin) close();
      open.push_back(i);
    }
    while (!open.empty()) close();
  }

  void place_pairs() {
    const std::vector<int32_t> order = pairs_in_order();
    ranks_.assign(source_.tags.size(), 0);
    for (int32_t rank = 0; rank < std::ssize(order); ++rank) {
      const int32_t i = order[static_cast<size_t>(rank)];
      ranks_[static_cast<size_t>(i)] = rank;
      right_.push_back({static_cast<size_t>(span(i).begin), 2 * rank + 1, i});
      left_.push_back({static_cast<size_t>(span(i).end), -2 * rank - 1, tag(i).partner});
    }
  }

  // Behind the opening tag of the pair around it, if that stands there, else before all.
  void put_right(int32_t gap, int32_t around, int32_t i) {
    const bool inside = around >= 0 && span(around).begin == gap;
    const int32_t rank = inside ? 2 * ranks_[static_cast<size_t>(around)] + 2 : -1;
    right_.push_back({static_cast<size_t>(gap), rank, i});
    last_on_right_ = gap;
  }
  // Before the closing tag of the pair around it, if that stands there, else behind all.
  void put_left(int32_t gap, int32_t around, int32_t i) {
    const bool inside = around >= 0 && span(around).end == gap;
    const int32_t rank = inside ? -2 * ranks_[static_cast<size_t>(around)] - 2 : 1;
    left_.push_back({static_cast<size_t>(gap), rank, i});
  }

  bool is_placed(int32_t i) const {
    const Tag& one = tag(i);
    return one.partner >= 0 && !span(one.closes ? one.partner : i).empty();
  }

  void place_points() {
    for (int32_t i = 0; i < tags(); ++i) {
      if (is_placed(i)) continue;
      // What an empty pair encloses stays in it.
      const bool group = tag(i).opens() && !tag(i).overlaps;
      const int32_t last = group ? tag(i).partner : i;
      const int32_t first = i;
      for (; i <= last; ++i) {
        if (i == first || !is_placed(i)) place_point(i, first);
      }
      i = last;
    }
  }

  // Places tag `i` where `first` belongs.
  void place_point(int32_t i, int32_t first) {
    const Tag& one = tag(first);
    const int32_t around = parent(first);
    const Span inside = around < 0 ? whole() : span(around);
    if (one.bytes.empty()) {  // white space at an end
      const bool begins = one.unit == 0;
      (begins ? left_ : right_)
          .push_back({begins ? 0 : static_cast<size_t>(targets_), -targets_, i});
      return;
    }
    if (const int32_t gap = block_gap(one); gap >= 0) {
      return put(std::clamp(gap, inside.begin, inside.end), one.on_left, around, i);
    }
    if ((one.closes && one.partner < 0) || (one.is_entity && one.on_left) ||
        is_before_lost_sign(one.unit)) {
      const int32_t gap = gap_behind(one.unit, around, inside);
      return gap < 0 ? put(inside.begin, /*on_left=*/false, around, i) : put(gap, true, around, i);
    }
    const int32_t gap = gap_before(one.unit, around, inside);
    return gap < 0 ? put(inside.end, /*on_left=*/true, around, i)
                   : put(gap, one.on_left, around, i);
  }

  // Guesses about a sign say little: what stands at the end of a word stays there.
  bool is_before_lost_sign(size_t unit) const {
    if (unit == 0 || unit == sources_) return false;
    const TextUnit &word = source_.units[unit - 1], &sign = source_.units[unit];
    return word.is_word && !sign.is_word && word.end == sign.begin && pairs_[unit].empty() &&
           !pairs_[unit - 1].empty();
  }

  // Puts a tag into a gap, inside of the pair around it, and behind those before it in the source.
  void put(int32_t gap, bool on_left, int32_t around, int32_t i) {
    const bool begins = around >= 0 && gap == span(around).begin;
    const bool ends = around >= 0 && gap == span(around).end;
    if (ends || (on_left && !begins && gap != last_on_right_)) {
      put_left(gap, around, i);
    } else {
      put_right(gap, around, i);
    }
  }

  // The place of the next unit of the source inside of the pair, or -1.
  int32_t gap_before(size_t unit, int32_t around, const Span& inside) const {
    const size_t end = around < 0 ? sources_ : tag(tag(around).partner).unit;
    if (unit >= end) return -1;
    if (!pairs_[unit].empty()) return within(pairs_[unit], inside).begin;
    if (!guesses_[unit].empty() && inside.contains(guesses_[unit])) return guesses_[unit].begin;
    const size_t next = next_[unit];
    return next < end ? within(pairs_[next], inside).begin : -1;
  }

  int32_t gap_behind(size_t unit, int32_t around, const Span& inside) const {
    const size_t begin = around < 0 ? 0 : tag(around).unit;
    if (unit <= begin) return -1;
    const size_t last = unit - 1;
    if (!pairs_[last].empty()) return within(pairs_[last], inside).end;
    if (!guesses_[last].empty() && inside.contains(guesses_[last])) return guesses_[last].end;
    const size_t before = before_[unit];
    return before < sources_ && before >= begin ? within(pairs_[before], inside).end : -1;
  }

  static Span within(const Span& found, const Span& inside) {
    return {std::clamp(found.begin, inside.begin, inside.end),
            std::clamp(found.end, inside.begin, inside.end)};
  }

  // The gap between two blocks that a tag stands at, or -1.
  int32_t block_gap(const Tag& one) const {
    if (one.unit == 0 || one.unit == sources_ || !borders_[one.unit]) return -1;
    const auto number = blocks_before_[one.unit];
    return number < our_borders_.size() ? our_borders_[number] : -1;
  }

  const MarkedText& source_;
  const AlignedText& translation_;
  size_t sources_;
  int32_t targets_;
  Covers pairs_, guesses_;
  std::vector<Span> spans_;            // of opening tags
  std::vector<int32_t> parents_;       // opening tag of the pair around each tag, or -1
  std::vector<int32_t> ranks_;         // of pairs here
  std::vector<bool> borders_;          // of the source
  std::vector<size_t> blocks_before_;  // at each gap, those that ended before it
  std::vector<int32_t> to_begin_, to_end_;
  std::vector<int32_t> our_borders_;  // gaps between the blocks of the translation
  std::vector<size_t> next_, before_;
  std::vector<Event> left_, right_;
  int32_t last_on_right_ = -1;  // gap of the last tag that is no pair's
  std::vector<TagGap> gaps_;
};

}  // namespace

std::vector<TagGap> tag_places(const MarkedText& source, const AlignedText& translation) {
  return Placer(source, translation).place();
}

}  // namespace tapestry
