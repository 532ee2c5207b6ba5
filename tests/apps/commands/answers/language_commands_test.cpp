// What the binary does with models of text: fill-mask, classify, score and evaluate on tiny
// trained models. generate has a file of its own.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "apps/checkpoint/model_bundle.h"
#include "tests/apps/commands/answers/language_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Json = nlohmann::json;
using Lines = std::vector<std::string>;

class LanguageCommandsTest : public LanguageRuns {};

// fill-mask

TEST_F(LanguageCommandsTest, FillMaskGuessesAtEachMask) {
  const Lines lines = lines_of(folder_->output(concat("fill-mask ", model("mlm"), "--top-k 3"),
                                               "ba <mask> di\n\nba ce\n<mask> <mask>\n"));
  ASSERT_EQ(lines.size(), 4u);
  const auto read = [](const std::string& guesses) {
    std::istringstream in(guesses);
    std::vector<double> probabilities;
    std::string word;
    for (double probability = 0; in >> word >> probability;) probabilities.push_back(probability);
    return probabilities;
  };
  const std::vector<double> probabilities = read(lines[0]);
  ASSERT_EQ(probabilities.size(), 3u) << lines[0];
  EXPECT_GE(probabilities[0], probabilities[1]);
  EXPECT_GE(probabilities[1], probabilities[2]);
  EXPECT_EQ(lines[1], "");
  EXPECT_EQ(lines[2], "");
  const size_t bar = lines[3].find(" | ");
  ASSERT_NE(bar, std::string::npos);
  EXPECT_EQ(read(lines[3].substr(0, bar)).size(), 3u);
  EXPECT_EQ(read(lines[3].substr(bar + 3)).size(), 3u);
}

TEST_F(LanguageCommandsTest, FillMaskGivesAllOfTheProbability) {
  const std::string line =
      folder_->output(concat("fill-mask ", model("mlm"), "--top-k 1000"), "ba <mask> di\n");
  std::istringstream in(line);
  std::string word;
  double sum = 0;
  int count = 0;
  for (double probability = 0; in >> word >> probability; ++count) sum += probability;
  EXPECT_EQ(count, 40);
  EXPECT_NEAR(sum, 1, 40 * 0.5e-4);
}

// One long line must not cost those behind it: all commands cut it, and say so.
TEST_F(LanguageCommandsTest, FillMaskCutsLongLinesAndSaysSo) {
  std::string longer = "ba <mask>";
  for (int i = 0; i < 20; ++i) longer += " ce";
  const auto outcome =
      folder_->run(concat("fill-mask ", model("mlm")), "ba <mask>\n" + longer + "\nba <mask>\n");
  EXPECT_EQ(outcome.code, 0);
  const Lines lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], lines[2]);
  EXPECT_NE(lines[1], "");
  EXPECT_THAT(outcome.err, StartsWith("warning: line 2 of "));
  EXPECT_THAT(outcome.err, HasSubstr(" tokens is cut to its first "));
}

// classify

TEST_F(LanguageCommandsTest, ClassifyNamesTheClassOfEachLine) {
  const Lines lines = lines_of(folder_->output(concat("classify ", model("classification")),
                                               "ba ce di\n\nlo ba ce\n  \nmu\n"));
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[1], "");
  EXPECT_EQ(lines[3], "");
  for (const size_t i : {0, 2, 4}) {
    const size_t tab = lines[i].find('\t');
    EXPECT_EQ(lines[i].substr(0, tab), i == 0 ? "early" : "late") << lines[i];
    const double probability = std::stod(lines[i].substr(tab + 1));
    EXPECT_GE(probability, 0.5);
    EXPECT_LE(probability, 1);
  }
}

TEST_F(LanguageCommandsTest, ClassifyAgreesWithTheValidation) {
  std::string texts;
  Lines labels;
  for (const std::string& line : lines_of(read_file(folder_->path("valid.tsv")))) {
    const size_t tab = line.find('\t');
    labels.push_back(line.substr(0, tab));
    texts += concat(line.substr(tab + 1), '\n');
  }
  const std::string last = model("classification");
  const Lines lines = lines_of(folder_->output("classify --model classification/last", texts));
  ASSERT_EQ(lines.size(), labels.size());
  int right = 0;
  for (size_t i = 0; i < lines.size(); ++i) right += lines[i].starts_with(concat(labels[i], '\t'));
  EXPECT_NEAR(100.0 * right / static_cast<double>(lines.size()),
              folder_->metrics("classification").back().at("accuracy").get<double>(), 1e-6);
}

TEST_F(LanguageCommandsTest, ClassifyCutsLongLinesAndSaysSo) {
  std::string longer = "ba";
  for (int i = 0; i < 20; ++i) longer += " ce";
  const auto outcome = folder_->run(concat("classify ", model("classification")), longer + "\nba");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 2);
  EXPECT_THAT(outcome.err, StartsWith("warning: line 1 of "));
  EXPECT_THAT(outcome.err, HasSubstr(" tokens is cut to its first 14.\n"));
}

// score

/// "log-probability<tab>tokens" of each line.
std::vector<std::pair<double, int>> scores_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::pair<double, int>> scores;
  for (std::pair<double, int> score; in >> score.first >> score.second;) scores.push_back(score);
  return scores;
}

TEST_F(LanguageCommandsTest, ScoreIsTheSumOfLogProbabilities) {
  model("clm");
  const auto bundle = TextModel::load(folder_->path("clm"), "cpu", "test", kContinuesText);
  folder_->write("lines", "ba ce di\n\nmu lo\n");
  const auto scores = scores_of(folder_->output("score --model clm --target lines"));
  ASSERT_EQ(scores.size(), 3u);
  const Lines lines = {"ba ce di", "", "mu lo"};
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<int32_t> ids = bundle->tokenizers.source->encode(lines[i]);
    ids.insert(ids.begin(), kEosId);
    const auto count = static_cast<int64_t>(ids.size());
    const Var logits = bundle->model.logits(bundle->model.hidden(Tensor::from(ids, {1, count})));
    const auto values = logits.value().to_vector<float>();
    ids.push_back(kEosId);
    double sum = 0;
    for (int64_t t = 0; t < count; ++t) {
      double all = 0;
      for (int64_t v = 0; v < 40; ++v) all += std::exp(double(values[t * 40 + v]));
      sum += double(values[t * 40 + ids[t + 1]]) - std::log(all);
    }
    EXPECT_EQ(scores[i].second, count);
    EXPECT_NEAR(scores[i].first, sum, 1e-4) << lines[i];
  }
}

TEST_F(LanguageCommandsTest, ScoreOfOneDocumentIsWhatEvaluateSums) {
  model("characters");
  folder_->write("line", "ba ce di mu");
  const auto scores = scores_of(folder_->output("score --model characters --target line"));
  const Json quality =
      Json::parse(folder_->output("evaluate --model characters --text line --json"));
  ASSERT_EQ(scores.size(), 1u);
  EXPECT_EQ(scores[0].second, 10);  // all but the first
  EXPECT_EQ(quality.at("tokens"), 10);
  EXPECT_NEAR(scores[0].first, -10 * quality.at("nll").get<double>(), 1e-4);
}

TEST_F(LanguageCommandsTest, ScoreCutsLongLinesAndSaysSo) {
  folder_->write("long", "ba\nba ce di fo gu ha\n");
  const auto outcome = folder_->run(concat("score ", model("characters"), "--target long"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;  // 17 characters, 16 of them predicted
  folder_->write("long", "ba\nba ce di fo gu ha je\nba\n");
  const auto longer = folder_->run(concat("score ", model("characters"), "--target long"));
  EXPECT_EQ(longer.code, 0);
  const Lines lines = lines_of(longer.out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], lines[2]);
  EXPECT_EQ(lines[1], lines_of(outcome.out)[1]);
  const std::string note =
      "note: this model knows no beginning of a text: the first token of a line is only read, and "
      "has no score\n";
  EXPECT_EQ(longer.err, note + "warning: line 2 of 20 tokens is cut to its first 17.\n");
  folder_->write("bad", "ba\n\xff\n");
  EXPECT_EQ(folder_->run(concat("score ", model("characters"), "--target bad")).err,
            note +
                "warning: 1 line is not UTF-8 (first line 2 at byte 1): the answer is that of an "
                "empty line.\n");
}

// evaluate

TEST_F(LanguageCommandsTest, EvaluateGivesTheFiguresOfTheValidation) {
  for (const std::string task : {"clm", "characters", "mlm"}) {
    model(task);
    const Json valid = folder_->metrics(task).back();
    ASSERT_EQ(valid.at("kind"), "valid");
    const Json quality = Json::parse(
        folder_->output(concat("evaluate --model ", task, "/last --text valid.src --json")));
    EXPECT_DOUBLE_EQ(quality.at("nll").get<double>(), valid.at("nll").get<double>()) << task;
    EXPECT_DOUBLE_EQ(quality.at("perplexity").get<double>(), valid.at("ppl").get<double>());
    EXPECT_DOUBLE_EQ(quality.at("accuracy").get<double>(), valid.at("accuracy").get<double>());
    if (task == "mlm") {
      EXPECT_FALSE(quality.contains("bits_per_character"));
      continue;
    }
    EXPECT_NEAR(quality.at("bits_per_character").get<double>(),
                quality.at("nll").get<double>() * quality.at("tokens").get<double>() /
                    std::log(2.0) / quality.at("characters").get<double>(),
                1e-9);
  }
}

TEST_F(LanguageCommandsTest, EvaluateCountsCharactersAndTokens) {
  const std::string text = read_file(folder_->path("valid.src"));
  const Json quality = Json::parse(
      folder_->output(concat("evaluate ", model("characters"), "--text valid.src --json")));
  EXPECT_EQ(quality.at("characters").get<size_t>(), text.size());
  EXPECT_EQ(quality.at("tokens").get<size_t>(), text.size() - 1);
  // As lines, each is a document with an eos between.
  const Json lines = Json::parse(folder_->output(
      concat("evaluate ", model("characters"), "--text valid.src --documents lines --json")));
  EXPECT_EQ(lines.at("characters").get<size_t>(), text.size() - 20);
  EXPECT_EQ(lines.at("tokens").get<size_t>(), text.size() - 2);
}

TEST_F(LanguageCommandsTest, EvaluateSaysTheSameInWords) {
  const std::string text = folder_->output(concat("evaluate ", model("clm"), "--text valid.src"));
  const Json json =
      Json::parse(folder_->output(concat("evaluate ", model("clm"), "--text valid.src --json")));
  for (const auto& [name, digits] :
       {std::pair{"nll", 4}, {"perplexity", 4}, {"accuracy", 2}, {"bits_per_byte", 4}}) {
    std::string words = fmt::format("{} {:.{}f}", name, json[name].get<double>(), digits);
    if (json["intervals"].contains(name)) {
      words += fmt::format(" ({:.{}f} to {:.{}f})", json["intervals"][name][0].get<double>(),
                           digits, json["intervals"][name][1].get<double>(), digits);
    }
    std::ranges::replace(words, '_', ' ');
    EXPECT_THAT(text, HasSubstr(words));
  }
  for (const char* name : {"tokens", "characters"}) {
    EXPECT_THAT(text, HasSubstr(concat("  ", name, ' ', json[name].get<long long>(), "  ")));
  }
}

// Of several batches; one tells nothing of how much they differ.
TEST_F(LanguageCommandsTest, EvaluateTellsHowSureItIs) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += read_file(folder_->path("valid.src"));
  folder_->write("long.txt", text);
  const Json long_text =
      Json::parse(folder_->output(concat("evaluate ", model("clm"), "--text long.txt --json")));
  for (const char* name : {"nll", "perplexity", "accuracy"}) {
    const double value = long_text.at(name);
    EXPECT_LT(long_text.at("intervals").at(name).at(0), value) << name;
    EXPECT_GT(long_text.at("intervals").at(name).at(1), value) << name;
  }
  folder_->write("short.txt", "ba ce di mu\n");
  const Json short_text =
      Json::parse(folder_->output(concat("evaluate ", model("clm"), "--text short.txt --json")));
  EXPECT_FALSE(short_text.contains("intervals")) << short_text;
}

// The log-probability of each token, and those of overlapping blocks.
TEST_F(LanguageCommandsTest, AStrideGivesEachTokenWhatStandsBeforeIt) {
  const std::string text = "ba ce di mu";
  folder_->write("one.txt", text);
  const auto by_token = [&](const std::string& piece) {
    folder_->write("piece.txt", piece);
    const Json scored = Json::parse(
        folder_->output(concat("score ", model("characters"), "--tokens --target piece.txt")));
    const auto each = scored.at("token_log_probabilities").get<std::vector<double>>();
    EXPECT_NEAR(std::accumulate(each.begin(), each.end(), 0.0), scored.at("log_probability"), 1e-9);
    EXPECT_EQ(scored.at("tokens").size(), piece.size() - 1);
    EXPECT_EQ(each.size(), piece.size() - 1);
    return each;
  };
  const auto nll_of = [&](const std::string& options) {
    return Json::parse(folder_->output(concat("evaluate ", model("characters"),
                                              "--text one.txt --json ", options)))
        .at("nll")
        .get<double>();
  };
  const std::vector<double> whole = by_token(text);
  const auto count = static_cast<double>(whole.size());
  EXPECT_NEAR(nll_of("--block-size 16"), -std::accumulate(whole.begin(), whole.end(), 0.0) / count,
              1e-6);
  double sum = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    const size_t begin = i < 5 ? 0 : i - 4;
    sum += by_token(text.substr(begin, i - begin + 1)).back();
  }
  EXPECT_NEAR(nll_of("--block-size 4 --stride 1"), -sum / count, 1e-6);
  EXPECT_NE(nll_of("--block-size 4 --stride 1"), nll_of("--block-size 4"));
  // What cannot be.
  for (const char* options : {"--block-size 4 --stride 5", "--block-size 100000"}) {
    EXPECT_NE(
        folder_->run(concat("evaluate ", model("characters"), "--text one.txt ", options)).code, 0);
  }
  EXPECT_NE(folder_->run(concat("evaluate ", model("mlm"), "--text one.txt --stride 2")).code, 0);
}

// Attention

TEST_F(LanguageCommandsTest, EveryCommandShowsTheAttentionOfItsModel) {
  folder_->write("lines", "ba ce di\n\nmu lo\n");
  const struct {
    const char* command;
    const char* task;
    const char* input;
    const char* first_token;
  } commands[] = {
      {"generate --max-new-tokens 3", "clm", "ba ce\n\nmu\n", "</s>"},
      {"generate --max-new-tokens 40", "characters", "ba\nba ce\n", "b"},
      {"score --target lines", "clm", "", "</s>"},
      {"fill-mask", "mlm", "ba <mask> di\nce\n", "<s>"},
      {"classify", "classification", "ba ce\n\nmu\n", "<s>"},
  };
  for (const auto& [command, task, input, first_token] : commands) {
    SCOPED_TRACE(command);
    const std::string plain = concat(command, ' ', model(task));
    EXPECT_EQ(folder_->output(plain + "--attention a.json", input), folder_->output(plain, input));
    const Json pages = Json::parse(read_file(folder_->path("a.json"))).at("pages");
    EXPECT_GE(pages.size(), 2u);
    for (const Json& page : pages) {
      const Json& tokens = page.at("axes").at(0).at("tokens");
      EXPECT_EQ(tokens.at(0), first_token);
      EXPECT_LE(tokens.size(), 16u) << "the model's positions";
      ASSERT_EQ(page.at("maps").size(), 1u);
      const Json& map = page["maps"][0];
      EXPECT_EQ(map.at("name"), "layer 1, self-attention");
      ASSERT_EQ(map.at("heads").size(), 2u);
      const bool causal = std::string(task) == "clm" || std::string(task) == "characters";
      for (const Json& head : map["heads"]) {
        ASSERT_EQ(head.size(), tokens.size());
        for (size_t t = 0; t < head.size(); ++t) {
          ASSERT_EQ(head[t].size(), tokens.size());
          double sum = 0;
          for (size_t s = 0; s < head.size(); ++s) {
            const double weight = head[t][s];
            if (causal && s > t) {
              EXPECT_EQ(weight, 0);
            }
            sum += weight;
          }
          EXPECT_NEAR(sum, 1, 1e-4);
        }
      }
    }
  }
}

// What goes wrong

TEST_F(LanguageCommandsTest, AModelOfAnotherTaskIsRefused) {
  const struct {
    const char* command;
    const char* task;
    const char* who;
    const char* needed;
  } wrong[] = {
      {"generate", "mlm", "generate", "clm or preference"},
      {"generate", "classification", "generate", "clm or preference"},
      {"fill-mask", "clm", "fill-mask", "mlm or denoising"},
      {"classify", "mlm", "classify", "classification"},
      {"score --target valid.src", "mlm", "score without --source", "clm or preference"},
      {"score --target valid.src", "translation", "score without --source", "clm or preference"},
      {"score --source valid.src --target valid.tgt", "clm", "score with --source",
       "translation or denoising"},
      {"evaluate --text valid.src", "classification", "evaluate --text",
       "clm or preference or mlm"},
      {"evaluate --text valid.src", "translation", "evaluate --text", "clm or preference or mlm"},
      {"translate", "clm", "translate", "translation or denoising"},
  };
  for (const auto& [command, task, who, needed] : wrong) {
    const auto outcome = folder_->run(concat(command, ' ', model(task)), "ba\n");
    EXPECT_EQ(outcome.code, 3) << command << ' ' << task;
    EXPECT_EQ(outcome.out, "") << command;
    EXPECT_EQ(outcome.err, concat("error: [", who, "] expected a model of task ", needed, ", ",
                                  task, "/best holds one of task ", task, ".\n"));
  }
}

TEST_F(LanguageCommandsTest, WrongUsageIsExitCodeTwoAndWrongDataThree) {
  model("clm");
  for (const char* arguments :
       {"generate", "generate --model clm --detail xml", "fill-mask --model clm --top-k 0",
        "classify", "score --model clm", "evaluate", "evaluate --model clm",
        "evaluate --text valid.src", "evaluate --model clm --text valid.src --documents words",
        "evaluate --model clm --text valid.src --hypothesis valid.src --reference valid.src"}) {
    const auto outcome = folder_->run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_THAT(outcome.err, StartsWith("error: ")) << arguments;
  }
  for (const char* arguments :
       {"generate --model .", "fill-mask --model nowhere", "score --model clm --target nowhere",
        "evaluate --model clm --text nowhere", "evaluate --model clm --text /dev/null"}) {
    const auto outcome = folder_->run(arguments);
    EXPECT_EQ(outcome.code, 3) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_THAT(outcome.err, StartsWith("error: ")) << arguments;
  }
  const auto outcome = folder_->run("generate --ill-formed error --model clm", "ba\n\xff\n");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(
      outcome.err,
      "error: [generate] line 2 is not UTF-8 at byte 1; --ill-formed empty answers it like an "
      "empty one.\n");
}

// Configs of models of text

TEST_F(LanguageCommandsTest, BenchTakesRowsAndTokens) {
  folder_->output(
      "bench clm.yaml --shape 4x12 --steps 2 --warmup-steps 1 --json figures model.dropout=0");
  const Json figures = Json::parse(read_file(folder_->path("figures")));
  EXPECT_GT(figures.at("tokens_per_s").get<double>(), 0);
  EXPECT_GT(figures.at("gflops").get<double>(), 0);
  for (const char* shape : {"4x12x12", "4", "0x12", "x"}) {
    const auto outcome = folder_->run(concat("bench clm.yaml --shape ", shape));
    EXPECT_EQ(outcome.code, 2) << shape;
    EXPECT_EQ(outcome.err,
              concat("error: [bench] --shape must be ROWSxTOKENS, got '", shape, "'.\n"));
  }
  const auto outcome = folder_->run("bench mlm.yaml --shape 4x12");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, StartsWith("error: [bench] --shape has no batches for task mlm"));
}

TEST_F(LanguageCommandsTest, GradcheckTakesAConfigOfEachTask) {
  for (const auto& [name, config] : kTinyTasks) {
    const std::string out =
        folder_->output(concat("gradcheck ", name, ".yaml --filter 'model of '"));
    EXPECT_THAT(out, HasSubstr(concat("model of ", name, ".yaml")));
    EXPECT_THAT(out, HasSubstr("1 of 1 gradients are right\n"));
  }
}

}  // namespace
}  // namespace tapestry
