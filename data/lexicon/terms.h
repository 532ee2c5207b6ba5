// Texts of a source that its translation must have in a certain form: terms with the translation
// that a glossary gives them, and texts that are kept as they are.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tapestry {

/// The bytes [begin, end) of a source, and what must stand in the translation.
struct RequiredText {
  size_t begin = 0;
  size_t end = 0;
  std::string text = {};

  bool operator==(const RequiredText&) const = default;
};

/// A glossary.
class Terms {
 public:
  /// A source text, its translation, and the place that has them, such as "terms.tsv:3".
  struct Entry {
    std::string source = {}, target = {}, place = {};
  };

  Terms() = default;
  /// Reads lines "source<TAB>target", compressed or not; spaces around a text are not part of it.
  /// Throws Error(kData) with file and line for a line of another form, an empty side, text that is
  /// not UTF-8, and a source text that came before.
  explicit Terms(const std::string& path);
  /// Adds a term; spaces around its texts are not part of it. Throws Error(kData) with the place
  /// for an empty text, a tab in one, and a source text that came before.
  void add(Entry entry);

  const std::vector<Entry>& entries() const { return entries_; }

  /// The terms in a well-formed line, from the left, of those that begin at one place the longest.
  /// No end of a term is inside a word. Case counts, but a term's first letter may be upper case.
  std::vector<RequiredText> find(std::string_view line) const;

 private:
  const Entry* longest_at(std::string_view line, size_t begin, size_t& end) const;

  std::vector<Entry> entries_;
  std::map<std::string, size_t, std::less<>> by_source_;
  std::set<size_t, std::greater<>> sizes_;  // of source texts, in bytes
};

/// Kinds of texts that a translation keeps.
class KeptTexts {
 public:
  static constexpr const char* kKinds[] = {"urls", "emails", "numbers", "placeholders"};

  KeptTexts();
  /// Each is one of kKinds or a regular expression between slashes. Throws Error(kConfig) for
  /// another kind or an expression that is none.
  explicit KeptTexts(const std::vector<std::string>& kinds);
  KeptTexts(KeptTexts&&) noexcept;
  KeptTexts& operator=(KeptTexts&&) noexcept;
  ~KeptTexts();

  /// In the order of the kinds; they may overlap.
  std::vector<RequiredText> find(std::string_view line) const;

 private:
  struct Patterns;
  std::unique_ptr<const Patterns> patterns_;
};

/// Of texts that overlap the longest, of equally long ones the first; by their places.
std::vector<RequiredText> without_overlaps(std::vector<RequiredText> texts);

/// The line with each term between marks: "<term> source <means> target </term>". A model that
/// learnt from such lines takes the target text or a form of it.
std::string annotated(std::string_view line, const std::vector<RequiredText>& terms);
inline constexpr const char* kTermMarks[] = {"<term>", "<means>", "</term>"};

}  // namespace tapestry
