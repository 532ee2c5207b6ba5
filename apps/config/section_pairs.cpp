#include "apps/config/sections.h"

namespace tapestry {

void bind_cleaning(ConfigSection& s, Config& config) {
  CleaningOptions& clean = config.data.clean;
  s.read("max_ratio", clean.max_ratio,
         "Most characters of a side for each character of the other; 0: any.", at_least(0));
  s.read_choice("deduplicate", clean.deduplicate, names(CleaningOptions::kDuplicates),
                "What must not come a second time in all of data.train: a pair, its source, or its "
                "target. The first one stays.");
  s.read("drop_copies", clean.drop_copies, "Leaves out pairs whose sides are the same text.");
  s.read_optional_list("source_script", clean.source_script,
                       "Scripts of the source by their names in Unicode, such as [Latin] or [Han, "
                       "Hiragana, Katakana]; digits and punctuation are of any.");
  s.read_optional_list("target_script", clean.target_script, "Scripts of the target, likewise.");
  s.read("script_share", clean.script_share,
         "Least share of a side's letters that are of its scripts, if it has some.", between(0, 1));
  for (CorpusSpec& corpus : config.data.train) corpus.clean = clean;
}

void bind_text_changes(ConfigSection& s, Config& config) {
  TextChanges& changes = config.variation.changes;
  s.read("upper_case", changes.upper_case,
         "Share of pairs, drawn anew in each epoch, whose sides are both written in capitals.",
         between(0, 1));
  s.read("title_case", changes.title_case,
         "Share of pairs whose words all begin with a capital, on both sides.", between(0, 1));
  s.read("no_end_mark", changes.no_end_mark,
         "Share of pairs that lose the marks at the end of both sides: . ! ? and the like.",
         between(0, 1));
  s.read("typos", changes.typos,
         "Share of pairs with slips in one of seven longer words of the source: letters swapped, "
         "lost, doubled, or taken from elsewhere in the word. Pairs with special tokens or "
         "user_symbols change in no way.",
         between(0, 1));
}

}  // namespace tapestry
