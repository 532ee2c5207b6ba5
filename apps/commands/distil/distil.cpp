// tapestry distil: a corpus that trained models have translated, and a student's config for it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <tuple>

#include "apps/checkpoint/file_names.h"
#include "apps/commands/command.h"
#include "apps/commands/distil/corpus_translator.h"
#include "apps/commands/distil/selection.h"
#include "apps/commands/distil/student.h"
#include "apps/commands/number_bounds.h"
#include "apps/commands/options.h"
#include "apps/run/data_files.h"
#include "core/base/progress.h"
#include "core/cpu/parallel.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

struct DistilArguments {
  ModelChoice models = {};
  ComputeArguments compute = {};
  SearchArguments search = {};
  int64_t batch_size = 64;
  std::vector<std::string> data = {};  ///< keys as of data.train
  std::string input = {};              ///< sources without references instead
  std::string output = {};
  ChoiceOptions choice = {};
  SelectionOptions selection = {};
  std::vector<std::string> student = {};  ///< section.key=value
};

std::vector<CorpusSpec> corpora_of(const DistilArguments& arguments, const Config& config) {
  std::vector<CorpusSpec> corpora = config.data.train;
  check_given_once("distil --data", arguments.data);
  if (!arguments.data.empty()) corpora = {read_corpus(config, arguments.data)};
  if (!arguments.input.empty()) {
    CorpusSpec lines;
    lines.text = std::filesystem::absolute(arguments.input).lexically_normal();
    corpora = {lines};
  }
  for (CorpusSpec& corpus : corpora) corpus.alignments.clear();  // of the model's training
  const auto has_target = [](const CorpusSpec& spec) { return spec.has_target(); };
  if (arguments.choice.keep_best_by == KeepBestBy::kChrf &&
      !std::ranges::all_of(corpora, has_target)) {
    fail(ErrorKind::kConfig, "[distil] --keep-best-by chrf needs references, --input has none.");
  }
  return corpora;
}

// The number of pairs. Damage to a file is found before hours of work.
int64_t count_pairs(const std::vector<CorpusSpec>& corpora, FilterCounts& counts) {
  const Progress progress("reading the corpus");
  PairsOfCorpora pairs(corpora);
  int64_t count = 0, more = 0;
  do {
    more = std::ssize(pairs.next(TranslatedPieces::kSources));
    count += more;
  } while (more > 0);
  counts = pairs.counts();
  if (count == 0) fail(ErrorKind::kData, "[distil] the corpus has no usable line.");
  return count;
}

std::string checksum_of(const std::string& path) {
  return data_files(std::vector<std::string>{path}, {}).front().checksum;
}

// The files that decide what a model answers, by their names.
Json identity_of_model(const std::string& path) {
  std::vector<std::string> names = kTokenizerFileNames;
  names.insert(names.begin(), {kModelFile, kConfigFile});
  const std::string folder = resolve_checkpoint(path);
  Json checksums;
  for (const std::string& name : names) {
    const std::string file = concat(folder, '/', name);
    if (std::filesystem::exists(file)) checksums[name] = checksum_of(file);
  }
  return checksums;
}

Json identity_of_corpus(const CorpusSpec& corpus) {
  Json keys;
  for (const auto& [key, value] : reading_of(corpus)) keys[key] = value;
  for (const DataFile& file : data_files(std::vector<CorpusSpec>{corpus}, {})) {
    keys["checksums"].push_back(file.checksum);
  }
  return keys;
}

// Everything that decides the translations. Files count by their bytes.
Json identity_of(const DistilArguments& arguments, const SearchOptions& search,
                 const std::vector<CorpusSpec>& corpora, const Config& config,
                 const Student& student) {
  Config used = config;
  used.generation = search;
  Json keys, of_models = Json::array(), of_corpora = Json::array();
  for (const auto& [key, value] : flat_keys(used)) {
    if (key.starts_with("generation.") && key != "generation.shortlist") keys[key] = value;
  }
  if (!search.shortlist.empty()) keys["generation.shortlist"] = checksum_of(search.shortlist);
  for (const std::string& path : arguments.models.paths) {
    of_models.push_back(identity_of_model(path));
  }
  for (const CorpusSpec& corpus : corpora) of_corpora.push_back(identity_of_corpus(corpus));
  const std::optional<WeightFormat>& format = arguments.models.format.format;
  return {{"models", of_models},
          {"weights", arguments.models.weights},
          {"format", format ? name_of(*format) : "the model's own"},
          {"corpora", of_corpora},
          {"keys", keys},
          {"n_best", search.n_best},
          {"seed", search.seed},
          {"keep_best_by", name_of(arguments.choice.keep_best_by)},
          {"most_times", arguments.choice.most_times},
          {"most_repeats", arguments.choice.most_repeats},
          {"student_max_length", student.config.data.corpus.max_length}};
}

// A config must give the student these tokenizers again.
void write_tokenizers(const RunFolder& folder, const Student& student,
                      const TokenizerPair& tokenizers) {
  for (const auto& [name, bytes] : student.tokenizers) folder.write(name, bytes);
  const Config& config = student.config;
  const TokenizerPair read = with_languages(
      train_tokenizers(config.tokenizer, config.data.train, config.seed), config.languages);
  check_same_vocabulary(tokenizers, "the first model", read, folder.path());
  const PairRows teacher(tokenizers), own(read);
  const auto around = [](const PairRows& rows) {
    return std::tie(rows.source.before, rows.source.after, rows.target.before, rows.target.after,
                    rows.start, rows.eos, rows.source_filler, rows.target_filler);
  };
  if (around(teacher) != around(own)) {
    fail(ErrorKind::kConfig, "[distil] the files of the first model's tokenizer do not say which ",
         "tokens stand around its texts: no config can name it.");
  }
}

void translate_all(const std::vector<CorpusSpec>& corpora, const CorpusTranslator& translator,
                   int64_t total, TranslatedPieces& pieces) {
  Progress progress("distilling", total, "sources");
  PairsOfCorpora pairs(corpora);
  for (int64_t piece = 0, first = 0; first < total; ++piece) {
    const std::vector<TextPair> part = pairs.next(TranslatedPieces::kSources);
    if (piece >= pieces.size()) pieces.add(translator.translate(part, first));
    first += std::ssize(part);
    progress.to(first);
  }
}

void tell(const SelectionCounts& counts) {
  std::cerr << concat(counts.sources, " sources translated, ", counts.kept,
                      counts.kept == 1 ? " pair kept\n" : " pairs kept\n");
  for (const LeftOut reason : kLeftOut) {
    const int64_t count = counts.left_out[static_cast<size_t>(reason)];
    if (count > 0) std::cerr << concat("left out: ", count, ' ', name_of(reason), '\n');
  }
  if (counts.spaced > 0) {
    std::cerr << concat("note: ", counts.spaced, counts.spaced == 1 ? " text has" : " texts have",
                        " spaces where there were tabs or line ends\n");
  }
}

// What was chosen of the translations, by which options, and for which student.
Json figures_of(const SelectionCounts& counts, const DistilArguments& arguments) {
  const auto number = [](const std::optional<double>& given) {
    return given ? Json(*given) : Json();
  };
  Json left_out;
  for (const LeftOut reason : kLeftOut) {
    left_out[name_of(reason)] = counts.left_out[static_cast<size_t>(reason)];
  }
  return {{"sources", counts.sources},
          {"pairs", counts.kept},
          {"left_out", left_out},
          {"keep", number(arguments.selection.keep)},
          {"min_score", number(arguments.selection.min_score)},
          {"student", arguments.student}};
}

void expect_pairs(const Config& config, const std::string& path) {
  if (config.task->can(kTranslates) && examples_of(config).has_targets) return;
  fail(ErrorKind::kData, "[distil] expected a model that translates, ", path, " holds one of task ",
       config.task->name, '.');
}

int run_distil(const DistilArguments& arguments) {
  arguments.search.validate();
  const std::string output = std::filesystem::absolute(arguments.output).lexically_normal();
  const DistilFolder locked(output);
  set_num_threads(arguments.compute.threads);
  Translator models(arguments.models, arguments.compute.device, "distil", kTranslates,
                    override_languages({}, arguments.search.overrides));
  Config config = models.config();
  config.languages = override_languages(config.languages, arguments.search.overrides);
  expect_pairs(config, arguments.models.paths.front());
  const SearchOptions search = arguments.search.over(config.generation);
  models.use_shortlist(search);
  const std::vector<CorpusSpec> corpora = corpora_of(arguments, config);
  const bool weighted = std::ranges::any_of(corpora, &CorpusSpec::has_pair_weights);
  const Student student =
      make_student(config, models.tokenizers(), arguments.student, weighted, output);
  FilterCounts read;
  const int64_t total = count_pairs(corpora, read);
  std::cerr << "corpus: " << read.summary() << '\n';
  const RunFolder& folder = locked.files();
  TranslatedPieces pieces(folder, identity_of(arguments, search, corpora, config, student));
  write_tokenizers(folder, student, models.tokenizers());
  if (pieces.size() > 0) {
    std::cerr << concat("goes on after ", std::min(total, pieces.size() * pieces.kSources),
                        " sources of an earlier start\n");
  }
  if (corpora.size() > 1) {
    std::cerr << "note: each pair of the corpora stands once in " << kDistilledCorpus
              << ", whatever their weights\n";
  }
  const int64_t longest = student.config.data.corpus.max_length;
  translate_all(corpora,
                CorpusTranslator(models, search, arguments.batch_size, arguments.choice, longest),
                total, pieces);
  const SelectionCounts counts = write_selection(pieces, arguments.selection, weighted, output);
  folder.write(kStudentConfig, student.yaml);
  pieces.finish(figures_of(counts, arguments));
  tell(counts);
  std::cerr << "student: tapestry train " << arguments.output << '/' << kStudentConfig << '\n';
  return 0;
}

void add_choice(CLI::App& app, DistilArguments& arguments) {
  app.add_option_function<std::string>(
         "--keep-best-by",
         [&choice = arguments.choice](const std::string& name) {
           choice.keep_best_by = *std::ranges::find_if(
               kKeepBestBy, [&](KeepBestBy by) { return name == name_of(by); });
         },
         "which of the --n-best translations becomes a pair: score (the first one) | chrf (the "
         "most similar to the reference) | none (all of them)")
      ->check(CLI::IsMember(names_of(kKeepBestBy)))
      ->default_str(name_of(KeepBestBy::kScore));
  app.add_option("--most-times", arguments.choice.most_times,
                 "leaves out translations with more than this number of tokens for each of their "
                 "source; 0: none")
      ->check(number<double>(between(0, 1e6)))
      ->capture_default_str();
  app.add_option("--most-repeats", arguments.choice.most_repeats,
                 "leaves out translations that repeat this much more of themselves (a share of "
                 "their runs of four tokens) than their sources do; 1: none")
      ->check(number<double>(between(0, 1)))
      ->capture_default_str();
  auto* least = app.add_option("--min-score", arguments.selection.min_score,
                               "leaves out translations with a lower log-probability for each "
                               "token, the end counted")
                    ->check(number<double>(between(-1e6, 0)));
  app.add_option("--keep", arguments.selection.keep,
                 "keeps this share of the translations, those with the highest of these scores")
      ->check(number<double>(between(1e-9, 1)))
      ->excludes(least);
}

void add_distil(CLI::App& app, DistilArguments& arguments) {
  app.add_option("models", arguments.models.paths,
                 "checkpoints or run folders of the teacher, or of several over one vocabulary, "
                 "whose probabilities are averaged (the config is the first one's)")
      ->required();
  auto* data = app.add_option("--data", arguments.data,
                              "corpus to translate by keys as of data.train, such as source=FILE "
                              "target=FILE (default: the first model's training data)");
  app.add_option("--input", arguments.input, "file of lines to translate, without references")
      ->excludes(data);
  app.add_option("--output", arguments.output,
                 "folder to write: corpus.tsv, left_out.tsv, student.yaml with its tokenizer; the "
                 "same command goes on with one that was stopped")
      ->required();
  app.add_option("--student", arguments.student,
                 "section.key=value of student.yaml, which is otherwise the teacher's config");
  add_choice(app, arguments);
  add_weights(app, arguments.models);
  add_compute(app, arguments.compute);
  add_search(app, arguments.search);
  app.add_option("--batch-size", arguments.batch_size, "lines that a thread translates at a time")
      ->check(number<int64_t>(between(1, 1 << 20)))
      ->capture_default_str();
}

}  // namespace

extern const Command kDistil("distil",
                             "Translate a corpus by trained models, for a student that learns it",
                             add_distil, run_distil);

}  // namespace tapestry
