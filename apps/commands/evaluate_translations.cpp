// tapestry evaluate --hypothesis --reference: scores of files of translations, and how sure they
// are.
#include "apps/commands/evaluate_translations.h"

#include <algorithm>
#include <iostream>

#include "apps/commands/number_bounds.h"
#include "apps/commands/options.h"
#include "apps/commands/score_report.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "data/files/unpacked_file.h"
#include "data/files/utf8.h"
#include "data/scores/metrics.h"
#include "data/scores/significance.h"

namespace tapestry {
namespace {

struct TranslationArguments {
  std::vector<std::string> hypotheses;  ///< a file for each system, the first the baseline
  std::vector<std::string> references;  ///< files; "-": stdin, here or above
  int64_t num_refs = 1;                 ///< references between tabs in the only file
  bool optional_references = false;     ///< an empty line is no reference
  std::vector<std::string> metrics = {"bleu", "chrf"};  ///< of metric_kinds(), or kRouge
  MetricOptions options;
  bool lowercase = false;  ///< of BLEU and chrF
  bool force = false;      ///< no warning about hypotheses that look tokenized
  bool sentence_level = false;
  int width = 2;  ///< digits behind the point
  bool confidence = false;
  int64_t confidence_n = 1000;
  bool paired_bs = false;
  int64_t paired_bs_n = 1000;
  bool paired_ar = false;
  int64_t paired_ar_n = 10000;
  uint64_t seed = kScoreSeed;
};

// Scored for one system against one reference, and not tested.
constexpr const char* kRouge = "rouge";

// The lines of a file as sacreBLEU reads them: only LF ends one, white space at its end goes, and a
// byte order mark is a character like others, since it is a token there. A tab at the end of
// columns begins an empty one.
std::vector<std::string> lines_of(const std::string& path, bool in_columns = false) {
  const std::string text = read_unpacked(path == "-" ? "/dev/stdin" : path);
  if (text.empty()) fail(ErrorKind::kData, "[data] ", path, " is empty, expected lines of text.");
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const auto line = std::string_view(text).substr(begin, end - begin);
    const std::string_view middle = strip(line);
    const auto front = middle.empty() ? 0 : static_cast<size_t>(middle.data() - line.data());
    size_t size = front + middle.size();
    while (in_columns && size < line.size() && line[size] == '\t') ++size;
    lines.emplace_back(line.substr(0, size));
    if (const size_t bad = find_invalid_utf8(line); bad < line.size()) {
      fail(ErrorKind::kData, "[data] ", path, ':', lines.size(), " is not UTF-8 at byte ", bad + 1,
           '.');
    }
    begin = end + 1;
  }
  return lines;
}

std::vector<std::string> parts_of(const std::string& line, size_t parts, const std::string& place) {
  std::vector<std::string> out;
  size_t begin = 0;
  for (size_t tab; out.size() + 1 < parts && (tab = line.find('\t', begin)) != std::string::npos;) {
    out.push_back(line.substr(begin, tab - begin));
    begin = tab + 1;
  }
  out.push_back(line.substr(begin));
  if (out.size() != parts) {
    fail(ErrorKind::kData, "[evaluate] ", place, ": expected ", parts,
         " references between tabs, got ", out.size(), '.');
  }
  return out;
}

// The references of each sentence.
std::vector<std::vector<std::string>> read_references(const TranslationArguments& arguments) {
  const std::vector<std::string>& files = arguments.references;
  if (arguments.num_refs > 1 && files.size() > 1) {
    fail(ErrorKind::kConfig, "[evaluate] expected one reference file with --num-refs, got ",
         files.size(), '.');
  }
  std::vector<std::vector<std::string>> references;
  for (const std::string& file : files) {
    const std::vector<std::string> lines = lines_of(file, arguments.num_refs > 1);
    if (&file == &files.front()) references.resize(lines.size());
    if (lines.size() != references.size()) {
      fail(ErrorKind::kData, "[evaluate] expected as many lines in all references, got ",
           references.size(), " in ", files.front(), " and ", lines.size(), " in ", file, '.');
    }
    for (size_t i = 0; i < lines.size(); ++i) {
      if (arguments.num_refs == 1) {
        references[i].push_back(lines[i]);
      } else {
        references[i] =
            parts_of(lines[i], static_cast<size_t>(arguments.num_refs), concat(file, ':', i + 1));
      }
    }
  }
  if (arguments.optional_references) {
    for (auto& one : references) {
      std::erase_if(one, [](const std::string& reference) { return reference.empty(); });
    }
  }
  return references;
}

void expect(bool ok, const char* expectation) {
  if (!ok) fail(ErrorKind::kConfig, "[evaluate] ", expectation);
}

void check_modes(const TranslationArguments& arguments) {
  const bool one = arguments.hypotheses.size() == 1;
  const bool paired = arguments.paired_bs || arguments.paired_ar;
  const bool rouge = std::count(arguments.metrics.begin(), arguments.metrics.end(), kRouge) > 0;
  expect(one || !arguments.confidence,
         "--confidence is of one system; --paired-bs has the intervals of several.");
  expect(!arguments.sentence_level || (one && !paired && !arguments.confidence),
         "--sentence-level is of one system, without tests.");
  expect(!rouge ||
             (one && arguments.references.size() == 1 && arguments.num_refs == 1 &&
              !arguments.optional_references && !arguments.confidence && !arguments.sentence_level),
         "ROUGE is scored for one system against one reference file, without tests.");
}

// Files of systems; a further one that is the baseline's is left out of paired tests, so that
// patterns of the shell may name it.
std::vector<std::string> systems_of(const TranslationArguments& arguments) {
  std::vector<std::string> files;
  const bool paired = arguments.paired_bs || arguments.paired_ar;
  for (const std::string& file : arguments.hypotheses) {
    const bool known = std::find(files.begin(), files.end(), file) != files.end();
    if (known && paired && file == files.front()) continue;
    if (known) fail(ErrorKind::kConfig, "[evaluate] expected every system once, got '", file, "'.");
    files.push_back(file);
  }
  expect(files.size() > 1 || !paired,
         "paired tests need several systems: give --hypothesis again.");
  return files;
}

void warn_of_tokens(const std::vector<std::string>& systems, const Translations& translations) {
  constexpr int64_t kSuspicious = 100;  // sacreBLEU's number
  for (size_t s = 0; s < systems.size(); ++s) {
    const auto& lines = translations.systems[s];
    const auto points = std::count_if(lines.begin(), lines.end(),
                                      [](const std::string& line) { return line.ends_with(" ."); });
    if (points < kSuspicious) continue;
    std::cerr << "warning: " << points << " lines of " << systems[s]
              << " end in ' .': they look tokenized, which changes BLEU; --force if they are not\n";
  }
}

struct NamedMetric {
  std::string key;
  std::unique_ptr<Metric> metric;
};

ScoreLine score_line(const NamedMetric& named, const double* sums, const std::string& references,
                     const std::string& draws = "") {
  const Metric& metric = *named.metric;
  return {metric.name(),
          full_signature(metric, references, draws),
          {metric.score(sums), {}, {}},
          metric.detail(sums),
          metric.figures(sums)};
}

std::string draws_of(const char* kind, int64_t count, uint64_t seed) {
  return concat(kind, ':', count, "|seed:", seed, '|');
}

void print_system(const TranslationArguments& arguments, const std::vector<NamedMetric>& metrics,
                  const Translations& translations, bool json) {
  nlohmann::ordered_json out;
  for (const std::string& key : arguments.metrics) {
    if (key == kRouge) {
      std::vector<std::string> references;
      for (const auto& one : translations.references) references.push_back(one.front());
      const RougeScore rouge = corpus_rouge(translations.systems[0], references);
      if (json) out[key] = json_of(rouge);
      if (!json) std::cout << rouge.str() << '\n';
      continue;
    }
    const NamedMetric& named = *std::ranges::find(metrics, key, &NamedMetric::key);
    const SentenceStatistics statistics(*named.metric, translations);
    ScoreLine line = score_line(
        named, statistics.sums(0).data(), translations.reference_count(),
        arguments.confidence ? draws_of("bs", arguments.confidence_n, arguments.seed) : "");
    if (arguments.confidence) {
      line.score.interval =
          bootstrap_interval(*named.metric, statistics, arguments.confidence_n, arguments.seed);
    }
    if (json) out[key] = line.json();
    if (!json) std::cout << line.str(arguments.width) << '\n';
  }
  out["sentences"] = translations.sentences();
  if (json) std::cout << out.dump() << '\n';
}

void print_sentences(const TranslationArguments& arguments, const std::vector<NamedMetric>& metrics,
                     const Translations& translations, bool json) {
  std::vector<SentenceStatistics> statistics;
  for (const NamedMetric& named : metrics) statistics.emplace_back(*named.metric, translations);
  for (size_t i = 0; i < translations.sentences(); ++i) {
    const std::string references = std::to_string(translations.references[i].size());
    nlohmann::ordered_json out{{"line", i + 1}};
    std::string text;
    for (size_t m = 0; m < metrics.size(); ++m) {
      const ScoreLine line = score_line(metrics[m], statistics[m].of(0, i), references);
      if (json) {
        out[metrics[m].key] = line.json();
      } else {
        text += (m > 0 ? "\t" : "") + line.str(arguments.width);
      }
    }
    std::cout << (json ? out.dump() : text) << '\n';
  }
}

void print_systems(const TranslationArguments& arguments, const std::vector<NamedMetric>& metrics,
                   const std::vector<std::string>& names, const Translations& translations,
                   bool json) {
  std::vector<ScoreColumn> columns;
  for (const auto& [key, metric] : metrics) {
    const SentenceStatistics statistics(*metric, translations);
    ScoreColumn column{key, metric->name(), "", {}};
    std::string draws;
    if (arguments.paired_bs) {
      draws = draws_of("bs", arguments.paired_bs_n, arguments.seed);
      column.scores = paired_bootstrap(*metric, statistics, arguments.paired_bs_n, arguments.seed);
    } else if (arguments.paired_ar) {
      draws = draws_of("ar", arguments.paired_ar_n, arguments.seed);
      column.scores =
          paired_randomization(*metric, statistics, arguments.paired_ar_n, arguments.seed);
    } else {
      for (size_t s = 0; s < names.size(); ++s) {
        column.scores.push_back({metric->score(statistics.sums(s).data()), {}, {}});
      }
    }
    column.signature = full_signature(*metric, translations.reference_count(), draws);
    columns.push_back(std::move(column));
  }
  if (json) {
    nlohmann::ordered_json out = json_of(names, columns);
    out["sentences"] = translations.sentences();
    std::cout << out.dump() << '\n';
  } else {
    std::cout << score_table(names, columns, arguments.width);
  }
}

int evaluate_translations(TranslationArguments arguments, bool json) {
  check_modes(arguments);
  arguments.options.bleu.lowercase = arguments.lowercase;
  arguments.options.bleu.effective_order = arguments.sentence_level;  // short sentences have scores
  arguments.options.chrf.lowercase |= arguments.lowercase;
  std::vector<NamedMetric> metrics;
  for (const std::string& key : arguments.metrics) {
    if (key == kRouge || std::ranges::count(metrics, key, &NamedMetric::key) > 0) continue;
    metrics.push_back({key, find_metric(key)->make(arguments.options)});
  }
  Translations translations;
  translations.references = read_references(arguments);
  const std::vector<std::string> systems = systems_of(arguments);
  for (const std::string& file : systems) translations.systems.push_back(lines_of(file));
  translations.check("evaluate");
  const bool bleu = std::ranges::count(metrics, "bleu", &NamedMetric::key) > 0;
  if (bleu && !arguments.force && !arguments.sentence_level) warn_of_tokens(systems, translations);
  if (arguments.sentence_level) {
    print_sentences(arguments, metrics, translations, json);
  } else if (systems.size() == 1) {
    print_system(arguments, metrics, translations, json);
  } else {
    print_systems(arguments, metrics, systems, translations, json);
  }
  return 0;
}

// Options have sacreBLEU's names.
void add_bleu(CLI::App& app, TranslationArguments& arguments) {
  BleuOptions& bleu = arguments.options.bleu;
  std::string tokenizers;
  for (const WordRule& rule : word_rules()) {
    if (rule.make == nullptr) continue;
    tokenizers += concat(tokenizers.empty() ? "" : "; ", rule.name, ": ", rule.meaning);
  }
  app.add_option("--tokenize", bleu.tokenize, "how BLEU finds words: " + tokenizers)
      ->check(CLI::IsMember(names_of(word_rules())))
      ->capture_default_str();
  app.add_option("--spm-model", bleu.spm_model, "SentencePiece model, for --tokenize spm");
  app.add_option("--smooth-method", bleu.smooth, "of BLEU: " + join(names_of(kSmoothings), " | "))
      ->check(CLI::IsMember(names_of(kSmoothings)))
      ->capture_default_str();
  app.add_option("--smooth-value", bleu.smooth_value, "of floor (default 0.1) and add-k (1)")
      ->check(number<double>(at_least(0)));
  app.add_flag("--force", arguments.force,
               "no warning about hypotheses that look tokenized already");
}

void add_chrf(CLI::App& app, ChrfOptions& chrf) {
  const CLI::Validator orders = number<int>(between(0, ChrfOptions::kMostOrder));
  app.add_option("--chrf-char-order", chrf.char_order, "longest n-gram of characters")
      ->check(number<int>(between(1, ChrfOptions::kMostOrder)))
      ->capture_default_str();
  app.add_option("--chrf-word-order", chrf.word_order,
                 "longest n-gram of words; 2: chrF++, as --metrics chrf++")
      ->check(orders)
      ->capture_default_str();
  app.add_option("--chrf-beta", chrf.beta, "weight of recall against precision")
      ->check(number<int>(between(1, ChrfOptions::kMostBeta)))
      ->capture_default_str();
  app.add_flag("--chrf-whitespace", chrf.whitespace, "n-grams of characters hold white space");
  app.add_flag("--chrf-lowercase", chrf.lowercase, "compare lower-cased text");
  app.add_flag("--chrf-eps-smoothing", chrf.eps_smoothing,
               "average the F-scores of all orders, as NLTK and Moses");
}

void add_ter(CLI::App& app, TerOptions& ter) {
  app.add_flag("--ter-normalized", ter.normalized,
               "undo entities and split punctuation off before TER");
  app.add_flag("--ter-no-punct", ter.no_punct, "remove punctuation before TER");
  app.add_flag("--ter-asian-support", ter.asian_support,
               "with these two: also for Chinese and Japanese characters");
  app.add_flag("--ter-case-sensitive", ter.case_sensitive, "TER compares text as it is");
}

void add_tests(CLI::App& app, TranslationArguments& arguments) {
  auto* interval = app.add_flag("--confidence", arguments.confidence,
                                "of one system: 95 % intervals by bootstrap resampling");
  auto* bootstrap = app.add_flag(
      "--paired-bs", arguments.paired_bs,
      "of several systems: intervals and p-values against the first by paired bootstrap");
  auto* randomization =
      app.add_flag("--paired-ar", arguments.paired_ar,
                   "of several systems: p-values against the first by approximate randomization");
  bootstrap->excludes(randomization);
  interval->excludes(bootstrap)->excludes(randomization);
  const auto add_draws = [&](const char* name, CLI::Option* test, int64_t& draws,
                             const char* meaning) {
    app.add_option(name, draws, meaning)
        ->check(number<int64_t>(between(1, 100'000'000)))
        ->capture_default_str()
        ->needs(test);
  };
  add_draws("--confidence-n", interval, arguments.confidence_n, "resamples of --confidence");
  add_draws("--paired-bs-n", bootstrap, arguments.paired_bs_n, "resamples of --paired-bs");
  add_draws("--paired-ar-n", randomization, arguments.paired_ar_n, "trials of --paired-ar");
  app.add_option("--seed", arguments.seed, "of these draws, which are sacreBLEU's")
      ->check(number<int64_t>(at_least(0)))
      ->capture_default_str();
}

}  // namespace

TranslationScoring add_translations(CLI::App& app) {
  auto arguments = std::make_shared<TranslationArguments>();
  std::vector<std::string> metrics = names_of(metric_kinds());
  metrics.emplace_back(kRouge);
  const size_t before = app.get_options().size();
  auto* hypothesis = app.add_option(
      "--hypothesis", arguments->hypotheses,
      "file; -: standard input; given again: several systems, the first the baseline");
  auto* reference =
      app.add_option("--reference", arguments->references, "file; given again: several");
  app.add_option("--num-refs", arguments->num_refs,
                 "references of a line, between tabs in one file")
      ->check(number<int64_t>(between(1, 1000)))
      ->capture_default_str();
  app.add_flag("--optional-references", arguments->optional_references,
               "an empty line is no reference: sentences may have fewer than others");
  app.add_option("--metrics", arguments->metrics,
                 "of a hypothesis: " + join(metrics, ",") + " (default: bleu,chrf)")
      ->delimiter(',')
      ->check(CLI::IsMember(metrics));
  app.add_flag("--lowercase", arguments->lowercase, "BLEU and chrF compare lower-cased text");
  add_bleu(app, *arguments);
  add_chrf(app, arguments->options.chrf);
  add_ter(app, arguments->options.ter);
  app.add_flag("--sentence-level", arguments->sentence_level, "a line for each sentence");
  app.add_option("--width", arguments->width, "digits of scores behind the point")
      ->check(number<int>(between(0, 17)))
      ->capture_default_str();
  add_tests(app, *arguments);
  hypothesis->needs(reference);
  // A model's figures know none of these options.
  const std::vector<CLI::Option*> options = app.get_options();
  for (size_t i = before; i < options.size(); ++i) {
    if (options[i] != hypothesis) options[i]->needs(hypothesis);
  }
  return {hypothesis, [arguments](bool json) { return evaluate_translations(*arguments, json); }};
}

}  // namespace tapestry
