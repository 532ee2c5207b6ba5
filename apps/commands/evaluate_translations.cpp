// tapestry evaluate --hypothesis --reference: scores of files of translations, and how sure they
// are.
#include "apps/commands/evaluate_translations.h"

#include <algorithm>
#include <iostream>

#include "apps/commands/score_report.h"
#include "core/error.h"
#include "data/unpacked_file.h"
#include "data/utf8.h"

namespace tapestry {
namespace {

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

constexpr const char* kPairedNeedsSystems =
    "paired tests need several systems: give --hypothesis again.";

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
  expect(files.size() > 1 || !paired, kPairedNeedsSystems);
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
    const NamedMetric& named = *std::find_if(metrics.begin(), metrics.end(),
                                             [&](const auto& one) { return one.key == key; });
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

}  // namespace

int evaluate_translations(TranslationArguments arguments, bool json) {
  check_modes(arguments);
  arguments.options.bleu.lowercase = arguments.lowercase;
  arguments.options.bleu.effective_order = arguments.sentence_level;  // short sentences have scores
  arguments.options.chrf.lowercase |= arguments.lowercase;
  std::vector<NamedMetric> metrics;
  for (const std::string& key : arguments.metrics) {
    const bool known = std::any_of(metrics.begin(), metrics.end(),
                                   [&](const NamedMetric& one) { return one.key == key; });
    if (key == kRouge || known) continue;
    metrics.push_back({key, find_metric(key)->make(arguments.options)});
  }
  Translations translations;
  translations.references = read_references(arguments);
  const std::vector<std::string> systems = systems_of(arguments);
  for (const std::string& file : systems) translations.systems.push_back(lines_of(file));
  translations.check("evaluate");
  const bool bleu = std::any_of(metrics.begin(), metrics.end(),
                                [](const NamedMetric& one) { return one.key == "bleu"; });
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

}  // namespace tapestry
