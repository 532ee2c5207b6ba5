#include "data/scores/words.h"

#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "data/files/utf8.h"
#include "data/scores/ngrams.h"

namespace tapestry {
namespace {

using scores::Symbols;

WordRule::Split none(const std::string&) { return decode_utf8; }

WordRule::Split characters(const std::string&) {
  return [](std::string_view line) {
    Symbols out;
    for (const char32_t c : decode_utf8(line)) out += {c, U' '};
    return out;
  };
}

constexpr const char* kFlores = "the same with the model of FLORES, which is not shipped";
constexpr const char* kMecab =
    "needs MeCab and its dictionary, which this program does not contain; split the words before, "
    "and use none, or use char";

const WordRule kRules[] = {
    {"13a", "mteval-v13a's rules", word_rules_of::mteval_13a},
    {"none", "split at white space", none},
    {"intl", "mteval-v14's rules for all scripts", word_rules_of::mteval_14_international},
    {"char", "every character is a word", characters},
    {"zh", "every Chinese character is a word, others as 13a", word_rules_of::chinese},
    {"spm", "pieces of a SentencePiece model", word_rules_of::sentencepiece, true},
    {"flores101", kFlores, word_rules_of::sentencepiece, true},
    {"flores200", kFlores, word_rules_of::sentencepiece, true},
    {"spBLEU-1K", "likewise", word_rules_of::sentencepiece, true},
    {"ja-mecab", kMecab, nullptr},
    {"ko-mecab", kMecab, nullptr},
};

}  // namespace

std::span<const WordRule> word_rules() { return kRules; }

const WordRule& word_rule(const std::string& name, const std::string& model) {
  std::vector<const char*> names;
  for (const WordRule& rule : kRules) {
    if (rule.make != nullptr) names.push_back(rule.name);
    if (name != rule.name) continue;
    if (rule.make == nullptr) {
      fail(ErrorKind::kConfig, "[bleu] tokenize: ", name, ' ', rule.meaning, '.');
    }
    if (rule.needs_model && model.empty()) {
      fail(ErrorKind::kConfig, "[bleu] tokenize: ", name,
           " needs the file of a SentencePiece model (--spm-model), got none",
           rule.meaning == kFlores ? "; that of FLORES must be downloaded first." : ".");
    }
    if (!rule.needs_model && !model.empty()) {
      fail(ErrorKind::kConfig, "[bleu] tokenize: ", name, " needs no model, got '", model, "'.");
    }
    return rule;
  }
  fail(ErrorKind::kConfig, "[bleu] tokenize must be one of ", join(names, ", "), ", got '", name,
       "'.");
}

std::string words_of_line(const WordRule::Split& split, std::string_view line) {
  const Symbols text = split(line);
  std::string out;
  for (const std::u32string_view word : scores::split_words(text)) {
    if (!out.empty()) out.push_back(' ');
    for (const char32_t c : word) append_utf8(out, c);
  }
  return out;
}

}  // namespace tapestry
