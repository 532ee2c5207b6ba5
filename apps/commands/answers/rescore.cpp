// tapestry rescore: a list of translations in the order of several scorers, or their weights
// learnt.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <numeric>

#include "apps/commands/answers/filter.h"
#include "apps/commands/command.h"
#include "apps/commands/number_bounds.h"
#include "apps/commands/options.h"
#include "apps/commands/output_file.h"
#include "apps/tasks/answers/scorers.h"
#include "core/base/interruption.h"
#include "core/base/progress.h"
#include "core/base/text.h"
#include "core/cpu/parallel.h"
#include "data/corpora/empty_text.h"
#include "data/files/text.h"
#include "data/n_best/n_best_file.h"
#include "data/n_best/weight_tuning.h"
#include "data/scores/metrics.h"

namespace tapestry {
namespace {

struct RescoreArguments {
  std::string scorers = {}, source = {}, n_best = {};
  std::string output = "-";
  std::string format = "lines";  ///< lines | moses
  bool reuse = false;            ///< values that the list has by the scorers' names
  bool tune = false;
  std::vector<std::string> references = {};
  std::string metric = "bleu";
  std::string tokenize = BleuOptions().tokenize;
  TuningOptions tuning = {};
  WeightChoice weights = {};
  ComputeArguments compute = {};
};

std::vector<std::string> read_lines(const std::string& path) {
  std::vector<std::string> lines;
  LineReader reader(path);
  for (std::string line; reader.next(line);) lines.push_back(line);
  return lines;
}

using NBestLists = std::vector<std::vector<NBestEntry>>;

// Lists with the values of all scorers: of list i (hypotheses, scorers), row by row.
class ScoredLists {
 public:
  ScoredLists(const RescoreArguments& arguments, const ScorerFile& file)
      : file_(file),
        source_(read_lines(arguments.source)),
        path_(arguments.n_best),
        entries_(read_n_best(path_, std::ssize(source_))) {
    check_log_probabilities();
    for (const auto& list : entries_) values_.emplace_back(list.size() * scorers());
  }

  // One model after the other: each value is computed once, and one model is in memory at a time.
  void score(const ScorerUse& use, bool reuse) {
    const auto steps = std::ssize(entries_) * static_cast<int64_t>(scorers());
    Progress progress("scoring lists", steps, "lists");
    for (size_t k = 0; k < scorers(); ++k) {
      if (reuse && takes_values(k)) continue;
      const std::unique_ptr<Scorer> scorer = make_scorer(file_.scorers[k], use);
      for (size_t i = 0; i < entries_.size(); ++i, progress.add()) {
        stop_if_asked();
        if (is_blank(source_[i])) continue;  // which translate answers by a blank line
        const auto found = checked_values(*scorer, file_.scorers[k], candidates(i));
        for (size_t n = 0; n < found.size(); ++n) values_[i][n * scorers() + k] = found[n];
      }
      scorer->finish();
    }
  }

  size_t scorers() const { return file_.scorers.size(); }
  size_t size() const { return entries_.size(); }
  const std::vector<NBestEntry>& entries(size_t list) const { return entries_[list]; }
  const std::vector<double>& values(size_t list) const { return values_[list]; }

 private:
  void check_log_probabilities() const {
    const bool asked = std::ranges::any_of(file_.scorers, [](const ScorerSpec& spec) {
      return std::string_view(spec.kind->name) == "log_probability";
    });
    for (size_t i = 0; i < entries_.size() && asked; ++i) {
      for (const NBestEntry& entry : entries_[i]) {
        if (entry.log_probability) continue;
        fail(ErrorKind::kData, "[rescore] ", path_, ':', entry.line,
             ": expected F0= LOG-PROBABILITY, since log_probability is a scorer, got '",
             entry.features, "'.");
      }
    }
  }

  // Takes the values of a scorer from the list. Returns false if it lacks some.
  bool takes_values(size_t k) {
    const std::string name = file_.scorers[k].name();
    for (size_t i = 0; i < entries_.size(); ++i) {
      for (size_t n = 0; n < entries_[i].size(); ++n) {
        const auto text = named_value(entries_[i][n].features, name);
        if (!text) return false;
        double& value = values_[i][n * scorers() + k];
        if (parse_number(*text, value)) continue;
        fail(ErrorKind::kData, "[rescore] ", path_, ':', entries_[i][n].line,
             ": expected a number behind ", name, "=, got '", *text, "'.");
      }
    }
    return true;
  }

  CandidateList candidates(size_t i) const {
    CandidateList list{.source = source_[i], .line = static_cast<int64_t>(i) + 1};
    for (const NBestEntry& entry : entries_[i]) {
      list.candidates.push_back({entry.text, entry.log_probability.value_or(0), entry.score});
    }
    return list;
  }

  const ScorerFile& file_;
  std::vector<std::string> source_;
  std::string path_;  // of the lists
  NBestLists entries_;
  std::vector<std::vector<double>> values_;
};

// A list in its new order: the first place of equal sums goes to the one that came first.
struct Order {
  std::vector<size_t> places;
  std::vector<double> sums;
};

Order order_of(const std::vector<double>& values, const std::vector<double>& weights) {
  Order order;
  for (size_t i = 0; i < values.size(); i += weights.size()) {
    double sum = 0;
    for (size_t k = 0; k < weights.size(); ++k) sum += weights[k] * values[i + k];
    order.places.push_back(order.places.size());
    order.sums.push_back(sum);
  }
  std::ranges::stable_sort(order.places, std::greater(),
                           [&](size_t place) { return order.sums[place]; });
  return order;
}

void write_lists(const ScoredLists& lists, const ScorerFile& file, bool moses, std::ostream& out) {
  const std::vector<double> weights = file.weights();
  for (size_t i = 0; i < lists.size(); ++i) {
    const Order order = order_of(lists.values(i), weights);
    if (!moses) {
      out << lists.entries(i)[order.places.front()].text << '\n';
      continue;
    }
    for (const size_t place : order.places) {
      const NBestEntry& entry = lists.entries(i)[place];
      std::string values = entry.features, added;
      for (size_t k = 0; k < weights.size(); ++k) {
        const std::string name = file.scorers[k].name();
        values = without_value(values, name);
        added += fmt::format(" {}= {:.6f}", name, lists.values(i)[place * weights.size() + k]);
      }
      out << i << " ||| " << as_n_best_field(entry.text) << " ||| " << values << added;
      out << fmt::format(" ||| {:.6f}", order.sums[place]) << entry.rest << '\n';
    }
  }
}

// The references of each line.
std::vector<std::vector<std::string>> read_references(const RescoreArguments& arguments,
                                                      size_t lines) {
  std::vector<std::vector<std::string>> references(lines);
  for (const std::string& path : arguments.references) {
    const std::vector<std::string> read = read_lines(path);
    if (read.size() != lines) {
      fail(ErrorKind::kData, "[rescore] expected as many lines in ", path, " as in ",
           arguments.source, ", which has ", lines, ", got ", read.size(), '.');
    }
    for (size_t i = 0; i < lines; ++i) references[i].push_back(read[i]);
  }
  return references;
}

std::vector<ScoredHypotheses> measured(const ScoredLists& lists, const Metric& metric,
                                       const std::vector<std::vector<std::string>>& references) {
  std::vector<ScoredHypotheses> sentences(lists.size());
  parallel_for(std::ssize(sentences), [&](int64_t tile) {
    const auto i = static_cast<size_t>(tile);
    std::vector<std::string_view> texts;
    for (const NBestEntry& entry : lists.entries(i)) texts.push_back(entry.text);
    sentences[i].values = lists.values(i);
    sentences[i].statistics.resize(texts.size() * metric.width());
    metric.measure(texts, references[i], sentences[i].statistics.data());
  });
  return sentences;
}

void tell(const ScorerFile& file, const TunedWeights& tuned, const Metric& metric,
          double as_listed) {
  std::cerr << fmt::format("{} as listed {:.2f}, with the weights of {} {:.2f}, tuned {:.2f}\n",
                           metric.name(), as_listed, file.path, tuned.before, tuned.after);
  for (size_t k = 0; k < tuned.useless.size(); ++k) {
    if (!tuned.useless[k]) continue;
    std::cerr << concat("note: ", file.scorers[k].name(),
                        " is the same for all translations of each line: it chooses nothing\n");
  }
  if (tuned.after == tuned.before) {
    std::cerr << "note: no better weights were found: they stay as they are\n";
  }
}

void tune(const RescoreArguments& arguments, const ScorerFile& file, const ScoredLists& lists,
          const std::vector<std::vector<std::string>>& references, std::ostream& out) {
  MetricOptions metrics;
  metrics.bleu.tokenize = arguments.tokenize;
  const MetricKind& kind = *find_metric(arguments.metric);
  const std::unique_ptr<Metric> metric = kind.make(metrics);
  const std::vector<ScoredHypotheses> sentences = measured(lists, *metric, references);
  TuningOptions options = arguments.tuning;
  options.larger_is_better = kind.larger_is_better;
  const TunedWeights tuned = tune_weights(*metric, sentences, file.weights(), options);
  // Weights of 0 choose the first.
  const std::vector<double> none(file.scorers.size(), 0);
  tell(file, tuned, *metric, score_of_choice(*metric, sentences, none));
  out << file.with_weights(tuned.weights, arguments.output == "-" ? "" : arguments.output);
}

void check_options(const RescoreArguments& arguments) {
  const auto expect = [](bool ok, const char* expectation) {
    if (!ok) fail(ErrorKind::kConfig, "[rescore] ", expectation);
  };
  expect(!arguments.tune || !arguments.references.empty(),
         "--tune needs --reference: what the translations should be.");
  expect(arguments.metric == "bleu" || arguments.tokenize == BleuOptions().tokenize,
         "--tokenize is of BLEU, it has no effect with another --metric.");
}

int run_rescore(const RescoreArguments& arguments) {
  check_options(arguments);
  NamedFiles inputs = {{"--source", arguments.source}, {"--n-best", arguments.n_best}};
  for (const std::string& file : arguments.references) inputs.emplace_back("--reference", file);
  check_outputs("rescore", {{"--output", arguments.output}}, inputs);
  set_num_threads(arguments.compute.threads);
  const ScorerFile file = read_scorers(arguments.scorers);
  ScoredLists lists(arguments, file);
  const auto references = read_references(arguments, lists.size());
  OutputFile output(arguments.output);
  lists.score({arguments.compute.device, arguments.weights}, arguments.reuse);
  if (arguments.tune) {
    tune(arguments, file, lists, references, output.stream());
  } else {
    write_lists(lists, file, arguments.format == "moses", output.stream());
  }
  output.finish();
  return 0;
}

void add_tuning(CLI::App& app, RescoreArguments& arguments) {
  auto* tune = app.add_flag(
      "--tune", arguments.tune,
      "learn the weights so that the chosen translations are best, by minimum error rate training "
      "(Och 2003), and write the file of scorers with them");
  app.add_option("--reference", arguments.references,
                 "file with a line for each of the source; given again: several references")
      ->needs(tune);
  app.add_option("--metric", arguments.metric, "that becomes best")
      ->check(CLI::IsMember(names_of(metric_kinds())))
      ->capture_default_str()
      ->needs(tune);
  std::vector<std::string> rules;
  for (const WordRule& rule : word_rules()) {
    if (rule.make != nullptr && !rule.needs_model) rules.emplace_back(rule.name);
  }
  app.add_option("--tokenize", arguments.tokenize, "how BLEU finds words")
      ->check(CLI::IsMember(rules))
      ->capture_default_str()
      ->needs(tune);
  app.add_option("--starts", arguments.tuning.starts,
                 "of the search for weights: the file's, and random ones")
      ->check(number<int64_t>(between(1, TuningOptions::kMostStarts)))
      ->capture_default_str()
      ->needs(tune);
  app.add_option("--seed", arguments.tuning.seed, "of the random ones")
      ->check(number<int64_t>(at_least(0)))
      ->capture_default_str()
      ->needs(tune);
}

void add_rescore(CLI::App& app, RescoreArguments& arguments) {
  app.add_option("--scorers", arguments.scorers,
                 concat("YAML file: scorers: a list of {feature: F, weight: W} and {model: RUN, "
                        "direction: forward | backward, weight: W} (a causal model has no "
                        "direction); F is one of ",
                        feature_help()))
      ->required();
  app.add_option("--source", arguments.source, "file of the lines that were translated")
      ->required();
  app.add_option("--n-best", arguments.n_best,
                 "file of their translations, as translate --n-best N --n-best-format moses writes "
                 "it: NUMBER ||| TEXT ||| F0= LOG-PROBABILITY ||| SCORE")
      ->required();
  add_output_file(app, arguments.output);
  app.add_option("--format", arguments.format,
                 "lines (the best of each line) | moses (all, the best first, with the value of "
                 "each scorer and the weighted sum)")
      ->check(CLI::IsMember({"lines", "moses"}))
      ->capture_default_str();
  app.add_flag("--reuse", arguments.reuse,
               "take the values of scorers that the list has by their names, as --format moses "
               "writes them, and compute only the others");
  add_tuning(app, arguments);
  app.get_option("--format")->excludes(app.get_option("--tune"));
  add_format(app, arguments.weights);
  add_compute(app, arguments.compute);
}

}  // namespace

extern const Command kRescore("rescore",
                              "Choose among n-best translations by several scorers, or tune their "
                              "weights on a validation set",
                              add_rescore, run_rescore);

}  // namespace tapestry
