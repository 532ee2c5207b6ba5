// tapestry translate: a translation of each line of the input.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/commands/answers/line_filter.h"
#include "apps/commands/answers/prefixes.h"
#include "apps/commands/answers/translate_arguments.h"
#include "apps/commands/command.h"
#include "apps/commands/pages/attention_page.h"
#include "apps/tasks/answers/answered_text.h"
#include "apps/tasks/answers/least_risk.h"
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
  RestoredPart restored = {};               ///< if anything is wanted
};

std::string text_of(const Answer& answer, size_t n, const Tokenizer& tokenizer,
                    const TextOut& written) {
  if (answer.restored.marked) return RestoredLines::text(answer.restored, n, written);
  return n < answer.hypotheses.size() ? written(translated_text(tokenizer, answer.hypotheses[n]))
                                      : "";
}

Json details(const Answer& answer, bool with_prefix, const Tokenizer& tokenizer) {
  const auto as_it_is = [](std::string_view text) { return std::string(text); };
  Json list = Json::array();
  for (size_t n = 0; n < answer.hypotheses.size(); ++n) {
    const Hypothesis& hypothesis = answer.hypotheses[n];
    Json words = Json::array();
    for (const WordScore& word :
         word_scores(tokenizer, hypothesis.tokens, hypothesis.token_log_probabilities)) {
      words.push_back({{"text", word.text}, {"log_probability", word.log_probability}});
    }
    list.push_back({{"text", text_of(answer, n, tokenizer, as_it_is)},
                    {"score", hypothesis.score},
                    {"log_probability", hypothesis.log_probability},
                    {"finished", hypothesis.has_eos && !hypothesis.cut}});
    list.back().update(token_details(hypothesis, tokenizer));
    list.back()["words"] = std::move(words);
    if (!answer.alignments.empty()) list.back()["alignment"] = answer.alignments[n];
  }
  Json line = {{"source", answer.restored.marked ? answer.restored.line : answer.source}};
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
        restored_(models, arguments.restored, arguments.alignments.layer, arguments.batch_size),
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
        std::string_view read = answer.source;
        const bool is_cut = ids.size() < text.tokens.size();
        if (is_cut && required_.any()) read = read.substr(0, bytes_of(answer.source, ids.size()));
        text.tokens.resize(ids.size());
        sentences.sources.push_back(std::move(ids));
        sentences.numbers.push_back(answer.draws);
        if (needs_places()) placed.push_back(std::move(text));
        if (prefixes_.any()) {
          sentences.prefixes.push_back(prefix_tokens(models_, answer.prefix, answer.number));
        }
        required_.add(read, answer.number, sentences);
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
                answer.done = finds_all();
                if (required_.any() && !answer.hypotheses.empty()) {
                  required_.check(answer.hypotheses[0], sentences.constraints[sentence],
                                  answer.number);
                }
                print_those_done();
              });
    if (rescorer_ != nullptr) rescore(answers, places);
    if (aligner_.wanted() || restored_.wanted()) align(sentences, placed, places, answers);
    for (const size_t place : places) answers[place].done = true;
    print_those_done();
  }

  // Lines as they are, or their sentences.
  std::vector<Answer> read(const std::vector<std::string>& lines, int64_t first) {
    std::vector<Answer> read;
    for (size_t i = 0; i < lines.size(); ++i) {
      const int64_t number = first + static_cast<int64_t>(i) + 1;
      std::string line = lines[i];
      const std::string prefix = prefixes_.take(line);
      RestoredPart kept;
      const auto parts = restored_.read(line, splitter_ ? &*splitter_ : nullptr, kept);
      for (const SentencePart& part : parts) {
        kept.begin = static_cast<size_t>(part.text.data() - line.data());
        read.push_back({.source = std::string(part.text),
                        .prefix = prefix,
                        .gap = std::string(part.gap),
                        .ends_line = &part == &parts.back(),
                        .number = number,
                        .draws = sentences_++,
                        .restored = kept});
      }
    }
    return read;
  }

  // The bytes that the first tokens of a source stand for.
  size_t bytes_of(const std::string& source, size_t tokens) const {
    const PlacedText placed = placed_source(*models_.tokenizers().source, source);
    if (tokens >= placed.tokens.size()) return source.size();
    return tokens == 0 ? 0 : static_cast<size_t>(placed.tokens[tokens - 1].end);
  }

  // With places if words are counted.
  PlacedText encode(const std::string& source) const {
    const Tokenizer& tokenizer = *models_.tokenizers().source;
    if (needs_places()) return placed_source(tokenizer, source);
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
    std::vector<std::vector<Alignment>> alignments(places.size());
    if (aligner_.wanted()) {
      alignments = aligner_.align(sentences.sources, placed, found, arguments_.batch_size);
    }
    std::vector<RestoredLines::ToAlign> parts;
    for (size_t i = 0; i < places.size(); ++i) {
      Answer& answer = answers[places[i]];
      answer.alignments = std::move(alignments[i]);
      if (restored_.wanted()) parts.push_back({&answer.restored, placed[i], answer.hypotheses});
    }
    if (!parts.empty()) restored_.align(parts);
  }

  // True if a search alone gives the answer, so that it can be printed at once.
  bool finds_all() const {
    return !aligner_.wanted() && !restored_.wanted() && rescorer_ == nullptr;
  }
  bool needs_places() const { return aligner_.counts_words() || restored_.wanted(); }

  bool moses() const { return arguments_.n_best_format == "moses"; }
  bool scores_tokens() const { return arguments_.word_scores || arguments_.detail == "jsonl"; }

  void print(const Answer& answer) {
    std::ostream& out = filter_.out();
    const Tokenizer& tokenizer = *models_.tokenizers().target;
    if (!answer.hypotheses.empty() && answer.hypotheses[0].cut) cut_.add(answer.number);
    if (answer.restored.marked && splitter_) {
      const auto line = restored_.join(answer.restored, answer.gap, answer.ends_line, as_one_line);
      if (line) out << *line << '\n';
      return;
    }
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
      const std::string text = text_of(answer, n, tokenizer, as_one_line);
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
      const bool blank = answer.hypotheses.empty();  // it may have markup
      const std::string text = blank ? text_of(answer, 0, tokenizer, as_one_line) : "";
      out << (moses() ? fmt::format("{} ||| {} ||| F0= 0 ||| 0", answer.number - 1,
                                    as_n_best_field(text))
                      : text)
          << (answer.ends_line ? "\n" : answer.gap);
    }
  }

  static std::string as_one_line(std::string_view text) { return one_line(std::string(text)); }

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
  RestoredLines restored_;
  AttentionBook book_;
  CutTranslations cut_;
};

int run_translate(const TranslateArguments& arguments) {
  arguments.search.validate();
  const bool attends = !arguments.alignments.file.empty() || !arguments.attention.empty();
  const bool restores = !arguments.restored.markup.empty() || arguments.restored.copy_unknown;
  if (arguments.required.annotates() && (attends || restores)) {
    fail(ErrorKind::kConfig,
         "[translate] --terms-mode soft writes into the lines that the model reads, so that their "
         "words cannot be counted for --alignments, --attention, --markup and --copy-unknown.");
  }
  if (arguments.alignments.layer != 0 && arguments.alignments.file.empty() && !restores) {
    fail(ErrorKind::kConfig,
         "[translate] --alignment-layer is for --alignments, --markup and --copy-unknown: give one "
         "of them.");
  }
  LineFilter filter("translate", arguments, {{"--alignments", arguments.alignments.file}},
                    {{"--prefix", arguments.prefix},
                     {"--terms", arguments.required.terms},
                     {"--rescore", arguments.rescore}});
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

}  // namespace

extern const Command kTranslate("translate", "Translate standard input, or a file, line by line",
                                add_translate, run_translate);

}  // namespace tapestry
