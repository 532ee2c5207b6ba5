// tapestry score: the log-probability of each line, or of a translation.
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/commands/answers/aligner.h"
#include "apps/commands/answers/filter.h"
#include "apps/commands/answers/line_filter.h"
#include "apps/commands/command.h"
#include "apps/commands/pages/attention_page.h"
#include "apps/tasks/answers/translator.h"
#include "apps/tasks/text_models.h"
#include "core/cpu/parallel.h"

namespace tapestry {
namespace {

/// The input has the targets.
struct ScoreArguments : FilterArguments {
  std::string source = {};         ///< file, of a translation model
  bool tokens = false;             ///< also the log-probability of each token
  SearchArguments languages = {};  ///< of such a model
  AlignmentArguments alignments = {};
};

// `alignment` is written if it is not null.
std::string line_of(const Score& score, bool by_token, const Tokenizer& tokenizer,
                    const Alignment* alignment = nullptr) {
  if (!by_token) {
    return concat(score.log_probability, '\t', score.tokens, alignment == nullptr ? "" : " ||| ",
                  alignment == nullptr ? "" : pharaoh(*alignment));
  }
  nlohmann::ordered_json pieces = nlohmann::ordered_json::array();
  for (const int32_t id : score.ids) pieces.push_back(tokenizer.piece(id));
  nlohmann::ordered_json line = {{"log_probability", score.log_probability},
                                 {"tokens", std::move(pieces)},
                                 {"token_log_probabilities", score.each}};
  if (alignment != nullptr) line["alignment"] = *alignment;
  return json_line(line);
}

ParallelCorpus read_pairs(const Translator& models, const ScoreArguments& arguments,
                          bool keep_text) {
  CorpusSpec spec;
  spec.source = arguments.source;
  spec.target = arguments.input == "-" ? "/dev/stdin" : arguments.input;
  CorpusOptions options;
  options.max_length = models.longest();
  options.overlong = "truncate";
  options.keep_text = keep_text;
  ParallelCorpus pairs = load_parallel({spec}, models.tokenizers(), options);
  if (pairs.counts.kept != pairs.counts.read) {
    fail(ErrorKind::kData, "[score] every line needs a score, but not every pair can be used: ",
         pairs.counts.summary());
  }
  if (pairs.counts.truncated > 0) {
    std::cerr << concat("warning: ", pairs.counts.truncated,
                        pairs.counts.truncated == 1 ? " pair is" : " pairs are", " cut to ",
                        options.max_length, " tokens a side.\n");
  }
  return pairs;
}

// The alignment of each pair.
std::vector<Alignment> align_pairs(const Translator& models, const ParallelCorpus& pairs,
                                   const Aligner& aligner, int64_t batch_size) {
  std::vector<std::vector<int32_t>> sources;
  std::vector<PlacedText> placed;
  std::vector<std::vector<Hypothesis>> targets;
  for (int64_t i = 0; i < pairs.size(); ++i) {
    const auto source = pairs.source[i], target = pairs.target[i];
    sources.emplace_back(source.begin(), source.end());
    targets.push_back({{.tokens = {target.begin(), target.end()}}});
    if (!aligner.counts_words()) continue;
    placed.push_back(placed_source(*models.tokenizers().source, std::string(pairs.source_text[i])));
    placed.back().tokens.resize(source.size());
  }
  std::vector<Alignment> alignments;
  for (auto& one : aligner.align(sources, placed, targets, batch_size)) {
    alignments.push_back(std::move(one.at(0)));
  }
  return alignments;
}

void score_pairs(const Translator& models, const ScoreArguments& arguments, AttentionBook& book,
                 std::ostream& out) {
  Aligner aligner(models, arguments.alignments);
  const ParallelCorpus pairs =
      read_pairs(models, arguments, book.wants() || aligner.counts_words());
  for (int64_t i = 0; i < pairs.size() && book.wants(); ++i) {
    const auto source = pairs.source[i], target = pairs.target[i];
    book.add(attention_page(models, {source.begin(), source.end()}, {target.begin(), target.end()}),
             std::string(pairs.source_text[i]));
  }
  std::vector<Alignment> alignments;
  if (aligner.wanted()) alignments = align_pairs(models, pairs, aligner, arguments.batch_size);
  const std::vector<Score> scores = score(models.models(), pairs, arguments.batch_size);
  for (size_t i = 0; i < scores.size(); ++i) {
    if (aligner.wanted()) aligner.write(pharaoh(alignments[i]));
    out << line_of(scores[i], arguments.tokens, *models.tokenizers().target,
                   aligner.inline_with_text() ? &alignments[i] : nullptr)
        << '\n';
  }
  aligner.finish();
}

// Prints the score of a line of a text, of which `number` come before.
void score_line(const TextModels& models, const std::string& line, int64_t number, bool by_token,
                AttentionBook& book, LineFilter& filter) {
  if (filter.was_ill_formed(number)) {  // no text, so it has no score
    filter.out() << '\n';
    return;
  }
  std::vector<int32_t> ids = ids_to_score(models, line, number + 1);
  filter.read(ids, models.tokenizer(), number);
  filter.out() << line_of(score_texts(models, {ids}).at(0), by_token, models.tokenizer()) << '\n';
  if (!book.wants() || ids.size() < 2) return;
  ids.pop_back();  // the last is only predicted
  book.add(attention_page(models.trunks(), models.tokenizer(), ids), line);
}

int run_score(const ScoreArguments& arguments) {
  set_num_threads(arguments.compute.threads);
  const std::string& device = arguments.compute.device;
  if (arguments.source.empty()) {
    LineFilter filter("score", arguments);
    AttentionBook book(arguments.attention);
    const TextModels models(arguments.models, device, "score without --source", kContinuesText);
    if (!begins_with_eos(models.first().config)) {
      std::cerr << "note: this model knows no beginning of a text: the first token of a line is "
                   "only read, and has no score\n";
    }
    filter.run(1, [&](const std::vector<std::string>& lines, int64_t first) {
      score_line(models, lines[0], first, arguments.tokens, book, filter);
    });
    book.write();
    filter.finish();
    return 0;
  }
  // Both texts are read before an output gets its name, but a corpus is no place for scores.
  check_outputs("score",
                {{"--output", arguments.output},
                 {"--attention", arguments.attention},
                 {"--alignments", arguments.alignments.file}},
                {{"--source", arguments.source}, {"--target", arguments.input}});
  AttentionBook book(arguments.attention);
  OutputFile output(arguments.output);
  const Translator models(arguments.models, device, "score with --source", kScoresPairs,
                          override_languages({}, arguments.languages.overrides));
  score_pairs(models, arguments, book, output.stream());
  book.write();
  output.finish();
  return 0;
}

void add_score(CLI::App& app, ScoreArguments& arguments) {
  add_models(app, arguments);
  auto* source = app.add_option("--source", arguments.source, "file, for a translation model");
  for (CLI::Option* language : add_languages(app, arguments.languages)) language->needs(source);
  app.add_option("--target,--input", arguments.input, "file; -: standard input")->required();
  app.add_flag("--tokens", arguments.tokens,
               "a line is a JSON object: also the tokens, and the log-probability of each");
  add_output(app, arguments, "pairs scored at a time, with --source");
  add_attention(app, arguments);
  const std::vector<CLI::Option*> alignments = add_alignments(app, arguments.alignments);
  for (CLI::Option* option : alignments) option->needs(source);
  alignments.back()->needs(alignments.front());  // the layer is that of the file
}

}  // namespace

extern const Command kScore(
    "score",
    "Log-probability and tokens of each target line, given its source line if there is one",
    add_score, run_score);

}  // namespace tapestry
