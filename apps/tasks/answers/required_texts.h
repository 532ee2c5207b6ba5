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

  std::string terms = {};              ///< file of Terms, or ""
  std::string terms_mode = "hard";     ///< hard: each must stand in the translation; soft: the
                                       ///< source says what is meant, as annotated() writes it
  std::vector<std::string> keep = {};  ///< kinds of KeptTexts, and kSymbols

  bool is_on() const { return !terms.empty() || !keep.empty(); }
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

  /// True if translations must contain texts; soft terms only change sources.
  bool any() const { return !options_.keep.empty() || (options_.is_on() && !options_.annotates()); }
  /// The line as the model reads it.
  std::string source(const std::string& line) const;
  /// Adds the phrases of the last source of `sentences`, which is line `number` from 1 as far as
  /// the model reads it.
  void add(std::string_view line, int64_t number, Sentences& sentences);
  /// Counts what the best translation of a sentence lacks; `phrases` are those of add().
  void check(const Hypothesis& best, const Phrases& phrases, int64_t number);
  /// Says on stderr what translations lack.
  void tell() const;

 private:
  struct Missing {
    int64_t texts = 0;
    std::string first = {};  ///< "'x' of line 3"
    void add(const std::string& text, int64_t line);
  };

  void load_terms();
  void check_marks() const;
  /// None if the model cannot write it.
  std::vector<int32_t> phrase_of(const std::string& text, bool begins_word) const;
  std::vector<RequiredText> find(std::string_view line) const;

  RequiredTextOptions options_;
  const Translator& models_;
  Terms terms_;
  KeptTexts kept_;
  std::vector<std::string> symbols_;  // that are kept
  TokenEdges edges_;
  Missing unwritable_, lacking_;
};

/// The edges of a vocabulary's tokens. Scripts without spaces between words have no edges.
TokenEdges token_edges(const Tokenizer& tokenizer);

}  // namespace tapestry
