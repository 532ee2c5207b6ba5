#include "data/tokenizers/parts/normalizers.h"

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "data/tokenizers/parts/text_pattern.h"
#include "data/tokenizers/parts/unicode_text.h"

namespace tapestry::tokenizers {
namespace {

// Calls f(code point, begin, end) for each character.
template <class F>
void for_each_place(const PlacedText& text, F f) {
  for_each_character(text.text, [&](char32_t c, std::string_view bytes) {
    const auto begin = static_cast<size_t>(bytes.data() - text.text.data());
    f(c, begin, begin + bytes.size());
  });
}

// Keeps the characters for which keep(c).
template <class F>
void filter(PlacedText& text, F keep) {
  if (is_ascii(text.text)) return;
  TextWriter writer(text);
  for_each_place(text, [&](char32_t c, size_t begin, size_t end) {
    if (keep(c)) writer.copy(begin, end);
  });
  writer.finish();
}

void lower(PlacedText& text) {
  if (is_ascii(text.text)) {
    for (char& c : text.text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    return;
  }
  TextWriter writer(text);
  std::string small;
  for_each_place(text, [&](char32_t c, size_t begin, size_t end) {
    small.clear();
    append_lower_case(small, c);
    writer.write(small, begin, end);
  });
  writer.finish();
}

TextChange normal_form(NormalForm form) {
  return [form](PlacedText& text, bool) { to_normal_form(form, text); };
}

TextChange strip(const Part& part) {
  part.allow({"strip_left", "strip_right"});
  return [left = part.flag("strip_left", true), right = part.flag("strip_right", true)](
             PlacedText& text, bool) {
    size_t first = text.text.size(), last = 0;
    for_each_place(text, [&](char32_t c, size_t begin, size_t end) {
      if (is_white_space(c)) return;
      first = std::min(first, begin);
      last = end;
    });
    const size_t end = right ? last : text.text.size();
    text = text.part(left ? std::min(first, end) : 0, end);
  };
}

TextChange replace(const Part& part) {
  part.allow({"pattern", "content"});
  const auto pattern = std::make_shared<const TextPattern>(part.part("pattern"));
  return [pattern, content = part.text("content")](PlacedText& text, bool) {
    std::vector<ByteRange> matches;
    pattern->find_all(text.text, matches);
    if (matches.empty()) return;
    TextWriter writer(text);
    size_t at = 0;
    for (const auto& [begin, end] : matches) {
      writer.copy(at, begin);
      writer.write(content, begin, end);
      at = end;
    }
    writer.copy(at, text.text.size());
    writer.finish();
  };
}

// BERT's (Devlin et al. 2019), in the order of its code.
TextChange bert(const Part& part) {
  part.allow({"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  const bool clean = part.flag("clean_text", true);
  const bool parts_ideographs = part.flag("handle_chinese_chars", true);
  const bool lowercase = part.flag("lowercase", true);
  const bool strips = part.flag("strip_accents", lowercase);
  return [=](PlacedText& text, bool) {
    TextWriter writer(text);
    for_each_place(text, [&](char32_t c, size_t begin, size_t end) {
      const bool control = c != '\t' && c != '\n' && c != '\r' && is_other(c);
      if (clean && (c == 0 || c == 0xFFFD || control)) {
        return;
      }
      if (clean && is_white_space(c)) {
        writer.write(" ", begin, end);
      } else if (parts_ideographs && is_ideograph(c)) {
        writer.write(" ", begin, end);
        writer.copy(begin, end);
        writer.write(" ", begin, end);
      } else {
        writer.copy(begin, end);
      }
    });
    writer.finish();
    if (strips) {
      to_normal_form(NormalForm::kNfd, text);
      filter(text, [](char32_t c) { return !is_nonspacing_mark(c); });
    }
    if (lowercase) lower(text);
  };
}

std::string from_base64(const Part& part, const std::string& text) {
  std::string bytes;
  uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    int digit = -1;
    if (c >= 'A' && c <= 'Z') digit = c - 'A';
    if (c >= 'a' && c <= 'z') digit = c - 'a' + 26;
    if (c >= '0' && c <= '9') digit = c - '0' + 52;
    if (c == '+') digit = 62;
    if (c == '/') digit = 63;
    if (c == '=') break;
    if (digit < 0) part.refuse("must have base64 as precompiled_charsmap");
    group = group << 6 | static_cast<uint32_t>(digit);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes.push_back(static_cast<char>(group >> bits & 0xFF));
    }
  }
  return bytes;
}

// The rules of a SentencePiece model: a trie (a double array of 32-bit units, darts-clone) of texts
// to replace, whose values are places in a list of zero-terminated replacements. The library asks
// for each grapheme of less than 6 bytes, then for each character, and takes the rule of the
// shortest beginning that has one.
class Charsmap {
 public:
  Charsmap(const Part& part, const std::string& bytes) {
    uint32_t size = 0;
    if (bytes.size() >= sizeof(size)) std::memcpy(&size, bytes.data(), sizeof(size));
    if (bytes.size() < sizeof(size) || size > bytes.size() - sizeof(size)) {
      part.refuse("must have the rules of a SentencePiece model as precompiled_charsmap");
    }
    units_.resize(size / sizeof(uint32_t));
    std::memcpy(units_.data(), bytes.data() + sizeof(size), units_.size() * sizeof(uint32_t));
    texts_ = bytes.substr(sizeof(size) + size);
    texts_.push_back('\0');
    for (size_t c = 0; c < ascii_.size(); ++c) {
      const char one = static_cast<char>(c);
      ascii_[c] = find({&one, 1});
    }
  }

  void apply(PlacedText& text) const {
    if (!text.from) return apply(text.text);
    TextWriter writer(text);
    append_graphemes(text.text, [&](std::string_view made, size_t begin, size_t end) {
      writer.write(made, begin, end);
    });
    writer.finish();
  }

  void apply(std::string& text) const {
    std::string result;
    result.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      // ASCII characters are graphemes, but for a carriage return before a line feed.
      size_t end = at;
      while (end < text.size() && static_cast<unsigned char>(text[end]) < 0x80) ++end;
      const bool all = end == text.size();
      const size_t plain = all || end == at ? end : end - 1;  // the last may take a mark
      while (at < plain && text[at] != '\r') append_plain(text[at++], result);
      if (at == text.size()) break;
      // Up to the next run of ASCII, and one more for its mark.
      end = at + 1;
      while (end < text.size() &&
             !(static_cast<unsigned char>(text[end]) < 0x80 &&
               static_cast<unsigned char>(text[end - 1]) < 0x80 && text[end - 1] != '\r')) {
        ++end;
      }
      append_graphemes(std::string_view(text).substr(at, end - at),
                       [&](std::string_view made, size_t, size_t) { result += made; });
      at = end;
    }
    text = std::move(result);
  }

 private:
  static size_t offset_of(uint32_t unit) {
    return static_cast<size_t>(unit >> 10) << ((unit & (1U << 9)) >> 6);
  }

  // The replacement of the shortest beginning of `text` that has a rule.
  std::optional<std::string_view> find(std::string_view text) const {
    if (units_.empty()) return std::nullopt;
    size_t place = offset_of(units_[0]);
    for (const char byte : text) {
      const auto label = static_cast<unsigned char>(byte);
      place ^= label;
      if (label == 0 || place >= units_.size()) return std::nullopt;
      const uint32_t unit = units_[place];
      if ((unit & (1U << 31 | 0xFF)) != label) return std::nullopt;
      place ^= offset_of(unit);
      if ((unit >> 8 & 1) == 1 && place < units_.size()) {
        const size_t value = units_[place] & ((1U << 31) - 1);
        if (value >= texts_.size()) return std::nullopt;
        return std::string_view(texts_.data() + value);
      }
    }
    return std::nullopt;
  }

  void append_plain(char c, std::string& out) const {
    const auto& rule = ascii_[static_cast<unsigned char>(c)];
    if (rule) {
      out += *rule;
    } else {
      out += c;
    }
  }

  // Calls write(replacement, begin, end) for each grapheme or character.
  template <class Write>
  void append_graphemes(std::string_view text, Write write) const {
    constexpr size_t kLongest = 6;
    size_t begin = 0;
    for (const size_t end : grapheme_ends(text)) {
      const std::string_view grapheme = text.substr(begin, end - begin);
      const auto whole = grapheme.size() < kLongest ? find(grapheme) : std::nullopt;
      if (whole) {
        write(*whole, begin, end);
      } else {
        for_each_character(grapheme, [&](char32_t, std::string_view bytes) {
          const auto at = static_cast<size_t>(bytes.data() - text.data());
          write(find(bytes).value_or(bytes), at, at + bytes.size());
        });
      }
      begin = end;
    }
  }

  std::vector<uint32_t> units_;
  std::string texts_;
  std::array<std::optional<std::string_view>, 128> ascii_;
};

TextChange precompiled(const Part& part) {
  part.allow({"precompiled_charsmap"});
  const auto rules =
      std::make_shared<const Charsmap>(part, from_base64(part, part.text("precompiled_charsmap")));
  return [rules](PlacedText& text, bool) { rules->apply(text); };
}

TextChange prepend(const Part& part) {
  part.allow({"prepend"});
  return [front = part.text("prepend")](PlacedText& text, bool continued) {
    if (!text.text.empty() && !continued) text.insert_front(front);
  };
}

TextChange sequence(const Part& part) {
  part.allow({"normalizers"});
  std::vector<TextChange> changes;
  for (const Part& one : part.parts("normalizers")) changes.push_back(make_normalizer(one));
  return [changes](PlacedText& text, bool continued) {
    for (const TextChange& change : changes) change(text, continued);
  };
}

struct Row {
  const char* type;
  TextChange (*make)(const Part& part);
};

template <NormalForm form>
TextChange normal_form_of(const Part& part) {
  part.allow({});
  return normal_form(form);
}

constexpr Row kTable[] = {
    {"Sequence", sequence},
    {"NFC", normal_form_of<NormalForm::kNfc>},
    {"NFD", normal_form_of<NormalForm::kNfd>},
    {"NFKC", normal_form_of<NormalForm::kNfkc>},
    {"NFKD", normal_form_of<NormalForm::kNfkd>},
    {"Lowercase",
     [](const Part& part) -> TextChange {
       part.allow({});
       return [](PlacedText& text, bool) { lower(text); };
     }},
    {"StripAccents",
     [](const Part& part) -> TextChange {
       part.allow({});
       return [](PlacedText& text, bool) { filter(text, [](char32_t c) { return !is_mark(c); }); };
     }},
    {"Strip", strip},
    {"Prepend", prepend},
    {"Replace", replace},
    {"BertNormalizer", bert},
    {"Precompiled", precompiled},
};

}  // namespace

TextChange make_normalizer(const Part& part) {
  const std::string type = part.type();
  for (const Row& row : kTable) {
    if (row.type == type) return row.make(part);
  }
  part.refuse(concat("is of the unknown type ", type));
}

}  // namespace tapestry::tokenizers
