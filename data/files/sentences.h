// Sentences of a paragraph.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tapestry {

/// Part of a paragraph: a sentence, and the white space behind it.
struct SentencePart {
  std::string_view text;
  std::string_view gap;
};

/// Finds the ends of sentences by Unicode's rules (annex 29) with the abbreviations that CLDR lists
/// for a language, and leaves out those behind an initial ("J. K. Rowling"), an abbreviation of
/// ours
/// ("Fig. 3"), or, where numbers are written so, an ordinal ("am 3. Oktober"). Not for several
/// threads at once.
class SentenceSplitter {
 public:
  /// `language` is a code of two or three letters, such as "en". Throws Error(kConfig) for one that
  /// does not exist.
  explicit SentenceSplitter(const std::string& language);
  ~SentenceSplitter();

  /// The sentences of well-formed UTF-8 in one line, without white space in front. Nothing of a
  /// blank line.
  std::vector<SentencePart> split(std::string_view line);

 private:
  bool ends_sentence(std::string_view before) const;

  struct Breaks;
  std::unique_ptr<Breaks> breaks_;
  std::vector<std::string_view> abbreviations_;
  bool ordinals_ = false;  ///< digits and a dot are one
};

}  // namespace tapestry
