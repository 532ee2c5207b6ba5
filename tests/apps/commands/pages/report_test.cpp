// The report of runs, as a user of a browser meets it, and what it does with damaged folders.
#include "apps/commands/pages/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "apps/commands/pages/web_page.h"
#include "core/base/error.h"
#include "tests/apps/browser.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Run folders as a training writes them.
class ReportTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    for (const char* run : {"a", "b"}) std::filesystem::create_directories(path(run));
    for (const char* run : {"a", "b"}) {
      std::string metrics;
      const double slower = run[0] == 'a' ? 1 : 1.3;
      for (int step = 10; step <= 100; step += 10) {
        metrics += concat(R"({"step":)", step, R"(,"kind":"train","loss":)", slower * 50 / step,
                          R"(,"learning_rate":0.001,"tokens_per_s":1000,"tokens":)", step * 400,
                          R"(,"peak_bytes":1000000,"seconds":)", step * 36, "}\n");
        if (step % 50 != 0) continue;
        metrics += concat(R"({"step":)", step, R"(,"kind":"valid","loss":)", slower * 60 / step,
                          R"(,"bleu":)", step == 50 ? 30 : 20, R"(,"tokens":)", step * 400,
                          R"(,"seconds":)", step * 36, "}\n");
      }
      metrics += R"({"step":70,"kind":"skipped","loss":null,"grad_norm":null})"
                 "\n";
      write(concat(run, "/metrics.jsonl"), metrics);
      write(concat(run, "/config.yaml"),
            concat("output_dir: ", run, "\ntraining:\n  metric_for_best_model: bleu\n",
                   "  learning_rate: ", slower, "\n  note: \"</script><b>\"\n"));
    }
    write("a/starts.jsonl", R"({"step":0,"time":"2026-01-01T00:00:00Z","processor":"a"})"
                            "\n"
                            R"({"step":30,"time":"2026-01-02T00:00:00Z","processor":"b"})"
                            "\n");
    std::string samples;
    for (const int step : {50, 100}) {
      samples +=
          concat(R"({"step":)", step,
                 R"(,"kind":"sample","example":0,"source":"ein <Haus>","reference":"a house",)",
                 R"("output":"house )", step, "\"}\n");
      samples += concat(R"({"step":)", step, R"(,"kind":"lengths","metric":"bleu","groups":)",
                        R"([{"from":1,"to":5,"sentences":20,"score":31.5}]})", "\n");
      samples += concat(R"({"step":)", step, R"(,"kind":"confusion","classes":["x","y"],)",
                        R"("counts":[[3,1],[0,)", step, "]]}\n");
    }
    write("a/samples.jsonl", samples);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  // What the page gets to draw.
  static nlohmann::json data_of(const std::string& html) {
    const std::string begin = R"(id="data">)";
    const size_t at = html.find(begin) + begin.size();
    return nlohmann::json::parse(html.substr(at, html.find("</script>", at) - at));
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / concat("tapestry-report-", getpid());
};

TEST_F(ReportTest, HoldsWhatTheRunWrote) {
  const auto data = data_of(report_html({read_run(path("a"))}));
  const auto& run = data.at("runs").at(0);
  EXPECT_EQ(run.at("name"), "a");
  EXPECT_EQ(run.at("best"), nlohmann::json::parse(R"({"step":50,"value":30})"));
  EXPECT_EQ(run.at("train").at("columns").at(0).size(), 10u);
  EXPECT_EQ(run.at("skipped"), nlohmann::json::parse("[70]"));
  EXPECT_EQ(run.at("starts").size(), 2u);
  EXPECT_EQ(run.at("samples"), nlohmann::json::parse(R"([{
      "given": [["source", "ein <Haus>"], ["reference", "a house"]],
      "outputs": [{"step": 50, "output": "house 50"}, {"step": 100, "output": "house 100"}]}])"));
  // Of the best validation, which is not the last.
  EXPECT_EQ(run.at("confusion").at("counts"), nlohmann::json::parse("[[3,1],[0,50]]"));
  EXPECT_EQ(run.at("lengths").at("step"), 50);
  EXPECT_THAT(run.at("warnings"), IsEmpty());
}

TEST_F(ReportTest, TellsRunsApartByTheKeysThatDiffer) {
  const auto data = data_of(report_html({read_run(path("a")), read_run(path("b"))}));
  EXPECT_EQ(data.at("differing"), nlohmann::json::parse(R"(["training.learning_rate"])"));
  std::filesystem::create_directories(path("other"));
  std::filesystem::copy(path("a"), path("other/a"), std::filesystem::copy_options::recursive);
  std::vector<RunRecord> runs = {read_run(path("a")), read_run(path("other/a"))};
  name_runs(runs);
  EXPECT_NE(runs[0].name, runs[1].name);
  EXPECT_EQ(runs[1].name, "other/a");
}

TEST_F(ReportTest, ALowerLossIsTheBest) {
  RunRecord run = read_run(path("a"));
  run.metric = "loss";
  EXPECT_EQ(run.best()->step, 100);
}

TEST_F(ReportTest, NoTextEndsAScriptAndNothingIsLoaded) {
  const std::string html = report_html({read_run(path("a"))});
  EXPECT_THAT(html, HasSubstr("\\u003c/script>\\u003cb>"));
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  EXPECT_THAT(html, Not(HasSubstr("sourceMappingURL")));
  EXPECT_THAT(html, HasSubstr("Permission is hereby granted"));
  EXPECT_EQ(escaped("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
}

TEST_F(ReportTest, DamagedLinesAreLeftOutWithTheirPlace) {
  std::ofstream(path("a/metrics.jsonl"), std::ios::app)
      << "nonsense\n[1]\n{\"kind\":\"train\"}\n{\"step\":110,\"kind\":\"train\",\"loss\":null}\n"
      << R"({"step":120,"kind":"tr)";
  std::ofstream(path("a/samples.jsonl"), std::ios::app)
      << "{\"step\":1,\"kind\":\"sample\"}\n{\"step\":2,\"ki";
  std::filesystem::remove(path("a/config.yaml"));
  const RunRecord run = read_run(path("a"));
  EXPECT_EQ(run.train.rows(), 11u);
  const std::string metrics = path("a/metrics.jsonl"), samples = path("a/samples.jsonl");
  EXPECT_THAT(run.warnings,
              ElementsAre(metrics + ":14: this line is not JSON; it is left out",
                          metrics + ":15: this line is no object; it is left out",
                          metrics + ":16: this line has no step; it is left out",
                          metrics + ":18: the last line is cut", HasSubstr("no config is shown: "),
                          HasSubstr(samples + ":7: this line is not as a run writes it"),
                          samples + ":8: this line is cut; it is left out"));
  EXPECT_THAT(report_html({run}), HasSubstr("metrics.jsonl:14"));
}

// What the page would stumble over is found here, whoever wrote it.
TEST_F(ReportTest, LinesOfOtherTypesAreLeftOut) {
  const std::string bad[] = {
      R"({"step":1,"kind":"sample","example":7,"output":5})",
      R"({"step":1,"kind":"sample","example":7,"output":"","guesses":{"a":1}})",
      R"({"step":1,"kind":"sample","example":7,"output":"","png":[]})",
      R"({"step":1,"kind":"lengths","metric":"bleu","groups":[{"from":1}]})",
      R"({"step":1,"kind":"confusion","classes":["x","y"],"counts":[[1,2],[3]]})",
      R"({"step":1,"kind":"confusion","classes":["x"],"counts":[1]})"};
  for (const std::string& line : bad) {
    write("a/samples.jsonl", line + '\n');
    const RunRecord run = read_run(path("a"));
    EXPECT_THAT(run.warnings, ElementsAre(HasSubstr("samples.jsonl:1: this line is not as a run")))
        << line;
    EXPECT_TRUE(run.samples.empty() && run.lengths.empty() && run.confusions.empty()) << line;
    report_html({run});
  }
}

TEST_F(ReportTest, AFolderOfNoRunIsRefused) { EXPECT_THROW(read_run(path("nowhere")), Error); }

// A long run: its curve is thinned, and the page says so.
TEST_F(ReportTest, ThinsLongCurves) {
  RunRecord run;
  for (int step = 1; step <= 50000; ++step) {
    run.train.add({{"step", step}, {"loss", step % 3 == 0 ? 4 : 1}});
  }
  const auto data = data_of(report_html({run}));
  const auto& columns = data.at("runs").at(0).at("train").at("columns");
  ASSERT_EQ(columns.at(0).size(), 16667u);
  EXPECT_EQ(columns.at(0).at(0), 3);
  EXPECT_EQ(columns.at(1).at(0), 2);
  EXPECT_THAT(data.at("runs").at(0).at("warnings").at(0).get<std::string>(),
              HasSubstr("the mean of 3 lines"));
}

TEST_F(ReportTest, ReadsWhatIsAddedToARun) {
  RunRecord run;
  MetricsReader reader(path("live.jsonl"));
  EXPECT_FALSE(reader.read(run));
  write("live.jsonl", "{\"step\":1,\"kind\":\"train\",\"loss\":2}\n{\"step\":2,\"kind\":");
  EXPECT_TRUE(reader.read(run));
  EXPECT_FALSE(reader.read(run));
  std::ofstream(path("live.jsonl"), std::ios::app) << "\"train\",\"loss\":1}\n";
  EXPECT_TRUE(reader.read(run));
  EXPECT_THAT(*run.train.find("loss"), ElementsAre(2, 1));
  // A run that went on from an earlier checkpoint has cut its lines.
  write("live.jsonl", "{\"step\":1,\"kind\":\"train\",\"loss\":2}\n");
  EXPECT_TRUE(reader.read(run));
  EXPECT_THAT(*run.train.find("loss"), ElementsAre(2));
}

// The page in a browser.
class ReportInBrowser : public ReportTest {
 protected:
  void SetUp() override {
    if (Browser::installed().empty()) {
      GTEST_SKIP() << "no browser is installed (Debian's chromium): the page was not driven";
    }
    ReportTest::SetUp();
    browser_ = std::make_unique<Browser>(Browser::installed(), path("profile"));
    browser_->resize(1280, 900);
  }
  void TearDown() override {
    browser_.reset();
    ReportTest::TearDown();
  }
  void open_report(const std::vector<std::string>& runs) {
    std::vector<RunRecord> records;
    for (const std::string& run : runs) records.push_back(read_run(path(run)));
    write("page.html", report_html(std::move(records)));
    browser_->open_page(path("page.html"));
  }
  std::string text_of(const std::string& selector) {
    return browser_->value("document.querySelector(" + nlohmann::json(selector).dump() +
                           ").textContent");
  }

  std::unique_ptr<Browser> browser_;
};

constexpr const char* kLoss = ".chart[data-name=loss]";

// What the bars of lengths say under the pointer.
constexpr const char* kBars =
    "[...document.querySelectorAll('#lengths rect title')].map(node => node.textContent)";

// What the page has become of it when the browser has told it.
constexpr const char* kClass =
    "new Promise(done => setTimeout(() => done(document.documentElement.className), 100))";

// The page's width once it is this one: charts are drawn anew some time after the window has its
// size.
constexpr const char* kNarrow =
    "(wanted => new Promise(done => {"
    "  const end = Date.now() + 5000;"
    "  const look = () => {"
    "    const width = document.documentElement.scrollWidth;"
    "    if (width === wanted || Date.now() > end) { done(width); } else { setTimeout(look, 20); }"
    "  };"
    "  look();"
    "}))";

TEST_F(ReportInBrowser, HoverAxisAndLegend) {
  open_report({"a"});
  const std::string legend = concat(kLoss, " .legend"), plot = concat(kLoss, " .plot"),
                    at = concat(kLoss, " .at");
  EXPECT_EQ(text_of(legend), "trainingvalidation");
  // The pointer at the right end of the curves.
  browser_->move_to(plot, 0.97, 0.5);
  EXPECT_EQ(text_of(legend), "training 0.5validation 0.6");
  EXPECT_EQ(text_of(at), "100 updates");
  browser_->click(".controls [data-value=tokens]");
  browser_->move_to(plot, 0.97, 0.5);
  EXPECT_EQ(text_of(legend), "training 0.5validation 0.6");
  EXPECT_EQ(text_of(at), "40k tokens");
  browser_->click(".controls [data-value=hours]");
  browser_->move_to(plot, 0.97, 0.5);
  EXPECT_EQ(text_of(at), "1 h");
  browser_->move_to(plot, 0.5, 0.5);
  EXPECT_THAT(text_of(at), testing::EndsWith(" min"));
  // The legend hides a curve, and shows it again.
  const std::string first = concat(kLoss, " .legend button");
  EXPECT_EQ(browser_->value("charts[0].graph.numColumns()"), 3);
  browser_->click(first);
  EXPECT_EQ(browser_->value("charts[0].graph.numColumns()"), 2);
  browser_->click(first);
  EXPECT_EQ(browser_->value("charts[0].graph.numColumns()"), 3);
  EXPECT_THAT(text_of("#samples"), HasSubstr("ein <Haus>"));
  EXPECT_EQ(browser_->value("document.querySelectorAll('.confusion td').length"), 5);
  EXPECT_THAT(text_of("footer pre"), HasSubstr("Dan Vanderkam <"));
  // Dark and light, and a narrow window, which nothing is wider than.
  browser_->prefer("dark");
  EXPECT_EQ(browser_->value(kClass), "dark");
  browser_->prefer("light");
  EXPECT_EQ(browser_->value(kClass), "");
  browser_->resize(400, 800);
  EXPECT_EQ(browser_->value(concat(kNarrow, "(400)")), 400);
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

TEST_F(ReportInBrowser, RunsAreDrawnOverEachOther) {
  open_report({"a", "b"});
  EXPECT_THAT(text_of("#runs"), HasSubstr("training.learning_rate=1.3"));
  browser_->move_to(concat(kLoss, " .plot"), 0.97, 0.5);
  EXPECT_EQ(text_of(concat(kLoss, " .legend")),
            "a, training 0.5a, validation 0.6b, training 0.65b, validation 0.78");
  browser_->click("#runs label:nth-child(2) input");
  EXPECT_EQ(text_of(concat(kLoss, " .legend")), "a, traininga, validation");
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

// Validation sets are cut into groups of their own: bars of the same groups stand side by side, of
// others each run has its picture.
TEST_F(ReportInBrowser, BarsOfLengthsShareTheirGroups) {
  const auto lengths = [](const std::string& groups) {
    return R"({"step":50,"kind":"lengths","metric":"bleu","groups":[)" + groups + "]}\n";
  };
  write("b/samples.jsonl", lengths(R"({"from":1,"to":5,"sentences":20,"score":12.5})"));
  open_report({"a", "b"});
  EXPECT_EQ(browser_->value(kBars), nlohmann::json::parse(R"([
      "a: BLEU 31.5 on 20 sentences of 1 to 5 words",
      "b: BLEU 12.5 on 20 sentences of 1 to 5 words"])"));
  write("b/samples.jsonl", lengths(R"({"from":1,"to":3,"sentences":7,"score":12.5},)"
                                   R"({"from":4,"to":9,"sentences":8,"score":11.5})"));
  open_report({"a", "b"});
  EXPECT_EQ(browser_->value(kBars),
            nlohmann::json::parse(R"(["BLEU 31.5 on 20 sentences of 1 to 5 words"])"));
  EXPECT_THAT(text_of("#lengths svg"), HasSubstr("20 sent."));
  browser_->value(
      "(() => { const choice = document.querySelector('#lengths select'); "
      "choice.value = 1; choice.dispatchEvent(new Event('change')); })()");
  EXPECT_EQ(browser_->value(kBars), nlohmann::json::parse(R"([
      "BLEU 12.5 on 7 sentences of 1 to 3 words", "BLEU 11.5 on 8 sentences of 4 to 9 words"])"));
  EXPECT_THAT(text_of("#lengths svg"), HasSubstr("7 sent."));
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

// Ten keys of the model and of the training differ, and more of the data, which are first in the
// alphabet.
TEST_F(ReportInBrowser, TheListOfRunsShowsTheTellingKeys) {
  std::filesystem::copy(path("a"), path("c"), std::filesystem::copy_options::recursive);
  for (const std::string run : {"a", "b"}) {
    std::string config = "data:\n";
    for (int i = 0; i < 9; ++i) config += concat("  key_", i, ": ", run, '\n');
    config += "model:\n  hidden_size: " + run + "\ntraining:\n  learning_rate: " + run +
              "\n  metric_for_best_model: bleu\n  optimizer: {name: " + run + "}\n";
    write(run + "/config.yaml", config);
  }
  open_report({"a", "b", "c"});
  EXPECT_THAT(text_of("#runs label:nth-child(1) .keys"),
              testing::MatchesRegex("model.hidden_size=a +training.learning_rate=a +"
                                    "training.optimizer.name=a +data.key_0=a .*and 4 more keys.*"));
  // What it has not is told by what it has.
  EXPECT_THAT(text_of("#runs label:nth-child(3) .keys"),
              testing::MatchesRegex("training.learning_rate=1 +training.note=.*"));
  EXPECT_THAT(text_of("#runs"), Not(HasSubstr("(not set)")));
  // On a telephone each key has room for its words.
  browser_->resize(400, 800);
  browser_->value("new Promise(done => setTimeout(done, 100))");
  EXPECT_GE(browser_->value("document.querySelector('#config th[scope=row]').clientWidth"), 130);
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

// The colours and dashes of the marks, heard from a canvas that only notes them.
TEST_F(ReportInBrowser, MarksHaveTheColourOfTheirRun) {
  const std::string marks = R"((() => {
      const seen = [], nothing = () => {}, chart = charts[0];
      const context = {save: nothing, restore: nothing, beginPath: nothing, moveTo: nothing,
                       lineTo: nothing, setLineDash(dash) { this.dash = dash; },
                       stroke() { seen.push([this.strokeStyle, this.dash.join(' ')]); }};
      chart.mark(context, chart.graph.getArea(), chart.graph, []);
      const names = Object.fromEntries(['c0', 'c1', 'best', 'skip', 'resume'].map(
          name => [colour(name), name]));
      return seen.map(([style, dash]) => names[style] + ', ' + dash);
  })())";
  open_report({"a", "b"});
  EXPECT_EQ(browser_->value(marks), nlohmann::json::parse(R"([
      "c0, 9 3 2 3", "c0, 2 3", "c0, 5 4", "c1, 2 3", "c1, 5 4"])"));
  EXPECT_THAT(text_of(".marks"), HasSubstr("in the colour of a run"));
  open_report({"a"});
  EXPECT_EQ(browser_->value(marks),
            nlohmann::json::parse(R"(["resume, 9 3 2 3", "skip, 2 3", "best, 5 4"])"));
}

// A run of five seconds over its time.
TEST_F(ReportInBrowser, AShortRunHasSecondsOnItsAxis) {
  std::string metrics;
  for (int step = 1; step <= 5; ++step) {
    metrics += concat(R"({"step":)", step, R"(,"kind":"train","loss":)", 5. / step,
                      R"(,"seconds":)", step, "}\n");
  }
  write("a/metrics.jsonl", metrics);
  open_report({"a"});
  browser_->click(".controls [data-value=hours]");
  browser_->move_to(concat(kLoss, " .plot"), 0.97, 0.5);
  EXPECT_EQ(text_of(concat(kLoss, " .at")), "5 s");
  EXPECT_EQ(browser_->value("[...document.querySelectorAll('.dygraph-axis-label-x')].every("
                            "node => /^[0-9] s$/.test(node.textContent))"),
            true)
      << browser_->value("document.querySelector('.plot').innerText");
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

// What the test itself would not see: that complaints are heard.
TEST_F(ReportInBrowser, AnErrorOfThePageIsHeard) {
  write("broken.html", "<script>nothing();</script>");
  browser_->open_page(path("broken.html"));
  EXPECT_THAT(browser_->complaints(), ElementsAre(HasSubstr("nothing is not defined")));
}

}  // namespace
}  // namespace tapestry
