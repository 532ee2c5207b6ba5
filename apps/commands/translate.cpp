#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "apps/commands/attention_page.h"
#include "apps/commands/filter.h"
#include "apps/commands/line_filter.h"
#include "apps/commands/output_file.h"
#include "apps/tasks/alignment.h"
#include "apps/tasks/translator.h"
#include "core/parallel.h"
#include "data/text.h"
#include "data/utf8.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

// What each translation must begin with: a line of a file, or the second column of the input.
class Prefixes {
 public:
  Prefixes(const std::string& path, bool in_column) : in_column_(in_column) {
    if (!path.empty()) file_.emplace(path);
  }

  // Of the next line of the input, which loses its other columns.
  std::string take(std::string& line) {
    std::string prefix;
    if (in_column_) {
      const size_t tab = line.find('\t');
      if (tab == std::string::npos) return "";
      prefix = line.substr(tab + 1, line.find('\t', tab + 1) - tab - 1);
      line.resize(tab);
    } else if (file_ && !file_->next(prefix)) {
      fail(ErrorKind::kData, "[translate] ", file_->path(), " has ", file_->line_number(),
           " lines, the input has more.");
    }
    return prefix;
  }
  // At the end of the input.
  void check_end() {
    std::string line;
    if (file_ && file_->next(line)) {
      fail(ErrorKind::kData, "[translate] ", file_->path(),
           " has more lines than the input, which has ", file_->line_number() - 1, '.');
    }
  }
  bool any() const { return in_column_ || file_; }

 private:
  bool in_column_;
  std::optional<LineReader> file_;
};

// The hard alignment of each translation.
class Aligner {
 public:
  Aligner(const Translator& models, const TranslateArguments& arguments)
      : models_(models), arguments_(arguments) {
    if (!wanted()) return;
    source_attention(models.models(), {{}}, {{}}, arguments.alignment_layer, 1,
                     models.rows());  // is it there?
    if (arguments.alignments == "-") return;
    file_.emplace(arguments.alignments);
  }

  bool wanted() const { return !arguments_.alignments.empty(); }
  bool inline_with_text() const { return arguments_.alignments == "-"; }

  // Of the results of each source.
  std::vector<std::vector<Alignment>> align(
      const std::vector<std::vector<int32_t>>& sources,
      const std::vector<std::vector<Hypothesis>>& results) const {
    std::vector<std::vector<int32_t>> from, to;
    for (size_t i = 0; i < sources.size(); ++i) {
      for (const Hypothesis& hypothesis : results[i]) {
        from.push_back(sources[i]);
        to.push_back(hypothesis.tokens);
      }
    }
    const auto weights = source_attention(models_.models(), from, to, arguments_.alignment_layer,
                                          arguments_.files.batch_size, models_.rows());
    std::vector<std::vector<Alignment>> alignments(sources.size());
    size_t next = 0;
    for (size_t i = 0; i < sources.size(); ++i) {
      for (size_t n = 0; n < results[i].size(); ++n, ++next) {
        alignments[i].push_back(hard_alignment(weights[next],
                                               units(*models_.tokenizers().source, from[next]),
                                               units(*models_.tokenizers().target, to[next])));
      }
    }
    return alignments;
  }
  void write(const std::string& line) {
    if (file_) file_->stream() << line << '\n';
  }
  void finish() {
    if (file_) file_->finish();
  }

 private:
  std::vector<int32_t> units(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) const {
    if (arguments_.alignment_units == "words") return word_numbers(tokenizer, ids);
    std::vector<int32_t> numbers(ids.size());
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
  }

  const Translator& models_;
  const TranslateArguments& arguments_;
  std::optional<OutputFile> file_;
};

// A line of the input and what became of it.
struct Answer {
  std::string source;
  std::string prefix = {};
  size_t sentence = 0;  ///< its number among the sources, if it is not blank
  bool blank = false;
  bool done = false;
  std::vector<Hypothesis> hypotheses = {};  ///< none of a blank line
  std::vector<Alignment> alignments = {};   ///< one for each, or none
};

Json details(const Answer& answer, bool with_prefix, const Tokenizer& tokenizer) {
  Json list = Json::array();
  for (size_t n = 0; n < answer.hypotheses.size(); ++n) {
    const Hypothesis& hypothesis = answer.hypotheses[n];
    Json pieces = Json::array(), words = Json::array();
    for (const int32_t id : hypothesis.tokens) pieces.push_back(tokenizer.piece(id));
    for (const WordScore& word :
         word_scores(tokenizer, hypothesis.tokens, hypothesis.token_log_probabilities)) {
      words.push_back({{"text", word.text}, {"log_probability", word.log_probability}});
    }
    list.push_back({{"text", tokenizer.decode(hypothesis.tokens)},
                    {"score", hypothesis.score},
                    {"log_probability", hypothesis.log_probability},
                    {"tokens", std::move(pieces)},
                    {"token_log_probabilities", hypothesis.token_log_probabilities},
                    {"words", std::move(words)}});
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

class Command {
 public:
  Command(const Translator& models, const TranslateArguments& arguments, LineFilter& filter)
      : models_(models),
        arguments_(arguments),
        filter_(filter),
        options_(search_options(models.config().generation, arguments.search)),
        prefixes_(arguments.prefix, arguments.prefix_column),
        aligner_(models, arguments),
        book_(arguments.attention) {
    options_.max_length_ratio = arguments.max_length_ratio.value_or(options_.max_length_ratio);
    options_.validate();
  }

  void run() {
    filter_.run(
        window_of(arguments_.files.batch_size),
        [&](const std::vector<std::string>& lines, int64_t first) { answer(lines, first); });
    prefixes_.check_end();
    aligner_.finish();
    book_.write();
    filter_.finish();
  }

 private:
  void answer(const std::vector<std::string>& lines, int64_t first) {
    std::vector<Answer> answers;
    std::vector<size_t> places;  // of the sentences among the answers
    Sentences sentences{.rows = models_.rows(),
                        .first_id = first,
                        .log_probabilities = scores_tokens(),
                        .token_log_probabilities = scores_tokens()};
    for (const std::string& line : lines) {
      Answer answer{.source = line};
      answer.prefix = prefixes_.take(answer.source);
      answer.blank = answer.done = is_blank(answer.source);
      if (!answer.blank) {
        answer.sentence = places.size();
        places.push_back(answers.size());
        const int64_t number = first + std::ssize(answers) + 1;
        sentences.sources.push_back(models_.encode_source(answer.source, number));
        if (prefixes_.any()) {
          sentences.prefixes.push_back(encode_prefix(answer.prefix, number));
        }
      }
      answers.push_back(std::move(answer));
    }
    size_t printed = 0;
    const auto print_those_done = [&] {
      const size_t before = printed;
      for (; printed < answers.size() && answers[printed].done; ++printed) {
        const Answer& answer = answers[printed];
        print(answer);
        if (!book_.wants() || answer.blank) continue;
        book_.add(attention_page(models_, sentences.sources[answer.sentence],
                                 answer.hypotheses.at(0).tokens));
      }
      if (printed > before) filter_.answered(static_cast<int64_t>(printed - before));
    };
    print_those_done();  // blank ones in front
    translate(models_.models(), sentences, options_, arguments_.files.batch_size,
              [&](size_t sentence, std::vector<Hypothesis> found) {
                Answer& answer = answers[places[sentence]];
                answer.hypotheses = std::move(found);
                answer.done = !aligner_.wanted();
                print_those_done();
              });
    if (!aligner_.wanted()) return;
    align(sentences, places, answers);
    print_those_done();
  }

  void align(const Sentences& sentences, const std::vector<size_t>& places,
             std::vector<Answer>& answers) const {
    std::vector<std::vector<Hypothesis>> found;
    for (const size_t place : places) found.push_back(answers[place].hypotheses);
    auto alignments = aligner_.align(sentences.sources, found);
    for (size_t i = 0; i < places.size(); ++i) {
      answers[places[i]].alignments = std::move(alignments[i]);
      answers[places[i]].done = true;
    }
  }

  std::vector<int32_t> encode_prefix(const std::string& text, int64_t line) const {
    std::vector<int32_t> ids = models_.tokenizers().target->encode(text);
    const int64_t most = longest_sequence(models_.models()) - 1;  // eos
    if (std::ssize(ids) > most) {
      fail(ErrorKind::kData, "[translate] the prefix of line ", line, " has ", ids.size(),
           " tokens, the model writes at most ", most, '.');
    }
    return ids;
  }

  bool scores_tokens() const { return arguments_.word_scores || arguments_.detail == "jsonl"; }

  void print(const Answer& answer) {
    std::ostream& out = filter_.out();
    const Tokenizer& tokenizer = *models_.tokenizers().target;
    for (const Alignment& alignment : answer.alignments) aligner_.write(pharaoh(alignment));
    if (answer.hypotheses.empty()) aligner_.write("");
    if (arguments_.detail == "jsonl") {
      out << details(answer, prefixes_.any(), tokenizer)
                 .dump(-1, ' ', false, Json::error_handler_t::replace)
          << '\n';
      return;
    }
    if (answer.hypotheses.empty()) out << '\n';
    for (size_t n = 0; n < answer.hypotheses.size(); ++n) {
      const Hypothesis& hypothesis = answer.hypotheses[n];
      out << tokenizer.decode(hypothesis.tokens);
      if (arguments_.word_scores) out << word_scores_of(hypothesis, tokenizer);
      if (aligner_.inline_with_text()) out << " ||| " << pharaoh(answer.alignments[n]);
      out << '\n';
    }
  }

  const Translator& models_;
  const TranslateArguments& arguments_;
  LineFilter& filter_;
  SearchOptions options_;
  Prefixes prefixes_;
  Aligner aligner_;
  AttentionBook book_;
};

}  // namespace

int run_translate(const TranslateArguments& arguments) {
  LineFilter filter("translate", arguments.files);
  set_num_threads(arguments.compute.threads);
  const Translator models(arguments.models, arguments.compute.device, "translate", kTranslates);
  Command(models, arguments, filter).run();
  return 0;
}

}  // namespace tapestry
