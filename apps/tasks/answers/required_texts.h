// What translations must contain: a glossary's terms and texts of the source, as constraints of a
// search.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/tasks/answers/translator.h"
#include "data/lexicon/terms.h"

namespace tapestry {

struct RequiredTextOptions {
  static constexpr const char* kModes[] = {"hard", "soft"};
  static constexpr const char* kSymbols = "symbols";  ///< a kind of `keep` beside KeptTexts::kKinds

  std::string terms = {};           ///< file of Terms, or ""
  std::string terms_mode = "hard";  ///< of kModes. hard: each must stand in the translation; soft:
                                    ///< the source says what is meant, as annotated() writes it
  std::vector<std::string> keep = {};  ///< kinds of KeptTexts, and kSymbols

  /// True if sources change before a model reads them.
  bool annotates() const { return !terms.empty() && terms_mode == "soft"; }
};

class RequiredTexts {
 public:
  /// `models` must outlive this. Throws Error(kData) for a term that the model cannot write, with
  /// its place, Error(kConfig) for a kind that does not exist, terms_mode soft with a model without
  /// the marks, symbols of a model that has none, and a search that draws.
  RequiredTexts(const RequiredTextOptions& options, const Translator& models,
                const SearchOptions& search);
  /// The same with terms that are in no file; `options.terms` is not read.
  RequiredTexts(Terms terms, const RequiredTextOptions& options, const Translator& models,
                const SearchOptions& search);

  /// True if translations must contain texts; soft terms only change sources.
  bool any() const { return any_; }
  /// True if sources change before a model reads them.
  bool annotates() const { return soft_ && !terms_.entries().empty(); }
  /// The line as the model reads it.
  std::string source(const std::string& line) const;
  /// Adds the phrases of the last source of `sentences`, which is line `number` from 1 as far as
  /// the model reads it.
  void add(std::string_view line, int64_t number, Sentences& sentences);
  /// Counts what the best translation of a sentence lacks; `phrases` are those of add().
  void check(const Hypothesis& best, const Phrases& phrases, int64_t number);
  /// Says on stderr what translations lack.
  void tell() const;
  /// The first 1,000 of the texts that translations lack.
  std::vector<std::string> missing() const;

 private:
  struct Missing {
    int64_t count = 0;
    std::vector<std::pair<std::string, int64_t>> first = {};  ///< texts with their lines
    void add(const std::string& text, int64_t line);
  };

  void keep_symbols();
  void check_terms() const;
  void check_marks() const;
  /// None if the model cannot write it.
  std::vector<int32_t> phrase_of(const std::string& text, bool begins_word) const;
  std::vector<RequiredText> find(std::string_view line) const;

  const Translator& models_;
  Terms terms_;
  bool soft_;         // terms
  bool any_ = false;  // texts that translations must contain
  KeptTexts kept_;
  std::vector<std::string> symbols_;  // that are kept
  Missing unwritable_, lacking_;
};

}  // namespace tapestry
