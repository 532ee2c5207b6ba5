// tapestry translate: a translation of each line of the input.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/commands/answers/aligner.h"
#include "apps/commands/answers/filter.h"
#include "apps/commands/answers/line_filter.h"
#include "apps/commands/answers/prefixes.h"
#include "apps/commands/command.h"
#include "apps/commands/number_bounds.h"
#include "apps/commands/pages/attention_page.h"
#include "apps/tasks/answers/answered_text.h"
#include "apps/tasks/answers/least_risk.h"
#include "apps/tasks/answers/required_texts.h"
#include "apps/tasks/answers/scorers.h"
#include "apps/tasks/answers/translator.h"
#include "core/base/interruption.h"
#include "core/base/text.h"
#include "core/cpu/parallel.h"
#include "data/corpora/empty_text.h"
#include "data/files/sentences.h"
#include "data/files/text.h"
#include "data/files/utf8.h"
#include "data/n_best/n_best_file.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

struct TranslateArguments : FilterArguments {
  SearchArguments search = {};
  std::string prefix = {};     ///< file with what each translation begins with, or ""
  bool prefix_column = false;  ///< it is the second column of the input instead
  AlignmentArguments alignments = {};
  bool word_scores = false;  ///< behind a tab, the log-probability of each word and of the end
  std::string detail = {};   ///< "" or "jsonl"
  std::string n_best_format = "lines";            ///< lines | moses
  std::optional<int64_t> max_source_length = {};  ///< tokens that a source is cut to
  RequiredTextOptions required = {};
  std::string rescore = {};                       ///< file of the scorers that choose, or ""
  std::string split_sentences = {};  ///< the language whose sentences lines are split into, or ""
};

// A line of the input, or a sentence of one, with its translations.
struct Answer {
  std::string source;
  std::string prefix = {};
  std::string gap = {};   ///< what stands between it and the next sentence of the line
  bool ends_line = true;  ///< false: another sentence of the line follows
  int64_t number = 0;     ///< of the line, from 1
  int64_t draws = 0;      ///< its stream of draws: its number among all of the input, from 0
  size_t sentence = 0;    ///< its number among the sources, if it is not blank
  bool blank = false;
  bool done = false;
  std::vector<Hypothesis> hypotheses = {};  ///< none for a blank line
  std::vector<Alignment> alignments = {};   ///< one for each, or none
};

Json details(const Answer& answer, bool with_prefix, const Tokenizer& tokenizer) {
  Json list = Json::array();
  for (size_t n = 0; n < answer.hypotheses.size(); ++n) {
    const Hypothesis& hypothesis = answer.hypotheses[n];
    Json words = Json::array();
    for (const WordScore& word :
         word_scores(tokenizer, hypothesis.tokens, hypothesis.token_log_probabilities)) {
      words.push_back({{"text", word.text}, {"log_probability", word.log_probability}});
    }
    list.push_back({{"text", translated_text(tokenizer, hypothesis)},
                    {"score", hypothesis.score},
                    {"log_probability", hypothesis.log_probability},
                    {"finished", hypothesis.has_eos && !hypothesis.cut}});
    list.back().update(token_details(hypothesis, tokenizer));
    list.back()["words"] = std::move(words);
    if (!answer.alignments.empty()) list.back()["alignment"] = answer.alignments[n];
  }
  Json line = {{"source", answer.source}};
  if (with_prefix) line["prefix"] = answer.prefix;
  line["translations"] = std::move(list);
  return line;
}

// The log-probability of each word and of the end, behind a tab.
std::string word_scores_of(const Hypothesis& hypothesis, const Tokenizer& tokenizer) {
  std::string text = "\t";
  for (const WordScore& word :
       word_scores(tokenizer, hypothesis.tokens, hypothesis.token_log_probabilities)) {
    text += fmt::format("{:.4f} ", word.log_probability);
  }
  return text + fmt::format("{:.4f}", hypothesis.token_log_probabilities.back());
}

// Counts translations that end at the length limit, and reports them at the end.
class CutTranslations {
 public:
  void add(int64_t line) {
    ++count_;
    if (std::ssize(lines_) < kNamed) lines_.push_back(std::to_string(line));
  }
  void tell() const {
    if (count_ == 0) return;
    const bool one = count_ == 1;
    std::cerr << concat("warning: ", count_, one ? " translation is" : " translations are",
                        " cut at the length limit (line", one ? " " : "s ", join(lines_, ", "),
                        count_ > kNamed ? ", ..." : "",
                        "); --max-length-ratio or --max-new-tokens raises it.\n");
  }

 private:
  static constexpr int64_t kNamed = 10;

  int64_t count_ = 0;
  std::vector<std::string> lines_;
};

class LineTranslator {
 public:
  /// `rescorer` may be null.
  LineTranslator(const Translator& models, const TranslateArguments& arguments, Rescorer* rescorer,
                 LineFilter& filter)
      : models_(models),
        arguments_(arguments),
        rescorer_(rescorer),
        filter_(filter),
        options_(arguments.search.over(models.config().generation)),
        prefixes_(arguments.prefix, arguments.prefix_column),
        required_(arguments.required, models, options_),
        aligner_(models, arguments.alignments),
        book_(arguments.attention) {
    if (!arguments.split_sentences.empty()) splitter_.emplace(arguments.split_sentences);
    if (rescorer_ != nullptr) widen_for_rescoring(options_);
    widen_for_distinct_texts(options_);
  }

  void run() {
    filter_.run(window_of(arguments_.batch_size), [&](const std::vector<std::string>& lines,
                                                      int64_t first) { answer(lines, first); });
    prefixes_.check_end();
    aligner_.finish();
    book_.write();
    filter_.finish();
    if (rescorer_ != nullptr) rescorer_->finish();
    cut_.tell();
    required_.tell();
  }

 private:
  void answer(const std::vector<std::string>& lines, int64_t first) {
    std::vector<Answer> answers;
    std::vector<size_t> places;  // of the sentences among the answers
    std::vector<PlacedText> placed;
    Sentences sentences{.rows = models_.rows(),
                        .log_probabilities = scores_tokens() || moses() || rescorer_ != nullptr,
                        .token_log_probabilities = scores_tokens()};
    for (Answer& answer : read(lines, first)) {
      PlacedText text = encode(required_.source(answer.source));
      std::vector<int32_t> ids = text.ids();
      answer.blank = answer.done = is_empty_text(answer.source, ids);
      if (!answer.blank) {
        answer.sentence = places.size();
        places.push_back(answers.size());
        filter_.read(ids, *models_.tokenizers().source, answer.number - 1);
        models_.cut_source(ids, answer.number);
        text.tokens.resize(ids.size());
        sentences.sources.push_back(std::move(ids));
        sentences.numbers.push_back(answer.draws);
        if (aligner_.counts_words()) placed.push_back(std::move(text));
        if (prefixes_.any()) {
          sentences.prefixes.push_back(prefix_tokens(models_, answer.prefix, answer.number));
        }
        required_.add(answer.source, answer.number, sentences);
        models_.choose_words(sentences);
      }
      answers.push_back(std::move(answer));
    }
    size_t printed = 0;
    const auto print_those_done = [&] {
      int64_t ended = 0;
      for (; printed < answers.size() && answers[printed].done; ++printed) {
        const Answer& answer = answers[printed];
        print(answer);
        ended += answer.ends_line ? 1 : 0;
        if (!book_.wants() || answer.blank) continue;
        book_.add(attention_page(models_, sentences.sources[answer.sentence],
                                 answer.hypotheses.at(0).tokens),
                  answer.source);
      }
      if (ended > 0) filter_.answered(ended);
    };
    print_those_done();  // blank ones in front
    translate(models_.models(), sentences, drawing_options(options_), arguments_.batch_size,
              [&](size_t sentence, std::vector<Hypothesis> found) {
                Answer& answer = answers[places[sentence]];
                answer.hypotheses = best_translations(std::move(found), translations_of_a_line(),
                                                      options_, *models_.tokenizers().target);
                answer.done = !aligner_.wanted() && rescorer_ == nullptr;
                if (required_.any() && !answer.hypotheses.empty()) {
                  required_.check(answer.hypotheses[0], sentences.constraints[sentence],
                                  answer.number);
                }
                print_those_done();
              });
    if (rescorer_ != nullptr) rescore(answers, places);
    if (aligner_.wanted()) align(sentences, placed, places, answers);
    for (const size_t place : places) answers[place].done = true;
    print_those_done();
  }

  // Lines as they are, or their sentences.
  std::vector<Answer> read(const std::vector<std::string>& lines, int64_t first) {
    std::vector<Answer> read;
    for (size_t i = 0; i < lines.size(); ++i) {
      const int64_t number = first + static_cast<int64_t>(i) + 1;
      std::vector<SentencePart> parts;
      if (splitter_) parts = splitter_->split(lines[i]);
      if (parts.empty()) parts.push_back({lines[i], {}});
      for (const SentencePart& part : parts) {
        read.push_back({.source = std::string(part.text),
                        .gap = std::string(part.gap),
                        .ends_line = &part == &parts.back(),
                        .number = number,
                        .draws = sentences_++});
        read.back().prefix = prefixes_.take(read.back().source);
      }
    }
    return read;
  }

  // With places if words are counted.
  PlacedText encode(const std::string& source) const {
    const Tokenizer& tokenizer = *models_.tokenizers().source;
    if (aligner_.counts_words()) return placed_source(tokenizer, source);
    PlacedText text{.text = source};
    for (const int32_t id : tokenizer.encode(source)) text.tokens.push_back({.id = id});
    return text;
  }

  // Of which the n best are printed.
  int64_t translations_of_a_line() const {
    return rescorer_ != nullptr ? candidates_of(options_) : arguments_.search.n_best;
  }

  void rescore(std::vector<Answer>& answers, const std::vector<size_t>& places) const {
    for (const size_t place : places) {
      stop_if_asked();
      Answer& answer = answers[place];
      answer.hypotheses =
          rescorer_->best(answer.source, answer.number, std::move(answer.hypotheses),
                          arguments_.search.n_best, *models_.tokenizers().target);
    }
  }

  void align(const Sentences& sentences, const std::vector<PlacedText>& placed,
             const std::vector<size_t>& places, std::vector<Answer>& answers) const {
    std::vector<std::vector<Hypothesis>> found;
    for (const size_t place : places) found.push_back(answers[place].hypotheses);
    auto alignments = aligner_.align(sentences.sources, placed, found, arguments_.batch_size);
    for (size_t i = 0; i < places.size(); ++i) {
      answers[places[i]].alignments = std::move(alignments[i]);
    }
  }

  bool moses() const { return arguments_.n_best_format == "moses"; }
  bool scores_tokens() const { return arguments_.word_scores || arguments_.detail == "jsonl"; }

  void print(const Answer& answer) {
    std::ostream& out = filter_.out();
    const Tokenizer& tokenizer = *models_.tokenizers().target;
    if (!answer.hypotheses.empty() && answer.hypotheses[0].cut) cut_.add(answer.number);
    for (const Alignment& alignment : answer.alignments) aligner_.write(pharaoh(alignment));
    // A list has as many lines for a line of which nothing can be translated.
    const int64_t missing = arguments_.search.n_best - std::ssize(answer.hypotheses);
    // In Moses' lists numbers separate the lines, and a filler would win in a rescoring.
    const bool fills = !moses() || answer.hypotheses.empty();
    for (int64_t i = 0; i < missing && fills; ++i) aligner_.write("");
    if (arguments_.detail == "jsonl") {
      out << json_line(details(answer, prefixes_.any(), tokenizer)) << '\n';
      return;
    }
    for (size_t n = 0; n < answer.hypotheses.size(); ++n) {
      const Hypothesis& hypothesis = answer.hypotheses[n];
      const std::string text = one_line(translated_text(tokenizer, hypothesis));
      if (moses()) {
        out << fmt::format("{} ||| {} ||| F0= {:.6f} ||| {:.6f}", answer.number - 1,
                           as_n_best_field(text), hypothesis.log_probability, hypothesis.score);
      } else {
        out << text;
      }
      if (arguments_.word_scores) out << word_scores_of(hypothesis, tokenizer);
      if (aligner_.inline_with_text()) out << " ||| " << pharaoh(answer.alignments[n]);
      out << (answer.ends_line ? "\n" : answer.gap);
    }
    for (int64_t i = 0; i < missing && fills; ++i) {
      out << (moses() ? fmt::format("{} |||  ||| F0= 0 ||| 0", answer.number - 1) : "")
          << (answer.ends_line ? "\n" : answer.gap);
    }
  }

  const Translator& models_;
  const TranslateArguments& arguments_;
  Rescorer* rescorer_;
  LineFilter& filter_;
  SearchOptions options_;
  Prefixes prefixes_;
  RequiredTexts required_;
  std::optional<SentenceSplitter> splitter_;
  int64_t sentences_ = 0;  // read so far; without a splitter lines
  Aligner aligner_;
  AttentionBook book_;
  CutTranslations cut_;
};

int run_translate(const TranslateArguments& arguments) {
  arguments.search.validate();
  const bool attends = !arguments.alignments.file.empty() || !arguments.attention.empty();
  if (arguments.required.annotates() && attends) {
    fail(ErrorKind::kConfig,
         "[translate] --terms-mode soft writes into the lines that the model reads, so that their "
         "words cannot be counted for --alignments and --attention.");
  }
  LineFilter filter("translate", arguments);
  set_num_threads(arguments.compute.threads);
  std::optional<Rescorer> rescorer;
  if (!arguments.rescore.empty()) {
    rescorer.emplace(arguments.rescore,
                     ScorerUse{arguments.compute.device, arguments.models.format});
  }
  Translator models(arguments.models, arguments.compute.device, "translate", kTranslates,
                    override_languages({}, arguments.search.overrides));
  models.use_shortlist(arguments.search.over(models.config().generation));
  models.limit_sources(arguments.max_source_length);
  LineTranslator(models, arguments, rescorer ? &*rescorer : nullptr, filter).run();
  return 0;
}

void add_required(CLI::App& app, RequiredTextOptions& required) {
  app.add_option(
      "--terms", required.terms,
      "file of lines term<TAB>translation: where a line has the term as a whole word (its "
      "first letter may be a capital), its translation has this text");
  app.add_option("--terms-mode", required.terms_mode,
                 "hard (a beam search that ends only with all of them) | soft (the line says it "
                 "between <term>, <means> and </term>, for models that learnt from such lines, as "
                 "annotate-terms.sh writes them)")
      ->check(CLI::IsMember(names_of(RequiredTextOptions::kModes)))
      ->capture_default_str()
      ->needs("--terms");
  app.add_option(
      "--keep", required.keep,
      "texts that come out as they went in, as often: urls | emails | numbers | "
      "placeholders ({name}, %s) | symbols (tokenizer.user_symbols) | /EXPRESSION/; several "
      "are allowed");
}

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

}  // namespace

extern const Command kTranslate("translate", "Translate standard input, or a file, line by line",
                                add_translate, run_translate);

}  // namespace tapestry
