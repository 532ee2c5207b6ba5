// sacreBLEU's figures for random corpora: tests/fixtures/scores.py.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/build_info.h"
#include "core/cpu/parallel.h"
#include "data/scores/metrics.h"
#include "data/scores/significance.h"
#include "tests/data/files/files.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

using nlohmann::json;

const json& golden() {
  static const json loaded = json::parse(std::ifstream(project_file("tests/fixtures/scores.json")));
  return loaded;
}

std::unique_ptr<Metric> metric_of(const json& row) {
  MetricOptions options;
  for (const auto& [key, value] : row.at("options").items()) {
    BleuOptions& bleu = options.bleu;
    ChrfOptions& chrf = options.chrf;
    TerOptions& ter = options.ter;
    if (key == "tokenize") bleu.tokenize = value;
    if (key == "smooth_method") bleu.smooth = value;
    if (key == "smooth_value") bleu.smooth_value = value.get<double>();
    if (key == "effective_order") bleu.effective_order = value;
    if (key == "lowercase") bleu.lowercase = chrf.lowercase = value;
    if (key == "char_order") chrf.char_order = value;
    if (key == "word_order") chrf.word_order = value;
    if (key == "beta") chrf.beta = value;
    if (key == "whitespace") chrf.whitespace = value;
    if (key == "eps_smoothing") chrf.eps_smoothing = value;
    if (key == "normalized") ter.normalized = value;
    if (key == "no_punct") ter.no_punct = value;
    if (key == "asian_support") ter.asian_support = value;
    if (key == "case_sensitive") ter.case_sensitive = value;
  }
  return find_metric(row.at("metric").get<std::string>())->make(options);
}

Translations translations_of(const json& corpus) {
  Translations out;
  corpus.at("systems").get_to(out.systems);
  corpus.at("references").get_to(out.references);
  return out;
}

// Calls check(metric, statistics, translations, row) for every metric of every corpus.
template <class Check>
void for_all_cases(Check&& check) {
  int cases = 0;
  for (const json& corpus : golden().at("corpora")) {
    const Translations translations = translations_of(corpus);
    for (const json& row : corpus.at("cases")) {
      SCOPED_TRACE(row.at("line").get<std::string>());
      const auto metric = metric_of(row);
      check(*metric, SentenceStatistics(*metric, translations), translations, row);
      ++cases;
    }
  }
  EXPECT_EQ(cases, 90);
}

constexpr double kTolerance = 1e-11;

void expect_scores(const std::vector<SystemScore>& ours, const json& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    const json& row = theirs[i];  // score, mean, half of the interval, p
    EXPECT_NEAR(ours[i].score, row[0].get<double>(), kTolerance);
    ASSERT_EQ(ours[i].interval.has_value(), !row[1].is_null());
    if (ours[i].interval) {
      EXPECT_NEAR(ours[i].interval->mean, row[1].get<double>(), kTolerance);
      EXPECT_NEAR(ours[i].interval->half_width, row[2].get<double>(), kTolerance);
    }
    ASSERT_EQ(ours[i].p_value.has_value(), !row[3].is_null());
    if (ours[i].p_value) {
      EXPECT_EQ(*ours[i].p_value, row[3].get<double>());
    }
  }
}

TEST(Sacrebleu, ScoresAndLinesOfCorpora) {
  for_all_cases([](const Metric& metric, const SentenceStatistics& statistics,
                   const Translations& translations, const json& row) {
    const std::vector<double> sums = statistics.sums(0);
    EXPECT_NEAR(metric.score(sums.data()), row.at("score").get<double>(), kTolerance);
    std::string line = row.at("line");
    line.replace(line.find("VERSION"), 7, concat("tapestry-", build_info().version));
    const std::string signature = full_signature(metric, translations.reference_count());
    EXPECT_THAT(line, testing::StartsWith(concat(metric.name(), '|', signature, " = ")));
    EXPECT_THAT(line, testing::EndsWith(metric.detail(sums.data())));
  });
}

TEST(Sacrebleu, ScoresOfSentences) {
  for_all_cases([](const Metric& metric, const SentenceStatistics& statistics, const Translations&,
                   const json& row) {
    const json& expected = row.at("sentences");
    ASSERT_EQ(expected.size(), statistics.sentences());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(metric.score(statistics.of(1, i)), expected[i].get<double>(), kTolerance) << i;
    }
  });
}

TEST(Sacrebleu, ConfidenceIntervals) {
  int compared = 0;
  for_all_cases([&](const Metric& metric, const SentenceStatistics& statistics, const Translations&,
                    const json& row) {
    const Interval interval =
        bootstrap_interval(metric, statistics, golden()["samples"], kScoreSeed);
    if (!row.contains("confidence")) return;  // sacreBLEU cannot compute it
    EXPECT_NEAR(interval.mean, row["confidence"][0].get<double>(), kTolerance);
    EXPECT_NEAR(interval.half_width, row["confidence"][1].get<double>(), kTolerance);
    ++compared;
  });
  EXPECT_GT(compared, 60);
}

TEST(Sacrebleu, PairedBootstrapOnAnyNumberOfThreads) {
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    for_all_cases([](const Metric& metric, const SentenceStatistics& statistics,
                     const Translations&, const json& row) {
      expect_scores(paired_bootstrap(metric, statistics, golden()["samples"], kScoreSeed),
                    row.at("bs"));
    });
  }
  set_num_threads(0);
}

TEST(Sacrebleu, PairedRandomization) {
  for_all_cases([](const Metric& metric, const SentenceStatistics& statistics,
                   const Translations& translations, const json& row) {
    // The mean of three lengths is rounded, so sums that ought to be equal differ there by the
    // machine's matrix product.
    const bool rounded = metric.name() == "TER" &&
                         std::any_of(translations.references.begin(), translations.references.end(),
                                     [](const auto& one) { return one.size() == 3; });
    const auto systems = paired_randomization(metric, statistics, golden()["samples"], kScoreSeed);
    if (!rounded) expect_scores(systems, row.at("ar"));
  });
}

TEST(Sacrebleu, WordsOfEveryTokenizer) {
  const std::vector<std::string> lines = golden().at("lines");
  ASSERT_EQ(lines.size(), 60u);
  for (const auto& [name, expected] : golden().at("words").items()) {
    SCOPED_TRACE(name);
    ASSERT_EQ(expected.size(), lines.size());
    WordRule::Split split;
    if (name.starts_with("ter")) {
      const TerOptions options{.normalized = name[3] == '1',
                               .no_punct = name[4] == '1',
                               .asian_support = name[5] == '1'};
      split = [options](std::string_view line) { return tercom_words(line, options); };
    } else {
      split = word_rule(name, "").make("");
    }
    for (size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(words_of_line(split, lines[i]), expected[i].get<std::string>());
    }
  }
}

}  // namespace
}  // namespace tapestry
