// What the binary does with several scorers of n-best lists, and how their weights are learnt.
#include <gmock/gmock.h>

#include <cmath>
#include <memory>

#include "apps/tasks/answers/scorers.h"
#include "data/scores/bleu.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;
using Lines = std::vector<std::string>;

const std::string kSourceLines = "ba ce di\n\nlo mu ha ba\nfo\nki je gu lo\nha ha\nmu ba di ce\n";

/// A model each of both directions, one over another vocabulary, and a causal one of targets.
class RescoreTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TinyRunFolder>("rescore");
    train("translation", "run", {});
    train("translation", "reverse",
          {"data.train.source=train.tgt", "data.train.target=train.src", "seed=2"});
    train("translation", "other", {"tokenizer.vocab_size=34", "seed=3"});
    train("clm", "causal", {"data.train.text=train.tgt"});
    folder_->write("lines", kSourceLines);
    std::filesystem::create_directories(folder_->path("files"));
    folder_->write("files/all.yaml",
                   "scorers:\n"
                   "  - {feature: log_probability, weight: 0.5}\n"
                   "  - {feature: score}\n"
                   "  - {model: ../reverse, direction: backward, weight: 0.4}\n"
                   "  - {model: ../other, direction: forward, weight: 0.3}\n"
                   "  - {model: ../causal, weight: -0.2}\n"
                   "  - {feature: length, weight: 0.5}\n"
                   "  - {feature: characters, weight: -0.1}\n"
                   "  - {feature: consensus, weight: 0.02}\n");
    folder_->output(
        "translate --model run --input lines --beam-size 4 --n-best 4 --n-best-format moses "
        "--output lines.list");
    folder_->output(
        "translate --model run --input valid.src --beam-size 4 --n-best 4 --n-best-format moses "
        "--output valid.list");
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static void train(const std::string& task, const std::string& run, Lines overrides) {
    overrides.insert(overrides.end(), {"training.max_steps=120", "training.eval_steps=0"});
    ASSERT_EQ(folder_->train(task, run, overrides), 0) << folder_->messages();
  }
  static std::string translate(const std::string& options) {
    return folder_->output("translate --model run --beam-size 4 " + options, kSourceLines);
  }
  static std::string draw(const std::string& options) {
    return folder_->output("translate --model run " + options, kSourceLines);
  }
  static std::string rescore(const std::string& options) {
    return folder_->output("rescore " + options);
  }
  static TinyRunFolder::Outcome refused(const std::string& arguments, int code) {
    auto outcome = folder_->run(arguments, kSourceLines);
    EXPECT_EQ(outcome.code, code) << arguments << '\n' << outcome.err;
    EXPECT_EQ(outcome.out, "");
    return outcome;
  }
  /// With this file of scorers.
  static std::string refused_file(const std::string& text) {
    folder_->write("bad.yaml", text);
    return refused("translate --model run --rescore bad.yaml", 2).err;
  }
  static std::string file_of(const std::string& scorer) {
    folder_->write("one.yaml", concat("scorers: {", scorer, "}\n"));
    return "one.yaml";
  }
  /// The fields of the lines of a list.
  static std::vector<Lines> fields_of(const std::string& list) {
    std::vector<Lines> all;
    for (std::string line : lines_of(list)) {
      all.emplace_back();
      for (size_t bar; (bar = line.find(" ||| ")) != std::string::npos; line.erase(0, bar + 5)) {
        all.back().push_back(line.substr(0, bar));
      }
      all.back().push_back(line);
    }
    return all;
  }
  static double value_of(const std::string& values, const std::string& name) {
    const size_t at = values.find(name + "= ");
    EXPECT_NE(at, std::string::npos) << values;
    return std::stod(values.substr(at + name.size() + 2));
  }

  static std::unique_ptr<TinyRunFolder> folder_;
};

std::unique_ptr<TinyRunFolder> RescoreTest::folder_;

TEST_F(RescoreTest, TheSearchsOwnScoreChangesNothing) {
  const std::string file = file_of("feature: score");
  EXPECT_EQ(translate("--rescore " + file), translate(""));
  EXPECT_EQ(translate("--n-best 3 --rescore " + file), translate("--n-best 3"));
  for (const char* options : {"--do-sample --n-best 1 --seed 3", "--mbr 9 --n-best 2"}) {
    EXPECT_EQ(draw(concat(options, " --rescore ", file)), draw(options)) << options;
  }
  EXPECT_NE(translate("--rescore " + file_of("feature: score, weight: -1")), translate(""));
}

TEST_F(RescoreTest, EachScorerHasItsValue) {
  const auto list = fields_of(
      rescore("--scorers files/all.yaml --source lines --n-best lines.list --format moses"));
  ASSERT_EQ(list.size(), fields_of(read_file(folder_->path("lines.list"))).size());
  const Lines lines = lines_of(kSourceLines);
  std::string sources, texts;
  std::vector<std::string> values;
  for (const Lines& fields : list) {
    if (fields[0] == "1") {  // the blank line
      EXPECT_EQ(fields[1], "");
      EXPECT_EQ(fields[3], "0.000000");
      continue;
    }
    if (fields[1].empty()) continue;  // which score leaves out
    sources += lines.at(std::stoul(fields[0])) + '\n';
    texts += fields[1] + '\n';
    values.push_back(fields[2]);
    const std::string& of = fields[2];
    EXPECT_EQ(value_of(of, " log_probability"), value_of(of, "F0"));
    EXPECT_EQ(value_of(of, " length"), 1 + std::ranges::count(fields[1], ' '));
    EXPECT_EQ(value_of(of, " characters"), static_cast<double>(fields[1].size()));
    const double sum = 0.5 * value_of(of, "F0") + value_of(of, " score") +
                       0.4 * value_of(of, "backward:../reverse") +
                       0.3 * value_of(of, "forward:../other") -
                       0.2 * value_of(of, "text:../causal") + 0.5 * value_of(of, " length") -
                       0.1 * value_of(of, " characters") + 0.02 * value_of(of, " consensus");
    EXPECT_NEAR(std::stod(fields[3]), sum, 1e-5);
  }
  folder_->write("sources", sources);
  folder_->write("texts", texts);
  const auto expect_scores = [&](const std::string& name, const std::string& arguments) {
    const Lines scores = lines_of(folder_->output("score --batch-size 1 " + arguments));
    ASSERT_EQ(scores.size(), values.size()) << arguments;
    for (size_t i = 0; i < scores.size(); ++i) {
      const double expected = std::stod(scores[i]);  // of six digits
      EXPECT_NEAR(value_of(values[i], name), expected, 1e-5 * std::abs(expected)) << name;
    }
  };
  expect_scores("backward:../reverse", "--model reverse --source texts --target sources");
  expect_scores("forward:../other", "--model other --source sources --target texts");
  expect_scores("text:../causal", "--model causal --input texts");
}

TEST_F(RescoreTest, AListInAFileIsRescoredAsItsSearchIs) {
  const std::string text = rescore("--scorers files/all.yaml --source lines --n-best lines.list");
  EXPECT_EQ(translate("--rescore files/all.yaml"), text);
  EXPECT_NE(translate(""), text) << "nothing was chosen";
  // The n best in the new order, which have its sums.
  const auto three =
      fields_of(translate("--rescore files/all.yaml --n-best 3 --n-best-format moses"));
  const auto all = fields_of(
      rescore("--scorers files/all.yaml --source lines --n-best lines.list --format moses"));
  size_t place = 0;
  for (const Lines& fields : three) {
    while (all.at(place)[0] != fields[0]) ++place;  // the fourth
    EXPECT_EQ(all[place][1], fields[1]);
    EXPECT_NEAR(std::stod(all[place++][3]), std::stod(fields[3]), 2e-5);
  }
}

TEST_F(RescoreTest, NothingDependsOnThreadsAndBatches) {
  for (const char* options : {"--beam-size 4 --n-best 3", "--weights int8 --beam-size 4",
                              "--do-sample --n-best 5 --seed 2", "--mbr 6 --epsilon 0.02"}) {
    const std::string all = concat("--rescore files/all.yaml ", options);
    const std::string expected = draw(all + " --threads 1");
    EXPECT_EQ(draw(all + " --threads 3 --batch-size 1"), expected) << options;
    EXPECT_EQ(draw(all + " --threads 2 --batch-size 3"), expected) << options;
  }
  const std::string list = "--scorers files/all.yaml --source lines --n-best lines.list";
  EXPECT_EQ(rescore(list + " --format moses --threads 1"),
            rescore(list + " --format moses --threads 3"));
  EXPECT_NE(rescore(list + " --format moses --weights int8"), rescore(list + " --format moses"));
}

TEST_F(RescoreTest, ValuesOfAListAreReused) {
  const std::string with = "rescore --scorers files/all.yaml --source lines --n-best ";
  const std::string all = folder_->output(with + "lines.list --format moses");
  folder_->write("valued.list", all);
  const auto before = fields_of(all);
  const auto again = fields_of(folder_->output(with + "valued.list --format moses --reuse"));
  ASSERT_EQ(again.size(), before.size());
  for (size_t i = 0; i < again.size(); ++i) {
    for (const size_t field : {0, 1, 2}) EXPECT_EQ(again[i][field], before[i][field]);
    EXPECT_NEAR(std::stod(again[i][3]), std::stod(before[i][3]), 1e-5);
  }
  // They are taken: another value decides.
  std::string other = all;
  const std::string name = "text:../causal= ";
  const size_t last = all.rfind(name) + name.size();
  other.replace(last, all.find(' ', last) - last, "-1000");  // times -0.2
  folder_->write("valued.list", other);
  const Lines best = lines_of(folder_->output(with + "valued.list --reuse"));
  EXPECT_EQ(best.back(), fields_of(other).back()[1]);
  other.replace(last, 5, "x");
  folder_->write("valued.list", other);
  EXPECT_THAT(refused(with + "valued.list --reuse", 3).err,
              HasSubstr(": expected a number behind text:../causal=, got 'x'."));
}

TEST_F(RescoreTest, OtherOptionsOfASearchGoAlong) {
  const std::string rescored = translate("--rescore files/all.yaml --alignments out.align");
  EXPECT_EQ(rescored, translate("--rescore files/all.yaml"));
  EXPECT_EQ(lines_of(read_file(folder_->path("out.align"))).size(), 7U);
  EXPECT_THAT(lines_of(translate("--rescore files/all.yaml --prefix-column")).size(), 7U);
  const Lines split =
      lines_of(folder_->output("translate --model run --beam-size 4 --rescore files/all.yaml "
                               "--split-sentences en",
                               "Ba ce di. Lo mu ha.\nfo\n"));
  EXPECT_EQ(split.size(), 2U);
}

TEST_F(RescoreTest, WeightsAreTuned) {
  const std::string tune =
      "--scorers files/all.yaml --source valid.src --n-best valid.list --tune --reference "
      "valid.tgt ";
  const auto outcome = folder_->run("rescore " + tune + "--output files/tuned.yaml");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  const Lines references = lines_of(read_file(folder_->path("valid.tgt")));
  const auto bleu = [&](const std::string& scorers) {
    return corpus_bleu(lines_of(rescore(concat("--scorers ", scorers, " --source valid.src ",
                                               "--n-best valid.list"))),
                       references)
        .score;
  };
  const double before = bleu("files/all.yaml"), after = bleu("files/tuned.yaml");
  EXPECT_GT(after, before);
  char said[100];
  std::snprintf(said, sizeof said, "with the weights of files/all.yaml %.2f, tuned %.2f\n", before,
                after);
  EXPECT_THAT(outcome.err, HasSubstr(said));
  // The file is the same but for its weights.
  const std::string file = read_file(folder_->path("files/tuned.yaml"));
  EXPECT_THAT(file, HasSubstr("model: ../reverse"));
  EXPECT_THAT(file, HasSubstr("direction: backward"));
  // In another folder paths are absolute.
  const std::string printed = rescore(tune + "--threads 3");
  EXPECT_THAT(printed, HasSubstr(concat("model: ", folder_->path("reverse"))));
  EXPECT_EQ(lines_of(printed).size(), lines_of(file).size());
  for (size_t i = 0; i < lines_of(file).size(); ++i) {
    if (lines_of(file)[i].find("model:") != std::string::npos) continue;
    EXPECT_EQ(lines_of(printed)[i], lines_of(file)[i]);
  }
  // Again with it: not worse.
  EXPECT_GE(bleu("files/tuned.yaml"), after);
  for (const char* metric : {"chrf", "ter"}) {
    const auto other = folder_->run(concat("rescore ", tune, "--metric ", metric, " --starts 3"));
    EXPECT_EQ(other.code, 0) << other.err;
    EXPECT_THAT(other.err, HasSubstr("as listed"));
  }
}

TEST_F(RescoreTest, AScorerThatChoosesNothingIsNamed) {
  folder_->write("two.yaml",
                 "scorers:\n  - {feature: consensus, weight: 0}\n  - {feature: score}\n");
  folder_->write("one.list", "0 ||| a ||| ||| 1\n");
  folder_->write("a", "a\n");
  const auto outcome =
      folder_->run("rescore --tune --scorers two.yaml --source a --reference a --n-best one.list");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("note: consensus is the same for all translations"));
  EXPECT_THAT(outcome.err, HasSubstr("note: no better weights were found"));
  EXPECT_EQ(outcome.out, read_file(folder_->path("two.yaml")).empty() ? "" : outcome.out);
  EXPECT_THAT(outcome.out, HasSubstr("weight: 1"));
}

TEST_F(RescoreTest, WrongFilesAreRefusedWithTheirPlaces) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"scorer: []\n", "bad.yaml:1:1: unknown key 'scorer'; did you mean 'scorers'?"},
      {"scorers: []\n", "bad.yaml:1:10: 'scorers' must have at least one scorer."},
      {"scorers: 3\n", "bad.yaml:1:10: 'scorers' must be a map of keys, got 3."},
      {"scorers:\n  - {feature: lenght, weight: 1}\n",
       "bad.yaml:2:15: 'scorers.feature' must be one of log_probability, score, length, "
       "characters, consensus, got 'lenght'. Did you mean 'length'?"},
      {"scorers:\n  - {feature: length, weight: many}\n",
       "bad.yaml:2:31: 'scorers.weight' must be a number, got 'many'."},
      {"scorers:\n  - {feature: length, weight: .nan}\n", "must be a number, got '.nan'."},
      {"scorers:\n  - {feature: length, wieght: 1}\n",
       "bad.yaml:2:23: unknown key 'wieght' in 'scorers'; did you mean 'weight'?"},
      {"scorers:\n  - {weight: 1}\n",
       "bad.yaml:2:5: 'scorers.feature' or 'scorers.model' must say what scores."},
      {"scorers:\n  - {feature: length}\n  - {model: run, feature: score, direction: forward}\n",
       "bad.yaml:3:27: 'scorers.1.feature' has no effect with a model."},
      {"scorers:\n  - {feature: length, direction: forward}\n",
       "'scorers.direction' has no effect without a model that translates."},
      {"scorers:\n  - {model: run}\n", "bad.yaml:2:5: missing key 'direction' in 'scorers'."},
      {"scorers:\n  - {model: run, direction: upward}\n",
       "bad.yaml:2:29: 'scorers.direction' must be one of forward, backward, got 'upward'."},
      {"scorers:\n  - {model: causal, direction: forward}\n",
       "bad.yaml:2:32: 'scorers.direction' has no effect with this model, which does not "
       "translate."},
      {"scorers:\n  - {feature: score}\n  - {model: nowhere, direction: forward, weight: 2}\n",
       "bad.yaml:3:13: 'scorers.1.model': "},
      {"scorers:\n  - {feature: score}\n  - {feature: length}\n  - {feature: score, weight: 3}\n",
       "bad.yaml:4:15: 'scorers.2' is the same scorer as 'scorers.0'."},
      {"scorers:\n  - {model: run, direction: forward}\n"
       "  - {model: files/../run, direction: forward}\n",
       "bad.yaml:3:13: 'scorers.1' is the same scorer as 'scorers.0'."},
      {"scorers:\n  - {feature: score, weight: 0}\n  - {feature: length, weight: 0}\n",
       "bad.yaml:2:3: 'scorers' must have a weight other than 0."},
  };
  for (const auto& [text, message] : kWrong) {
    EXPECT_THAT(refused_file(text), HasSubstr(message)) << text;
  }
  // All at once, and nothing that follows from another error.
  const std::string two = refused_file(
      "scorers:\n  - {model: nowhere, direction: x}\n  - {feature: score, weight: a}\n");
  EXPECT_THAT(two, HasSubstr("2 errors in the configuration"));
  EXPECT_THAT(two, Not(HasSubstr("has no effect")));
  EXPECT_THAT(refused("translate --model run --rescore missing.yaml", 2).err,
              HasSubstr("missing.yaml"));
}

TEST_F(RescoreTest, ModelsOfOtherTasksAreRefused) {
  train("classification", "classes", {});
  train("clm", "document", {"data.train.documents=file", "data.valid.documents=file"});
  EXPECT_THAT(refused_file("scorers:\n  - {model: classes}\n"),
              HasSubstr("bad.yaml:2:13: 'scorers.model' must be a model of task translation or "
                        "denoising or clm"));
  EXPECT_THAT(refused_file("scorers:\n  - {model: document}\n"),
              HasSubstr("has learnt from one long document"));
}

TEST_F(RescoreTest, WrongListsAreRefused) {
  const std::string with = "rescore --scorers files/all.yaml --source lines --n-best ";
  folder_->write("wrong.list", "0 ||| a ||| F0= -1 ||| 1\n2 ||| b ||| F0= -1 ||| 1\n");
  EXPECT_THAT(refused(with + "wrong.list", 3).err,
              HasSubstr("wrong.list has no translation of line 2 of the source"));
  folder_->write("wrong.list", "0 ||| a ||| F0= -1 ||| 1\n7 ||| b ||| F0= -1 ||| 1\n");
  EXPECT_THAT(refused(with + "wrong.list", 3).err,
              HasSubstr("wrong.list:2: expected the number of one of the 7 lines of the source"));
  folder_->write("a", "a\n");
  folder_->write("wrong.list", "0 ||| b ||| F0= -1 ||| 1\n0 ||| a ||| F1= -1 ||| 1\n");
  EXPECT_THAT(refused("rescore --scorers files/all.yaml --source a --n-best wrong.list", 3).err,
              HasSubstr("wrong.list:2: expected F0= LOG-PROBABILITY, since log_probability is a "
                        "scorer, got 'F1= -1'."));
  EXPECT_THAT(refused(with + "lines.list --tune", 2).err, HasSubstr("--tune needs --reference"));
  EXPECT_THAT(refused(with + "lines.list --tune --reference valid.tgt", 3).err,
              HasSubstr("expected as many lines in valid.tgt as in lines, which has 7, got 20."));
  EXPECT_THAT(
      refused(with + "lines.list --tune --reference lines --metric chrf --tokenize char", 2).err,
      HasSubstr("--tokenize is of BLEU"));
  EXPECT_THAT(refused(with + "lines.list --reference valid.tgt", 2).err, HasSubstr("--tune"));
  EXPECT_THAT(refused(with + "lines.list --output no/where", 1).err, HasSubstr("no/where"));
}

TEST(ScorerTest, ValuesMustBeFinite) {
  struct Broken : Scorer {
    std::vector<double> values(const CandidateList&) override { return {-1, std::nan("")}; }
  } scorer;
  ScorerSpec spec;
  spec.kind = &scorer_kinds()[0];
  const CandidateList list{"source", 7, {{"good", 0, 0}, {"bad", 0, 0}}};
  EXPECT_EQ(error_of(ErrorKind::kRuntime, [&] { checked_values(scorer, spec, list); }),
            "[rescore] log_probability must give finite values, got nan for line 7: 'bad'.");
}

TEST_F(RescoreTest, TextsThatAModelCannotReadAreTold) {
  folder_->write("a", "a\n");
  folder_->write("odd.list",
                 "0 ||| \xe6\x97\xa5\xe6\x9c\xac ||| F0= -1 ||| 1\n0 ||| ba ||| F0= -1 ||| 1\n");
  folder_->write("causal.yaml", "scorers: {model: causal}\n");
  const auto outcome = folder_->run("rescore --scorers causal.yaml --source a --n-best odd.list");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("unknown to its vocabulary"));
}

}  // namespace
}  // namespace tapestry
