// What the binary does with shortlists and with minimum Bayes risk.
#include <gmock/gmock.h>

#include <memory>

#include "data/scores/chrf.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;
using Lines = std::vector<std::string>;

const std::string kLines = "ba ce di\n\nlo mu ha ba\nfo\nki je gu lo\nha ha\nmu ba di ce\n";

/// The model is trained once, and its lexicon learned.
class ShortlistTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TinyRunFolder>("shortlist");
    EXPECT_EQ(folder_->train("translation", "run", {"training.max_steps=120"}), 0)
        << folder_->messages();
    folder_->output("shortlist --model run --output lex.s2t");
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string translate(const std::string& options) {
    return folder_->output("translate --model run " + options, kLines);
  }
  static TinyRunFolder::Outcome refused(const std::string& arguments) {
    const auto outcome = folder_->run(arguments, kLines);
    EXPECT_NE(outcome.code, 0) << arguments;
    EXPECT_EQ(outcome.out, "");
    return outcome;
  }
  static std::vector<Json> objects(const std::string& options) {
    std::vector<Json> all;
    for (const std::string& line : lines_of(translate(options + " --detail jsonl"))) {
      all.push_back(Json::parse(line));
    }
    return all;
  }

  static std::unique_ptr<TinyRunFolder> folder_;
};

std::unique_ptr<TinyRunFolder> ShortlistTest::folder_;

TEST_F(ShortlistTest, ALexiconDependsOnTheCorpusOnly) {
  const std::string file = read_file(folder_->path("lex.s2t"));
  EXPECT_THAT(file, HasSubstr(" NULL 0."));
  for (const char* threads : {"1", "3"}) {
    EXPECT_EQ(folder_->output(concat("shortlist --model run --output - --threads ", threads)),
              file);
  }
  EXPECT_EQ(folder_->output("shortlist --model run --data source=train.src target=train.tgt "
                            "--output -"),
            file);
  // Targets are the sources backwards: each piece is its own translation.
  int64_t same = 0, sources = 0;
  std::string before;
  for (const std::string& line : lines_of(file)) {
    std::istringstream fields(line);
    std::string target, source;
    fields >> target >> source;
    if (source == "NULL" || source == before) continue;
    ++sources, same += target == source ? 1 : 0;
    before = source;
  }
  EXPECT_GT(sources, 5);
  EXPECT_GT(2 * same, sources);
}

TEST_F(ShortlistTest, ALargeOneKeepsTheTranslations) {
  for (const char* options :
       {"", " --beam-size 1", " --weights int8", " --weights bfloat16 --beam-size 4 --n-best 2"}) {
    EXPECT_EQ(translate(concat("--shortlist lex.s2t --shortlist-size 1000", options)),
              translate(options))
        << options;
  }
}

TEST_F(ShortlistTest, AnswersDependOnNoOtherLine) {
  for (const char* options :
       {"", " --beam-size 1", " --weights int8", " --weights int4 --beam-size 3 --n-best 2",
        " --do-sample --seed 4 --n-best 3", " --mbr 6 --epsilon 0.02"}) {
    const std::string all = concat("--shortlist lex.s2t --shortlist-size 3", options);
    const std::string expected = translate(all);
    EXPECT_EQ(translate(all + " --batch-size 1"), expected) << options;
    EXPECT_EQ(translate(all + " --batch-size 3 --threads 2"), expected) << options;
  }
  EXPECT_NE(translate("--shortlist lex.s2t --shortlist-size 1 --do-sample --temperature 3"),
            translate("--do-sample --temperature 3"));
}

TEST_F(ShortlistTest, ProbabilitiesAreSharesOfTheShortlist) {
  const auto log_probability = [](const Json& line) {
    return line.at("translations")[0].at("log_probability").get<double>();
  };
  const Json whole = objects("").at(0);
  const Json some = objects("--shortlist lex.s2t --shortlist-size 4").at(0);
  ASSERT_EQ(whole["translations"][0]["text"], some["translations"][0]["text"]);
  EXPECT_GT(log_probability(some), log_probability(whole));
}

TEST_F(ShortlistTest, PrefixesMayBeAnyText) {
  folder_->write("prefixes", "mu\n\nki\nlo lo\n\n\n\n");
  const Lines lines =
      lines_of(translate("--shortlist lex.s2t --shortlist-size 1 --prefix prefixes"));
  EXPECT_THAT(lines.at(0), testing::StartsWith("mu"));
  EXPECT_THAT(lines.at(3), testing::StartsWith("lo lo"));
}

TEST_F(ShortlistTest, AConfigMayNameOne) {
  folder_->write("run/lex.s2t", read_file(folder_->path("lex.s2t")));
  ASSERT_EQ(folder_->train("translation", "named",
                           {"training.max_steps=120", "generation.shortlist=lex.s2t",
                            "generation.shortlist_size=1"}),
            0)
      << folder_->messages();
  const std::string named =
      folder_->output("translate --model named --do-sample --temperature 3", kLines);
  EXPECT_EQ(named, translate("--shortlist lex.s2t --shortlist-size 1 --do-sample --temperature 3"));
  EXPECT_EQ(
      folder_->output("translate --model named --shortlist '' --do-sample --temperature 3", kLines),
      translate("--do-sample --temperature 3"));
}

TEST_F(ShortlistTest, UnknownTokensAreCounted) {
  folder_->write("more.s2t", read_file(folder_->path("lex.s2t")) + "never ba 0.5\n");
  const auto outcome = folder_->run("translate --model run --shortlist more.s2t", kLines);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("warning: 1 of "));
  EXPECT_THAT(outcome.err, HasSubstr("more.s2t:"));
  EXPECT_THAT(outcome.err, HasSubstr("'never'"));
}

TEST_F(ShortlistTest, WrongFilesAndModelsAreRefused) {
  folder_->write("bad.s2t", "ba ba\n");
  auto outcome = refused("translate --model run --shortlist bad.s2t");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("bad.s2t:1: expected a target token, a source token and a "
                                     "probability in [0, 1], got 'ba ba'"));
  outcome = refused("translate --model run --shortlist missing.s2t");
  EXPECT_THAT(outcome.err, HasSubstr("missing.s2t"));
  outcome = refused("translate --model run --shortlist lex.s2t --shortlist-size 0");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--shortlist-size 0"));
  ASSERT_EQ(folder_->train("clm", "causal", {"training.max_steps=5"}), 0) << folder_->messages();
  outcome = refused("shortlist --model causal --output -");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("[shortlist] expected a model that translates a source, "
                                     "causal holds one of task clm."));
  outcome = refused("generate --model causal --shortlist lex.s2t");
  EXPECT_EQ(outcome.code, 2);
  outcome = refused("shortlist --model run --data text=train.src --output -");
  EXPECT_THAT(outcome.err, HasSubstr("unknown key 'text'"));
}

TEST_F(ShortlistTest, ExportsHoldIt) {
  folder_->output(
      "export --model run --format ctranslate2 --shortlist lex.s2t --shortlist-size 2 "
      "--output with");
  folder_->output("export --model run --format ctranslate2 --output without");
  EXPECT_FALSE(std::filesystem::exists(folder_->path("without/vmap.txt")));
  EXPECT_EQ(read_file(folder_->path("with/vmap.txt")),
            folder_->output("shortlist --model run --format vmap --shortlist-size 2 --output -"));
  EXPECT_THAT(read_file(folder_->path("with/vmap.txt")), testing::StartsWith("\t<pad> <unk>"));
  const auto outcome = refused("export --model run --shortlist lex.s2t --output other");
  EXPECT_THAT(outcome.err, HasSubstr("--shortlist has no effect with --format huggingface"));
  if (!std::filesystem::exists(folder_->path("causal"))) {
    ASSERT_EQ(folder_->train("clm", "causal", {"training.max_steps=5"}), 0) << folder_->messages();
  }
  EXPECT_THAT(
      refused("export --model causal --format ctranslate2 --shortlist lex.s2t --output no").err,
      HasSubstr("--shortlist needs a model that reads a source, causal holds one of task "
                "clm."));
}

// Minimum Bayes risk

TEST_F(ShortlistTest, TheDrawOfLeastRiskIsThatOfTheDefinition) {
  const std::string draws = "--epsilon 0.03 --temperature 1.5 --seed 9";
  const Lines drawn = lines_of(translate(draws + " --do-sample --n-best 8"));
  const Lines best = lines_of(translate(draws + " --mbr 8 --mbr-utility chrf_pairs"));
  ASSERT_EQ(drawn.size(), 8 * best.size());
  const Chrf chrf;
  std::vector<double> sums(chrf.width());
  int64_t not_first = 0;
  for (size_t line = 0; line < best.size(); ++line) {
    const auto utility = [&](const std::string& text) {
      double sum = 0;
      const std::string_view hypothesis = text;
      for (size_t n = 0; n < 8; ++n) {
        chrf.measure({&hypothesis, 1}, {&drawn[8 * line + n], 1}, sums.data());
        sum += chrf.score(sums.data());
      }
      return sum;
    };
    double most = -1;
    for (size_t n = 0; n < 8; ++n) most = std::max(most, utility(drawn[8 * line + n]));
    EXPECT_NEAR(utility(best[line]), most, 1e-9) << line;
    not_first += best[line] != drawn[8 * line] ? 1 : 0;
  }
  EXPECT_GT(not_first, 0) << "the most probable draw always won";
}

TEST_F(ShortlistTest, TheNBestOfDrawsDiffer) {
  for (const char* utility : {"chrf", "bleu", "chrf_pairs", "bleu_pairs"}) {
    const auto lines =
        objects(concat("--mbr 12 --temperature 2 --n-best 3 --mbr-utility ", utility));
    for (const Json& line : lines) {
      double before = 101;
      std::set<std::string> texts;
      for (const Json& one : line["translations"]) {
        texts.insert(one["text"]);
        EXPECT_LE(one["score"].get<double>(), before);
        before = one["score"];
      }
      EXPECT_EQ(texts.size(), line["translations"].size());
    }
    EXPECT_EQ(lines.at(2)["translations"].size(), 3U);
  }
}

TEST_F(ShortlistTest, OptionsOfDrawsThatDoNotFitAreRefused) {
  EXPECT_THAT(refused("translate --model run --mbr 4 --n-best 5").err,
              HasSubstr("expected 1 <= --n-best <= --mbr, got 5 and 4"));
  EXPECT_THAT(refused("translate --model run --mbr 4 --beam-size 3").err,
              HasSubstr("--mbr takes draws, it has no effect with --beam-size 3"));
  EXPECT_THAT(refused("translate --model run --mbr 2000").err, HasSubstr("--mbr 2000"));
  EXPECT_THAT(refused("translate --model run --mbr 4 --mbr-utility comet").err,
              HasSubstr("--mbr-utility comet"));
  EXPECT_THAT(refused("translate --model run --epsilon 1").err, HasSubstr("--epsilon 1"));
}

}  // namespace
}  // namespace tapestry
