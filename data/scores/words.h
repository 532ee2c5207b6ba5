// The rules by which BLEU finds the words of a line. Each rule is one row of word_rules().
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace tapestry {

struct WordRule {
  /// Turns a line, without white space at its end, into a text with white space between its words.
  /// May be called from several threads.
  using Split = std::function<std::u32string(std::string_view line)>;

  const char* name;     ///< as in sacreBLEU's signature
  const char* meaning;  ///< its meaning, or the reason why it is refused
  /// Null if the rule is refused. `model`: a file, for rules that need one.
  Split (*make)(const std::string& model);
  bool needs_model = false;  ///< a SentencePiece model
};

std::span<const WordRule> word_rules();

/// The rule of this name; throws Error(kConfig) if there is none, if it is refused, and if a model
/// is missing or has no use.
const WordRule& word_rule(const std::string& name, const std::string& model);

/// The words of a line, separated by single spaces.
std::string words_of_line(const WordRule::Split& split, std::string_view line);

namespace word_rules_of {
WordRule::Split mteval_13a(const std::string&);
WordRule::Split mteval_14_international(const std::string&);
WordRule::Split chinese(const std::string&);
WordRule::Split sentencepiece(const std::string& model);
}  // namespace word_rules_of

}  // namespace tapestry
