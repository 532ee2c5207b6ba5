#include "apps/commands/answers/translate_arguments.h"

#include "apps/commands/number_bounds.h"
#include "core/base/text.h"

namespace tapestry {
namespace {

void add_required(CLI::App& app, RequiredTextOptions& required) {
  app.add_option(
      "--terms", required.terms,
      "file of lines term<TAB>translation: where a line has the term as a whole word (its "
      "first letter may be a capital), its translation has this text, at least as often");
  app.add_option("--terms-mode", required.terms_mode,
                 "hard (a beam search that ends only with all of them) | soft (the line says it "
                 "between <term>, <means> and </term>, for models that learnt from such lines, as "
                 "annotate-terms.sh writes them)")
      ->check(CLI::IsMember(names_of(RequiredTextOptions::kModes)))
      ->capture_default_str()
      ->needs("--terms");
  app.add_option(
      "--keep", required.keep,
      "texts that come out as they went in, at least as often, of those that overlap (and terms) "
      "the longest: urls | emails | numbers | placeholders ({name}, %s) | symbols "
      "(tokenizer.user_symbols) | /EXPRESSION/; several are allowed");
}

}  // namespace

void add_translate(CLI::App& app, TranslateArguments& arguments) {
  add_models(app, arguments);
  add_search(app, arguments.search);
  app.add_option("--max-source-length", arguments.max_source_length,
                 "tokens of a source line: a longer one is cut, with a warning (default: 2048, or "
                 "the model's max_position_embeddings if that is more)")
      ->check(number<int64_t>(at_least(1)));
  add_input(app, arguments);
  add_output(app, arguments,
             "lines that a thread translates at a time; others join as soon as some are done, out "
             "of windows of 32 times as many that are sorted by length; 1: each line as soon as it "
             "is read");
  auto* prefix = app.add_option(
      "--prefix", arguments.prefix,
      "file with a line for each line of the input: what its translation begins with; the "
      "translation may go on inside the prefix's last word");
  app.add_flag("--prefix-column", arguments.prefix_column,
               "the same from the input: what stands behind a tab (as with Marian's "
               "--force-decode)")
      ->excludes(prefix);
  auto* word_scores = app.add_flag(
      "--word-scores", arguments.word_scores,
      "behind each translation a tab and the log-probability of each word and of the end");
  auto* detail =
      add_detail(app, arguments.detail, "jsonl: scores, tokens and words, one object a line");
  detail->excludes(word_scores);
  app.add_option("--n-best-format", arguments.n_best_format,
                 "lines (n for each line, the text alone) | moses (0 ||| text ||| F0= "
                 "log-probability ||| score, with the number of the line from 0)")
      ->check(CLI::IsMember({"lines", "moses"}))
      ->excludes(word_scores)
      ->excludes(detail)
      ->capture_default_str();
  app.add_option("--rescore", arguments.rescore,
                 "YAML file of scorers with weights (tapestry rescore tunes them): of all "
                 "translations that a search finds, or of the draws, those with the largest "
                 "weighted sum, which becomes their score");
  add_alignments(app, arguments.alignments);
  add_restored(app, arguments.restored);
  add_attention(app, arguments);
  add_required(app, arguments.required);
  auto* split = app.add_option(
      "--split-sentences", arguments.split_sentences,
      "the language of the input, such as en: each sentence of a line is translated by itself, and "
      "the translations are put together again");
  for (const char* other : {"--n-best", "--prefix", "--prefix-column", "--word-scores", "--detail",
                            "--n-best-format", "--alignments", "--attention"}) {
    split->excludes(app.get_option(other));
  }
}

}  // namespace tapestry
