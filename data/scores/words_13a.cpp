// mteval-v13a.pl, the tokens of WMT's scores.
#include "data/files/utf8.h"
#include "data/scores/punctuation.h"
#include "data/scores/words.h"

namespace tapestry::word_rules_of {

WordRule::Split mteval_13a(const std::string&) {
  return [](std::string_view line) {
    std::string text(line);
    replace_all(text, "<skipped>", "");
    replace_all(text, "-\n", "");
    replace_all(text, "\n", " ");
    scores::replace_entities(text);
    return scores::split_western(U' ' + decode_utf8(text) + U' ');
  };
}

}  // namespace tapestry::word_rules_of
