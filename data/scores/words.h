// How BLEU finds the words of a line. Each rule is one row of word_rules().
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace tapestry {

struct WordRule {
  /// Makes of a line, without white space at its end, a text whose words stand between white space.
  /// May be called from several threads.
  using Split = std::function<std::u32string(std::string_view line)>;

  const char* name;     ///< as in sacreBLEU's signature
  const char* meaning;  ///< what it does, or why it is refused
  /// Null where the rule is refused. `model`: a file, for rules that need one.
  Split (*make)(const std::string& model);
  bool needs_model = false;  ///< a SentencePiece model
};

std::span<const WordRule> word_rules();

/// The rule of this name; throws Error(kConfig) where there is none, where it is refused, and where
/// a model is missing or has no use.
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
