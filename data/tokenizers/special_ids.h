// The ids of a vocabulary's special tokens, and their places around a text. They belong to the
// tokenizer: code that makes rows of tokens asks it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

namespace tapestry {

/// Ids that the tokenizers of this project reserve.
constexpr int32_t kPadId = 0;
constexpr int32_t kUnkId = 1;
constexpr int32_t kBosId = 2;
constexpr int32_t kEosId = 3;

/// The target of a place without prediction, like the label -100 of other systems.
constexpr int32_t kNoTarget = -1;

/// The ids that stand before and after a text in the rows of a model.
struct TextFrame {
  std::vector<int32_t> before = {};
  std::vector<int32_t> after = {};

  int64_t size() const { return std::ssize(before) + std::ssize(after); }
};
/// The text in its frame.
inline std::vector<int32_t> in_frame(const TextFrame& frame, const std::vector<int32_t>& text) {
  std::vector<int32_t> ids = frame.before;
  ids.insert(ids.end(), text.begin(), text.end());
  ids.insert(ids.end(), frame.after.begin(), frame.after.end());
  return ids;
}

/// The ids around two texts in one row.
struct TwoTextFrame {
  std::vector<int32_t> before = {};
  std::vector<int32_t> between = {};
  std::vector<int32_t> after = {};

  int64_t size() const { return std::ssize(before) + std::ssize(between) + std::ssize(after); }
};

/// A row that a model reads: a text in its frame, or two.
struct FramedText {
  std::vector<int32_t> ids = {};
  int64_t second = 0;  ///< where the second text begins; 0: there is none

  bool empty() const { return ids.empty(); }
};
/// Both texts in their frame.
inline FramedText in_frame(const TwoTextFrame& frame, std::span<const int32_t> first,
                           std::span<const int32_t> second) {
  FramedText row{.ids = frame.before};
  row.ids.insert(row.ids.end(), first.begin(), first.end());
  row.ids.insert(row.ids.end(), frame.between.begin(), frame.between.end());
  row.second = std::ssize(row.ids);
  row.ids.insert(row.ids.end(), second.begin(), second.end());
  row.ids.insert(row.ids.end(), frame.after.begin(), frame.after.end());
  return row;
}
/// Cuts two texts to `most` tokens in all: only the longer one, or both to a half, of which the
/// second gets the odd token unless the first is longer (longest_first of Hugging Face's
/// tokenizers). Returns false if they fit.
inline bool cut_longest_first(std::vector<int32_t>& first, std::vector<int32_t>& second,
                              int64_t most) {
  const int64_t all = std::ssize(first) + std::ssize(second);
  if (all <= most) return false;
  const bool first_is_longer = first.size() > second.size();
  std::vector<int32_t>& longer = first_is_longer ? first : second;
  std::vector<int32_t>& shorter = first_is_longer ? second : first;
  const int64_t kept = std::min<int64_t>(std::ssize(shorter), most / 2);
  shorter.resize(static_cast<size_t>(kept));
  longer.resize(static_cast<size_t>(most - kept));
  return true;
}

struct SpecialIds {
  std::optional<int32_t> pad = kPadId;  ///< unset: rows are filled with an id that means something
  std::optional<int32_t> unk = kUnkId;
  int32_t bos = kBosId;                 ///< of a masked model: cls
  int32_t eos = kEosId;                 ///< of a masked model: sep
  std::vector<int32_t> more_ends = {};  ///< a text that is written ends with them, too
  std::optional<int32_t> start = {};    ///< the decoder's first token; unset: bos
  std::optional<int32_t> first = {};    ///< the first token of a translation, such as a language
  std::vector<int32_t> unused = {};   ///< no text has them: a model may have more rows than tokens
  std::vector<int32_t> further = {};  ///< other ids that are no text
  /// Tokens that name a language, if a text has one of them around it; ascending.
  std::vector<int32_t> languages = {};
  /// The tokenizer's own frame around texts. Unset, as in tokenizers of this project: each task has
  /// its own frame.
  std::optional<TextFrame> one_text = {};
  std::optional<TwoTextFrame> two_texts = {};
  /// A text that has its beginning or its end gets no second one, and a frame without a beginning
  /// adds none. False: as for models that were imported before this rule.
  bool frames_once = false;

  /// Fills rows behind their texts; lengths mask it.
  int32_t filler() const { return pad.value_or(eos); }
  /// The frame of a side of a translation, of a text whose tokens are masked, and of one that is
  /// classified.
  TextFrame side() const {
    TextFrame frame = one_text.value_or(TextFrame{});
    // Tokenizers of causal models end nothing, but a translation must end.
    if (std::ranges::find(frame.after, eos) == frame.after.end()) frame.after.push_back(eos);
    return frame;
  }
  /// The frame of a written side: a token behind eos would name the source's language.
  TextFrame target() const {
    TextFrame frame = side();
    frame.after.erase(std::ranges::find(frame.after, eos) + 1, frame.after.end());
    if (first) {
      frame.before = {*first};
    } else {
      std::erase_if(frame.before, [&](int32_t id) { return is_language(id); });  // the sources'
    }
    return frame;
  }
  bool is_language(int32_t id) const { return std::ranges::find(languages, id) != languages.end(); }
  /// True if a written text begins with its language, and nothing says which one that is.
  bool lacks_target_language() const {
    return !first && !start_names_language() &&
           std::ranges::any_of(side().before, [&](int32_t id) { return is_language(id); });
  }
  bool start_names_language() const { return start && is_language(*start); }
  TextFrame masked() const { return one_text.value_or(TextFrame{{bos}, {}}); }
  TextFrame classified() const { return one_text.value_or(TextFrame{{bos}, {eos}}); }
  /// Around two texts that are classified together, and around a question and its context.
  TwoTextFrame question() const { return two_texts.value_or(TwoTextFrame{{bos}, {eos}, {eos}}); }
  /// The ids in front of a document of a causal model. Empty if the tokenizer puts nothing there.
  std::vector<int32_t> document() const {
    if (!one_text) return {eos};
    if (!one_text->before.empty() || frames_once) return one_text->before;
    return {bos};
  }
  /// The ids that this document lacks in front: none if it has them, and always some before an
  /// empty one.
  std::vector<int32_t> beginning_of(std::span<const int32_t> text) const {
    std::vector<int32_t> begin = document();
    if (!frames_once) return begin;
    if (begin.empty()) return text.empty() ? std::vector<int32_t>{bos} : begin;
    const bool there =
        text.size() >= begin.size() && std::equal(begin.begin(), begin.end(), text.begin());
    return there ? std::vector<int32_t>{} : begin;
  }
  /// The ids in front of a text that a causal model continues; may be empty.
  std::vector<int32_t> prompt_of(std::span<const int32_t> text) const {
    return one_text && !frames_once ? one_text->before : beginning_of(text);
  }
  bool is_end(int32_t id) const {
    return id == eos || std::ranges::find(more_ends, id) != more_ends.end();
  }
  /// True if the document itself has an end.
  bool has_end(std::span<const int32_t> text) const {
    return frames_once && !text.empty() && is_end(text.back());
  }
  /// The ids between two documents of a stream: an end unless the first one has it, and the
  /// beginning of the second one if the tokenizer has no end for texts, as causal models' do not.
  std::vector<int32_t> border(std::span<const int32_t> before = {},
                              std::span<const int32_t> behind = {}) const {
    std::vector<int32_t> ids;
    if (!has_end(before)) ids.push_back(eos);
    if (!one_text || !one_text->after.empty()) return ids;
    const std::vector<int32_t> begin = frames_once ? beginning_of(behind) : document();
    // One token may be end and beginning.
    const bool both = begin == std::vector<int32_t>{eos};
    if (!both || (ids.empty() && before.back() != eos)) {
      ids.insert(ids.end(), begin.begin(), begin.end());
    }
    return ids;
  }
  /// Ids that no search writes.
  std::vector<int32_t> banned() const {
    std::vector<int32_t> ids;
    for (const auto& id : {pad, unk, std::optional(bos)}) {
      if (id && !is_end(*id)) ids.push_back(*id);
    }
    ids.insert(ids.end(), unused.begin(), unused.end());
    return ids;
  }
};

}  // namespace tapestry
