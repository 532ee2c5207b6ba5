// tapestry shortlist: what each token is translated into, learned from a corpus.
#include <iostream>
#include <optional>

#include "apps/checkpoint/model_bundle.h"
#include "apps/commands/command.h"
#include "apps/commands/number_bounds.h"
#include "apps/commands/options.h"
#include "apps/commands/output_file.h"
#include "apps/tasks/answers/shortlists.h"
#include "apps/tasks/evaluation.h"
#include "core/cpu/parallel.h"
#include "data/lexicon/lexicon_file.h"

namespace tapestry {
namespace {

struct ShortlistArguments {
  std::string model = {};
  std::vector<std::string> data = {};  ///< keys as of data.train
  std::string output = {};
  std::string format = "marian";  ///< one of kFormats
  LexiconOptions lexicon = {};
  std::optional<int64_t> size = {};  ///< of a vmap; nullopt: the usual one of a search
  int threads = 0;
};

constexpr const char* kFormats[] = {"marian", "vmap"};

ParallelCorpus read_pairs(const ShortlistArguments& arguments, const ModelFiles& model) {
  const Config& config = model.config;
  std::vector<CorpusSpec> corpora = config.data.train;
  if (!arguments.data.empty()) corpora = {read_corpus(config, arguments.data)};
  for (CorpusSpec& corpus : corpora) {
    corpus.alignments.clear();  // of the model's training
    if (corpus.has_target()) continue;
    fail(ErrorKind::kConfig, "[shortlist] expected pairs of sources and targets, got ",
         corpus.str(), '.');
  }
  ParallelCorpus pairs = load_parallel(corpora, model.tokenizers, config.data.corpus);
  std::cerr << "corpus: " << pairs.counts.summary() << '\n';
  return pairs;
}

int run_shortlist(const ShortlistArguments& arguments) {
  check_given_once("shortlist --data", arguments.data);
  const bool vmap = arguments.format == "vmap";
  if (arguments.size && !vmap) {
    fail(ErrorKind::kConfig, "[shortlist] --shortlist-size is of a vmap, got --format ",
         arguments.format, ", whose lists translate cuts.");
  }
  set_num_threads(arguments.threads);
  const ModelFiles model = read_model_files(arguments.model);
  if (!traits_of(model.config.model_type).reads_two_texts || !model.config.task->can(kTranslates)) {
    fail(ErrorKind::kConfig, "[shortlist] expected a model that translates a source, ",
         arguments.model, " holds one of task ", model.config.task->name, '.');
  }
  OutputFile output(arguments.output);
  const TokenizerPair& tokenizers = model.tokenizers;
  const ParallelCorpus pairs = read_pairs(arguments, model);
  const Lexicon lexicon = learn_lexicon(pairs.source, pairs.target, tokenizers.source->vocab_size(),
                                        tokenizers.target->vocab_size(), arguments.lexicon);
  const int64_t size = arguments.size.value_or(SearchOptions().shortlist_size);
  const int64_t lost = vmap ? write_vmap(make_shortlist(lexicon, size, tokenizers), tokenizers,
                                         tokenizers.shared(), output.stream())
                            : write_lexicon(lexicon, tokenizers, output.stream());
  output.finish();
  int64_t known = 0, translations = 0;
  for (const auto& list : lexicon.translations) {
    known += list.empty() ? 0 : 1, translations += std::ssize(list);
  }
  std::cerr << concat(translations, " translations of ", known, " source tokens\n");
  if (lost > 0) {
    std::cerr << concat("warning: ", lost, " tokens are left out, which the format cannot hold: ",
                        "they have white space, or are called NULL\n");
  }
  return 0;
}

void add_shortlist(CLI::App& app, ShortlistArguments& arguments) {
  app.add_option("--model", arguments.model, "checkpoint or run folder, whose tokenizer counts")
      ->required();
  app.add_option("--data", arguments.data,
                 "corpus to learn from by keys as of data.train, such as source=FILE target=FILE "
                 "(default: the model's training data)");
  app.add_option("--output", arguments.output, "file to write; -: standard output")->required();
  app.add_option("--format", arguments.format,
                 "marian (lex.s2t: lines of target, source and probability, which --shortlist "
                 "reads) | vmap (CTranslate2's vmap.txt)")
      ->check(CLI::IsMember(names_of(kFormats)))
      ->capture_default_str();
  app.add_option("--iterations", arguments.lexicon.iterations, "of IBM model 1")
      ->check(number<int64_t>(between(1, LexiconOptions::kMostIterations)))
      ->capture_default_str();
  app.add_option("--most", arguments.lexicon.most, "translations that are kept of each token")
      ->check(number<int64_t>(between(1, 1 << 20)))
      ->capture_default_str();
  app.add_option("--shortlist-size", arguments.size,
                 concat("of a vmap: tokens of each source token, and of the most frequent ones "
                        "(default: ",
                        SearchOptions().shortlist_size, ')'))
      ->check(number<int64_t>(between(1, 1 << 20)));
  app.add_option("--threads", arguments.threads, "CPU threads; 0: all cores")
      ->check(number<int>(between(0, 1024)))
      ->capture_default_str();
}

}  // namespace

extern const Command kShortlist("shortlist",
                                "Learn from a corpus what each token is translated into, so that "
                                "translate --shortlist considers fewer tokens",
                                add_shortlist, run_shortlist);

}  // namespace tapestry
