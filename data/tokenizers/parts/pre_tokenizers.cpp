#include "data/tokenizers/parts/pre_tokenizers.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "core/base/error.h"
#include "data/tokenizers/parts/text_pattern.h"
#include "data/tokenizers/parts/unicode_text.h"

namespace tapestry::tokenizers {
namespace {

// Treatment of a pattern's matches.
enum class Behavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

Behavior behavior_of(const Part& part) {
  static const std::unordered_map<std::string, Behavior> kNames = {
      {"Isolated", Behavior::kIsolated},
      {"Removed", Behavior::kRemoved},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous}};
  const auto found = kNames.find(part.text("behavior"));
  if (found == kNames.end())
    part.refuse(concat("has the unknown behavior ", part.text("behavior")));
  return found->second;
}

struct Segment {
  size_t begin, end;
  bool match;
};

// The whole text in segments, of which some are matches.
void segments_of(std::string_view text, const std::vector<ByteRange>& matches, bool invert,
                 std::vector<Segment>& segments) {
  segments.clear();
  size_t at = 0;
  for (const auto& [begin, end] : matches) {
    if (at < begin) segments.push_back({at, begin, invert});
    segments.push_back({begin, end, !invert});
    at = end;
  }
  if (at < text.size()) segments.push_back({at, text.size(), invert});
}

// Joins neighbours as the behavior has it.
void join_segments(Behavior behavior, std::vector<Segment>& segments) {
  if (behavior == Behavior::kIsolated) return;
  if (behavior == Behavior::kRemoved) {
    std::erase_if(segments, [](const Segment& segment) { return segment.match; });
    return;
  }
  const bool backwards = behavior == Behavior::kMergedWithNext;
  if (backwards) std::reverse(segments.begin(), segments.end());
  std::vector<Segment> joined;
  bool match_before = false;
  for (const Segment& segment : segments) {
    const bool joins = behavior == Behavior::kContiguous ? segment.match == match_before
                                                         : segment.match && !match_before;
    if (!joins || joined.empty()) {
      joined.push_back(segment);
    } else if (backwards) {
      joined.back().begin = segment.begin;
    } else {
      joined.back().end = segment.end;
    }
    match_before = segment.match;
  }
  if (backwards) std::reverse(joined.begin(), joined.end());
  segments = std::move(joined);
}

// Makes a cut by the matches of find(text, matches).
template <class Find>
Cut cut_by(Find find, Behavior behavior, bool invert) {
  return [=](std::vector<PlacedText>& pieces, const PiecePlace&) {
    std::vector<PlacedText> result;
    std::vector<ByteRange> matches;
    std::vector<Segment> segments;
    for (const PlacedText& piece : pieces) {
      find(piece.text, matches);
      segments_of(piece.text, matches, invert, segments);
      join_segments(behavior, segments);
      for (const Segment& segment : segments) {
        if (segment.begin == segment.end) continue;
        result.push_back(piece.part(segment.begin, segment.end));
      }
    }
    pieces = std::move(result);
  };
}

Cut cut_at_regex(const std::string& pattern, const std::string& place, Behavior behavior,
                 bool invert) {
  const auto regex = std::make_shared<const TextRegex>(pattern, place);
  return cut_by([regex](std::string_view text,
                        std::vector<ByteRange>& matches) { regex->find_all(text, matches); },
                behavior, invert);
}

// Each character that `is` is a match.
Cut cut_at_characters(bool (*is)(char32_t), Behavior behavior) {
  return cut_by(
      [is](std::string_view text, std::vector<ByteRange>& matches) {
        matches.clear();
        for_each_character(text, [&](char32_t c, std::string_view bytes) {
          const auto begin = static_cast<size_t>(bytes.data() - text.data());
          if (is(c)) matches.emplace_back(begin, begin + bytes.size());
        });
      },
      behavior, /*invert=*/false);
}

void put_in_front(std::vector<PlacedText>& pieces, const std::string& front,
                  const PiecePlace& place) {
  for (size_t i = place.continued ? 1 : 0; i < pieces.size(); ++i) {
    if (!pieces[i].text.starts_with(front)) pieces[i].insert_front(front);
  }
}

PreTokenizer byte_level(const Part& part) {
  part.allow({"add_prefix_space", "trim_offsets", "use_regex"});
  Cut cut = [](std::vector<PlacedText>&, const PiecePlace&) {};
  if (part.flag("use_regex", true)) {
    cut = cut_at_regex(
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        part.place(), Behavior::kIsolated, /*invert=*/false);
  }
  if (!part.flag("add_prefix_space", true)) return {cut, true};
  return {[cut](std::vector<PlacedText>& pieces, const PiecePlace& place) {
            put_in_front(pieces, " ", place);
            cut(pieces, place);
          },
          true};
}

PreTokenizer metaspace(const Part& part) {
  part.allow({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  const std::string mark = part.text("replacement", "\xE2\x96\x81");
  const std::string scheme =
      part.text("prepend_scheme", part.flag("add_prefix_space", true) ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    part.refuse(concat("has the unknown prepend_scheme ", scheme));
  }
  if (mark.empty()) part.refuse("must have a character as replacement");
  const bool splits = part.flag("split", true);
  const Cut cut = cut_by(
      [mark](std::string_view text, std::vector<ByteRange>& matches) {
        matches.clear();
        for (size_t at = text.find(mark); at != std::string_view::npos;
             at = text.find(mark, at + mark.size())) {
          matches.emplace_back(at, at + mark.size());
        }
      },
      Behavior::kMergedWithNext, /*invert=*/false);
  return {[=](std::vector<PlacedText>& pieces, const PiecePlace& place) {
    for (PlacedText& piece : pieces) {
      TextWriter writer(piece);
      for (size_t at = 0; at < piece.text.size();) {
        const size_t space = std::min(piece.text.find(' ', at), piece.text.size());
        writer.copy(at, space);
        if (space < piece.text.size()) writer.write(mark, space, space + 1);
        at = space + 1;
      }
      writer.finish();
    }
    if (scheme == "always") put_in_front(pieces, mark, place);
    if (scheme == "first" && place.begins_text && !place.continued && !pieces.empty() &&
        !pieces[0].text.starts_with(mark)) {
      pieces[0].insert_front(mark);
    }
    if (splits) cut(pieces, place);
  }};
}

PreTokenizer split(const Part& part) {
  part.allow({"pattern", "behavior", "invert"});
  const auto pattern = std::make_shared<const TextPattern>(part.part("pattern"));
  return {cut_by([pattern](std::string_view text,
                           std::vector<ByteRange>& matches) { pattern->find_all(text, matches); },
                 behavior_of(part), part.flag("invert", false))};
}

PreTokenizer digits(const Part& part) {
  part.allow({"individual_digits"});
  return {cut_at_characters(is_number, part.flag("individual_digits", false)
                                           ? Behavior::kIsolated
                                           : Behavior::kContiguous)};
}

PreTokenizer whitespace(const Part& part) {
  part.allow({});
  // The library's \w has the two joiners, too (Unicode annex 18, RL1.2a).
  return {cut_at_regex("[\\w\\x{200C}\\x{200D}]+|[^\\w\\s\\x{200C}\\x{200D}]+", part.place(),
                       Behavior::kRemoved, /*invert=*/true)};
}

PreTokenizer whitespace_split(const Part& part) {
  part.allow({});
  return {cut_at_characters(is_white_space, Behavior::kRemoved)};
}

PreTokenizer punctuation(const Part& part) {
  part.allow({"behavior"});
  return {cut_at_characters(is_punctuation,
                            part.has("behavior") ? behavior_of(part) : Behavior::kIsolated)};
}

// In one pass: words between white space, punctuation marks one by one.
PreTokenizer bert(const Part& part) {
  part.allow({});
  return {[](std::vector<PlacedText>& pieces, const PiecePlace&) {
    std::vector<PlacedText> result;
    for (const PlacedText& piece : pieces) {
      size_t begin = 0, at = 0;
      const auto finish = [&] {
        if (begin < at) result.push_back(piece.part(begin, at));
      };
      for_each_character(piece.text, [&](char32_t c, std::string_view bytes) {
        const bool blank = is_white_space(c), alone = !blank && is_punctuation(c);
        if (blank || alone) {
          finish();
          if (alone) result.push_back(piece.part(at, at + bytes.size()));
          begin = at + bytes.size();
        }
        at += bytes.size();
      });
      finish();
    }
    pieces = std::move(result);
  }};
}

PreTokenizer sequence(const Part& part) {
  part.allow({"pretokenizers"});
  std::vector<PreTokenizer> steps;
  for (const Part& one : part.parts("pretokenizers")) {
    // The following steps would see bytes as characters.
    if (!steps.empty() && steps.back().byte_level) one.refuse("must not stand behind ByteLevel");
    steps.push_back(make_pre_tokenizer(one));
  }
  const bool bytes = !steps.empty() && steps.back().byte_level;
  return {[steps](std::vector<PlacedText>& pieces, const PiecePlace& place) {
            for (const PreTokenizer& step : steps) step.cut(pieces, place);
          },
          bytes};
}

struct Row {
  const char* type;
  PreTokenizer (*make)(const Part& part);
};
constexpr Row kTable[] = {{"Sequence", sequence},
                          {"ByteLevel", byte_level},
                          {"Split", split},
                          {"Digits", digits},
                          {"Metaspace", metaspace},
                          {"Whitespace", whitespace},
                          {"WhitespaceSplit", whitespace_split},
                          {"Punctuation", punctuation},
                          {"BertPreTokenizer", bert}};

}  // namespace

PreTokenizer make_pre_tokenizer(const Part& part) {
  const std::string type = part.type();
  for (const Row& row : kTable) {
    if (row.type == type) return row.make(part);
  }
  part.refuse(concat("is of the unknown type ", type));
}

const std::vector<std::string>& byte_characters() {
  static const std::vector<std::string> characters = [] {
    std::vector<std::string> list(256);
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool prints =
          (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      append_utf8(list[byte], prints ? byte : next++);
    }
    return list;
  }();
  return characters;
}

std::string bytes_of_token(const std::string& token) {
  static const std::unordered_map<std::string_view, char> bytes = [] {
    std::unordered_map<std::string_view, char> map;
    for (size_t byte = 0; byte < 256; ++byte) {
      map.emplace(byte_characters()[byte], static_cast<char>(byte));
    }
    return map;
  }();
  std::string result;
  bool all = true;
  for_each_character(token, [&](char32_t, std::string_view character) {
    const auto found = bytes.find(character);
    all = all && found != bytes.end();
    if (all) result.push_back(found->second);
  });
  return all ? result : token;
}

}  // namespace tapestry::tokenizers
