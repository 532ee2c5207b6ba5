// A text on its way through a tokenizer, with the place of each byte in the original; private to
// data/tokenizers/parts/.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/files/utf8.h"

namespace tapestry::tokenizers {

/// A half-open range of bytes.
using ByteRange = std::pair<size_t, size_t>;

struct PlacedText {
  PlacedText() = default;
  explicit PlacedText(std::string_view bytes) : text(bytes) {}

  /// The text with U+FFFD for each ill-formed byte. Each byte has the place of its character.
  static PlacedText with_places(std::string_view given) {
    PlacedText placed;
    placed.from.emplace();
    for (size_t at = 0; at < given.size();) {
      const size_t begin = at;
      append_utf8(placed.text, next_code_point(given, at));
      placed.from->resize(placed.text.size(), {begin, at});
    }
    return placed;
  }

  /// Its bytes [begin, end).
  PlacedText part(size_t begin, size_t end) const {
    PlacedText result(std::string_view(text).substr(begin, end - begin));
    if (from) result.from.emplace(from->data() + begin, from->data() + end);
    return result;
  }
  /// The place of its bytes [begin, end), at least one.
  ByteRange place(size_t begin, size_t end) const {
    return {(*from)[begin].first, (*from)[end - 1].second};
  }
  /// The new bytes have the place of the first byte. The text is not empty.
  void insert_front(const std::string& front) {
    text.insert(0, front);
    if (from) from->insert(from->begin(), front.size(), from->front());
  }

  std::string text;
  std::optional<std::vector<ByteRange>> from;  ///< of each byte; unset: nobody asks
};

/// Makes a text of parts of an old one.
class TextWriter {
 public:
  explicit TextWriter(PlacedText& old) : old_(old) {
    next_.text.reserve(old.text.size());
    if (old.from) next_.from.emplace();
  }

  /// Bytes [begin, end) of the old one.
  void copy(size_t begin, size_t end) {
    next_.text.append(old_.text, begin, end - begin);
    if (next_.from) {
      next_.from->insert(next_.from->end(), old_.from->begin() + static_cast<std::ptrdiff_t>(begin),
                         old_.from->begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  /// Writes other bytes in place of [begin, end).
  void write(std::string_view bytes, size_t begin, size_t end) {
    next_.text += bytes;
    if (!next_.from) return;
    next_.from->resize(next_.text.size(),
                       begin < end ? old_.place(begin, end) : ByteRange(place_at(begin)));
  }
  void finish() { old_ = std::move(next_); }

 private:
  // The place of an empty range at `at`.
  ByteRange place_at(size_t at) const {
    const size_t there = at < old_.from->size() ? (*old_.from)[at].first
                         : old_.from->empty()   ? 0
                                                : old_.from->back().second;
    return {there, there};
  }

  PlacedText& old_;
  PlacedText next_;
};

}  // namespace tapestry::tokenizers
