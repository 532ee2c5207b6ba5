// The binary as a user meets it: exit codes, stdout, stderr.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/error.h"
#include "core/build_info.h"
#include "data/files/files.h"
#include "tests/apps/checkpoint_bytes.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

class CliTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = fs::temp_directory_path() / concat("tapestry-cli-", getpid(), "-", name);
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return path(name);
  }

  /// Runs `tapestry <arguments>` through the shell, in the test's folder.
  Outcome tapestry(const std::string& arguments) const {
    const std::string command = concat("cd '", folder_.string(), "' && '", tapestry_binary(), "' ",
                                       arguments, " >'", path("out"), "' 2>'", path("err"), "'");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(path("out")),
            read_file(path("err"))};
  }

  /// The names of all commands, as the help lists them.
  std::vector<std::string> commands() const {
    std::istringstream help(tapestry("--help").out);
    std::vector<std::string> names;
    bool listed = false;
    for (std::string line; std::getline(help, line);) {
      if (listed && line.starts_with("  ")) names.push_back(line.substr(2, line.find(' ', 2) - 2));
      listed = listed || line == "Subcommands:";
    }
    return names;
  }

  /// A checkpoint folder with these values as its only parameter.
  std::string checkpoint(const std::string& name, const std::vector<float>& values,
                         const std::string& tokenizer = "pieces") const {
    const Shape shape = {static_cast<int64_t>(values.size())};
    write_checkpoint(
        path(name), {{"model.safetensors", safetensors_bytes({{"w", Tensor::from(values, shape)}})},
                     {"optimizer.safetensors", "not averaged"},
                     {"tokenizer.model", tokenizer},
                     {"config.json", "{}"}});
    return path(name);
  }

  fs::path folder_;
};

TEST_F(CliTest, TellsWhatAWrongWordWasMeantToBe) {
  const Outcome command = tapestry("trian config.yaml");
  EXPECT_EQ(command.code, 2);
  EXPECT_EQ(command.err,
            "error: unknown command 'trian'; did you mean 'train'? See tapestry --help.\n");
  const Outcome option = tapestry("train config.yaml --resme=never");
  EXPECT_EQ(option.code, 2);
  EXPECT_EQ(option.err,
            "error: unknown option '--resme' of train; did you mean '--resume'? See tapestry "
            "--help.\n");
  // Also where something else is missing, with one dash, and before a command.
  EXPECT_THAT(tapestry("translate --modle x").err,
              StartsWith("error: unknown option '--modle' of translate; did you mean '--model'?"));
  EXPECT_THAT(tapestry("translate --model x -beam-size 3").err,
              StartsWith("error: unknown option '-beam-size' of translate; did you mean "
                         "'--beam-size'?"));
  EXPECT_THAT(tapestry("--verson").err,
              StartsWith("error: unknown option '--verson'; did you mean '--version'?"));
  EXPECT_EQ(tapestry("xyzzy").err, "error: unknown command 'xyzzy'. See tapestry --help.\n");
  EXPECT_EQ(tapestry("xyzzy").code, 2);
}

TEST_F(CliTest, AnswersWhoeverAsksWhatThereIs) {
  const Outcome bare = tapestry("");
  EXPECT_EQ(bare.code, 0);
  EXPECT_EQ(bare.err, "");
  EXPECT_EQ(bare.out, tapestry("--help").out);
  EXPECT_THAT(bare.out, HasSubstr("Usage: tapestry "));
  const Outcome help = tapestry("help");
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, StartsWith(bare.out));
  EXPECT_THAT(help.out, HasSubstr("\ntraining.optimizer: How an update"));
  // The same by any way.
  const Outcome average = tapestry("help average");
  EXPECT_EQ(average.code, 0);
  EXPECT_THAT(average.out, HasSubstr("--output TEXT REQUIRED"));
  EXPECT_EQ(average.out, tapestry("average --help").out);
  EXPECT_EQ(average.out, tapestry("average --help-all").out);
  EXPECT_THAT(tapestry("help averge").err, HasSubstr("Of the commands, did you mean 'average'?"));
  // All that there is.
  const Outcome all = tapestry("--help-all");
  EXPECT_EQ(all.code, 0);
  EXPECT_THAT(all.out, HasSubstr("--beam-size"));
  EXPECT_THAT(all.out, HasSubstr("--resume"));
  const Outcome train = tapestry("train --help-all");
  EXPECT_EQ(train.code, 0);
  EXPECT_EQ(train.err, "");
  EXPECT_THAT(train.out, StartsWith(tapestry("train --help").out));
  EXPECT_THAT(train.out, HasSubstr("\ngeneration.top_p\n"));
}

TEST_F(CliTest, ExplainsTheKeysOfAConfig) {
  const Outcome key = tapestry("help training.optimizer.betas");
  EXPECT_EQ(key.code, 0);
  EXPECT_THAT(key.out, StartsWith("training.optimizer.betas\n"));
  EXPECT_THAT(key.out, HasSubstr("default: [0.9, 0.999]"));
  EXPECT_EQ(key.err, "");
  EXPECT_THAT(tapestry("help").out, HasSubstr("\ntraining.optimizer: How an update"));
  const Outcome wrong = tapestry("help training.bettas");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("Did you mean 'training.optimizer.betas'?"));
  // No config is needed for the list of its keys.
  const Outcome all = tapestry("train --help-keys");
  EXPECT_EQ(all.code, 0);
  for (const char* name : {"seed\n", "data.train.text\n", "generation.top_p\n"}) {
    EXPECT_THAT(all.out, HasSubstr(name));
  }
}

TEST_F(CliTest, HelpGoesToStdoutAndNamesEverySubcommand) {
  const Outcome outcome = tapestry("--help");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(commands().size(), 26u);
  for (const std::string& command : commands()) {
    const Outcome help = tapestry(command + " --help");
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_THAT(help.out, HasSubstr("Usage: tapestry " + command + ' '));
  }
}

TEST_F(CliTest, ReadmeNamesEveryCommand) {
  const std::string readme = read_file(project_file("README.md"));
  for (const std::string& command : commands()) {
    EXPECT_TRUE(readme.find("tapestry " + command + ' ') != std::string::npos ||
                readme.find('`' + command + '`') != std::string::npos)
        << command;
  }
}

TEST_F(CliTest, VersionSaysWhatABugReportNeeds) {
  const Outcome outcome = tapestry("--version");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out,
              testing::MatchesRegex("tapestry [0-9.]+\ncommit: [0-9a-z-]+\n"
                                    "build: (Release|Debug)[a-zA-Z ]*, CPU[a-zA-Z ]*, .+\n"
                                    "processor: .*, vectors [A-Z0-9_]+\nBLAS: OpenBLAS .+\n"
                                    "bfloat16: [a-z0-9_]+\nint8: [a-z0-9_]+\n"));
  EXPECT_THAT(outcome.out, StartsWith(std::string("tapestry ") + build_info().version + '\n'));
}

TEST_F(CliTest, WrongUsageIsExitCodeTwo) {
  for (const char* arguments :
       {"trian", "train", "train --no-such-option", "evaluate --hypothesis x",
        "evaluate --hypothesis x --reference y --tokenize 14b", "average --output x",
        "translate --model x --beam-size 0", "translate --model x --detail xml"}) {
    const Outcome outcome = tapestry(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_THAT(outcome.err, StartsWith("error: ")) << arguments;
  }
}

TEST_F(CliTest, OptionsForKeysOfGenerationHaveTheKeysBounds) {
  for (const char* command : {"translate --model x", "generate --model x", "fill-mask --model x",
                              "bench none.yaml --decode"}) {
    const Outcome outcome = tapestry(concat(command, " --beam-size 0"));
    EXPECT_EQ(outcome.code, 2) << command;
    EXPECT_EQ(outcome.err, "error: --beam-size 0: 'num_beams' must be in [1, 1024], got 0.\n");
  }
}

TEST_F(CliTest, ConfigErrorsAreExitCodeTwo) {
  write("c.yaml", "task: translation\ntrainin: {}\n");
  const Outcome outcome = tapestry("train c.yaml training.max_steps=abc");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, StartsWith("error: 4 errors in the configuration:\n"));
  EXPECT_THAT(outcome.err,
              HasSubstr("\n  c.yaml:2:1: unknown key 'trainin'; did you mean 'training'?\n"));
  EXPECT_THAT(outcome.err, HasSubstr("\n  command line: training.max_steps=abc: "
                                     "'training.max_steps' must be an integer, got 'abc'.\n"));
  EXPECT_EQ(tapestry("train none.yaml").code, 2);
}

TEST_F(CliTest, EvaluatesATranslation) {
  write("hyp", "the cat sat on the mat\nhello world\n");
  write("ref", "the cat sat on the mat\nHello world\n");
  const Outcome cased = tapestry("evaluate --hypothesis hyp --reference ref");
  EXPECT_EQ(cased.code, 0) << cased.err;
  EXPECT_THAT(cased.out, StartsWith("BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:"));
  EXPECT_THAT(cased.out, HasSubstr("\nchrF2|nrefs:1|case:mixed|"));
  const Outcome piped =
      tapestry("evaluate --hypothesis - --reference ref --lowercase --tokenize none --json <hyp");
  EXPECT_EQ(piped.code, 0) << piped.err;
  const auto json = nlohmann::json::parse(piped.out);
  EXPECT_NEAR(json["bleu"]["score"].get<double>(), 100, 1e-9);
  EXPECT_NEAR(json["chrf"]["score"].get<double>(), 100, 1e-9);
  EXPECT_EQ(json["sentences"], 2);
}

TEST_F(CliTest, EvaluatesByTheMetricsAskedFor) {
  write("hyp", "the cat sat\n");
  write("ref", "the cat\n");
  const Outcome rouge = tapestry("evaluate --hypothesis hyp --reference ref --metrics rouge");
  EXPECT_EQ(rouge.code, 0) << rouge.err;
  EXPECT_THAT(rouge.out, StartsWith("ROUGE|nrefs:1|case:lc|stem:no|version:"));
  EXPECT_THAT(rouge.out, HasSubstr(" = 1: 80.00 (P = 66.67 R = 100.00) 2: 66.67 ("));
  EXPECT_EQ(std::count(rouge.out.begin(), rouge.out.end(), '\n'), 1);
  const Outcome all =
      tapestry("evaluate --hypothesis hyp --reference ref --metrics rouge,bleu,chrf --json");
  const auto json = nlohmann::json::parse(all.out);
  EXPECT_NEAR(json["rouge"]["rouge_2"]["f"].get<double>(), 200.0 / 3, 1e-9);
  EXPECT_TRUE(json.contains("bleu") && json.contains("chrf"));
  EXPECT_EQ(json["sentences"], 1);
  EXPECT_EQ(tapestry("evaluate --hypothesis hyp --reference ref --metrics meteor").code, 2);
}

TEST_F(CliTest, DataErrorsAreExitCodeThree) {
  write("two", "a\nb\n");
  write("three", "a\nb\nc\n");
  const Outcome outcome = tapestry("evaluate --hypothesis two --reference three");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("2"));
  EXPECT_THAT(outcome.err, HasSubstr("3"));
  EXPECT_EQ(tapestry("evaluate --hypothesis none --reference three").code, 3);
  EXPECT_EQ(tapestry("inspect .").code, 3);
  EXPECT_EQ(tapestry("translate --model . </dev/null").code, 3);
}

TEST_F(CliTest, AFullDiskBehindStdoutIsAnError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  write("a", "a\n");
  const std::string command =
      concat("'", tapestry_binary(), "' evaluate --hypothesis '", path("a"), "' --reference '",
             path("a"), "' >/dev/full 2>'", path("err"), "'");
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
  EXPECT_EQ(read_file(path("err")), "error: cannot write to stdout.\n");
}

TEST_F(CliTest, AveragesInDouble) {
  // In float the first sum rounds 1 away: 2^24 + 1 is no float.
  const std::string a = checkpoint("a", {16777216, 1});
  const std::string b = checkpoint("b", {1, 2});
  const std::string c = checkpoint("c", {1, 6});
  const Outcome outcome = tapestry("average a b c --output mean");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  const CheckpointFiles mean = read_checkpoint(path("mean"));
  EXPECT_EQ(mean.at("tokenizer.model"), "pieces");
  EXPECT_EQ(mean.at("config.json"), "{}");
  EXPECT_FALSE(mean.contains("optimizer.safetensors"));
  const NamedTensors tensors = parse_safetensors(mean.at("model.safetensors"), "mean");
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors[0].first, "w");
  EXPECT_EQ(tensors[0].second.to_vector<float>(),
            (std::vector<float>{static_cast<float>(16777218.0 / 3), 3}));
}

TEST_F(CliTest, AveragesBfloat16) {
  const auto write = [&](const char* name, float value) {
    const Tensor tensor = Tensor::from<float>({value, 1}, {2}).to(DType::kBFloat16);
    write_checkpoint(path(name), {{"model.safetensors", safetensors_bytes({{"w", tensor}})},
                                  {"config.json", "{}"}});
  };
  write("a", 1);
  write("b", 2);
  const Outcome outcome = tapestry("average a b --output mean");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const NamedTensors tensors =
      parse_safetensors(read_checkpoint(path("mean")).at("model.safetensors"), "mean");
  EXPECT_EQ(tensors.at(0).second.dtype(), DType::kBFloat16);
  EXPECT_EQ(tensors.at(0).second.to_vector<float>(), (std::vector<float>{1.5f, 1}));
}

TEST_F(CliTest, AverageRefusesWhatDoesNotFit) {
  checkpoint("a", {1, 2});
  checkpoint("shape", {1, 2, 3});
  checkpoint("words", {1, 2}, "other pieces");
  write_checkpoint(path("names"),
                   {{"model.safetensors", safetensors_bytes({{"v", Tensor::zeros({2})}})},
                    {"tokenizer.model", "pieces"},
                    {"config.json", "{}"}});
  write_checkpoint(path("empty"), {{"config.json", "{}"}});
  const auto error_of = [&](const std::string& other) {
    const Outcome outcome = tapestry("average a " + other + " --output mean");
    EXPECT_EQ(outcome.code, 3);
    EXPECT_FALSE(fs::exists(path("mean")));
    return outcome.err;
  };
  EXPECT_EQ(error_of("shape"), "error: [average] w is float32 (3) in shape, float32 (2) in a.\n");
  EXPECT_EQ(error_of("names"), "error: [average] names has v where a has w.\n");
  EXPECT_EQ(error_of("empty"), "error: [average] empty has no model.safetensors.\n");
  EXPECT_EQ(error_of("words"),
            "error: [average] tokenizer.model differs between a and words: ids would not mean the "
            "same tokens.\n");
  EXPECT_THAT(error_of("none"), HasSubstr("none is neither a checkpoint nor a run folder"));
}

TEST_F(CliTest, AverageOverwritesOnlyMeans) {
  checkpoint("a", {1});
  checkpoint("trained", {2});
  fs::create_directories(path("thesis"));
  write("thesis/chapter1", "years of work");
  EXPECT_EQ(tapestry("average a --output thesis").code, 2);
  EXPECT_EQ(read_file(path("thesis/chapter1")), "years of work");
  const Outcome outcome = tapestry("average a --output trained");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("trained is a checkpoint that no average made"));
  EXPECT_EQ(tapestry("average a --output mean").code, 0);
  EXPECT_EQ(tapestry("average a --output mean").code, 0);
}

TEST_F(CliTest, GradcheckPrintsATableAndJudges) {
  const Outcome outcome = tapestry("gradcheck --filter softmax");
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("softmax"));
  EXPECT_EQ(tapestry("gradcheck --filter no-such-row").code, 2);
}

TEST_F(CliTest, NumbersOutsideTheirBoundsAreToldWithThem) {
  const std::string config = write("c.yaml", "task: clm\n");
  const std::pair<std::string, std::string> wrong[] = {
      {"train c.yaml --stop-at 0", "--stop-at: must be at least 1, got 0."},
      {"train c.yaml --stop-at 2.5", "--stop-at: must be an integer, got '2.5'."},
      {"train c.yaml --stop-at 99999999999999999999",
       "must be an integer, got '99999999999999999999'."},
      {"bench c.yaml --steps x", "--steps: must be an integer, got 'x'."},
      {"translate --model x --threads 2000", "--threads: must be in [0, 1024], got 2000."},
      {"sweep c.yaml seed=1,2 --output o --seed -1", "--seed: must be at least 0, got -1."},
      {"translate --model x --seed -1", "--seed: must be at least 0, got -1."},
      {"classify --model x --threshold nan", "--threshold: must be in [0, 1], got nan."}};
  for (const auto& [arguments, message] : wrong) {
    const Outcome outcome = tapestry(arguments + " </dev/null");
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

}  // namespace
}  // namespace tapestry
