// What `tapestry generate` does with tiny trained models.
#include <gmock/gmock.h>

#include <set>

#include "apps/checkpoint/model_bundle.h"
#include "tests/apps/commands/answers/language_runs.h"

namespace tapestry {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;
using Json = nlohmann::json;
using Lines = std::vector<std::string>;

class GenerateTest : public LanguageRuns {
 protected:
  static std::string generate(const std::string& options, const std::string& input = "",
                              const std::string& task = "clm") {
    return folder_->output(concat("generate ", model(task), options), input);
  }
};

bool made_of_words(const std::string& text) {
  static const std::set<std::string> kWords = {"ba", "ce", "di", "fo", "gu",
                                               "ha", "je", "ki", "lo", "mu"};
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    if (!kWords.contains(word)) return false;
  }
  return true;
}

TEST_F(GenerateTest, ContinuesAPrompt) {
  const Lines lines = lines_of(generate("--prompt 'ba ce'"));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], StartsWith("ba ce"));
}

TEST_F(GenerateTest, AnswersEachLineWithOneLine) {
  const std::string input = "ba ce\nfo\nki lo mu\n";
  const Lines lines = lines_of(generate("", input));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], StartsWith("ba ce"));
  EXPECT_THAT(lines[1], StartsWith("fo"));
  EXPECT_THAT(lines[2], StartsWith("ki lo mu"));
  EXPECT_EQ(generate("", ""), "");
}

TEST_F(GenerateTest, WritesLineEndsInsideALineAsTwoCharacters) {
  const Lines lines =
      lines_of(generate("--max-new-tokens 60 --seed 3", "ba ce\nfo\n", "characters"));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines, Each(HasSubstr("\\n")));
  // A prompt's text is written as it is.
  const std::string text =
      generate("--max-new-tokens 60 --seed 3 --prompt 'ba ce'", "", "characters");
  EXPECT_GT(lines_of(text).size(), 1u);
}

TEST_F(GenerateTest, AnEmptyLineGivesAnEmptyLine) {
  const Lines lines = lines_of(generate("", "\nba\n\nce\n"));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "");
  EXPECT_THAT(lines[1], StartsWith("ba"));
  EXPECT_EQ(lines[2], "");
  EXPECT_THAT(lines[3], StartsWith("ce"));
}

TEST_F(GenerateTest, AnEmptyPromptBeginsADocument) {
  EXPECT_NE(generate("--prompt ''", ""), "\n");
  // One long document has no beginning that the model has seen.
  const auto outcome = folder_->run(concat("generate --prompt '' ", model("characters")), "");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.err,
            "error: [generate] the prompt is empty: a model of one long document needs one.\n");
}

TEST_F(GenerateTest, AnEmptyStopIsRefused) {
  const auto outcome = folder_->run(concat("generate --stop '' ", model("characters")), "ba\n");
  EXPECT_EQ(outcome.code, 2);
}

TEST_F(GenerateTest, TheSeedDecidesTheDraws) {
  const std::string options = "--prompt 'ba ce' --max-new-tokens 30 --samples 3 --temperature 2";
  const std::string one = generate(concat(options, " --seed 1")),
                    two = generate(concat(options, " --seed 2"));
  EXPECT_EQ(generate(concat(options, " --seed 1")), one);
  EXPECT_EQ(generate(concat(options, " --seed 1 --threads 2")), one);
  EXPECT_NE(one, two);
}

TEST_F(GenerateTest, SamplesDiffer) {
  const Lines lines = lines_of(generate("--samples 8 --max-new-tokens 20", "ba\nce\n"));
  ASSERT_EQ(lines.size(), 16u);
  for (size_t i = 0; i < 16; ++i) EXPECT_THAT(lines[i], StartsWith(i < 8 ? "ba" : "ce"));
  EXPECT_GT(std::set<std::string>(lines.begin(), lines.begin() + 8).size(), 4u);
}

// Their memory is bounded: 32 times the batch size are made at once.
TEST_F(GenerateTest, ManySamplesAreMadeInParts) {
  const Lines all = lines_of(generate("--samples 150 --max-new-tokens 3", "ba\nce\n"));
  ASSERT_EQ(all.size(), 300u);
  EXPECT_EQ(lines_of(generate("--samples 150 --max-new-tokens 3 --batch-size 2", "ba\nce\n")), all);
}

TEST_F(GenerateTest, TheBatchSizeChangesNothing) {
  const std::string input = "ba ce\nfo\nki lo mu ba ce di fo\nba ce\nha\n";
  for (const char* options :
       {"--samples 3", "--no-do-sample", "--beam-size 3 --n-best 2", "--max-new-tokens 40"}) {
    const std::string all = generate(options, input);
    for (const char* size : {" --batch-size 1", " --batch-size 2", " --batch-size 7"}) {
      EXPECT_EQ(generate(concat(options, size), input), all) << options << size;
    }
  }
}

TEST_F(GenerateTest, WaysOfSearchingExcludeEachOther) {
  const std::string input = "ba ce\n";
  // The config samples; greedy search draws nothing, so that no seed changes it.
  const std::string greedy = generate("--no-do-sample", input);
  EXPECT_EQ(generate("--no-do-sample --seed 5", input), greedy);
  EXPECT_EQ(generate("--no-do-sample --beam-size 1", input), greedy);
  EXPECT_EQ(generate("--do-sample --top-k 1", input), greedy);
  EXPECT_EQ(generate("--temperature 0", input), greedy);
  const std::string beams = generate("--beam-size 4", input);
  EXPECT_EQ(generate("--beam-size 4 --no-do-sample --seed 5", input), beams);
  EXPECT_EQ(lines_of(generate("--beam-size 4 --n-best 4", input)).size(), 4u);
  EXPECT_EQ(lines_of(generate("--beam-size 4 --n-best 4", input))[0], lines_of(beams).at(0));
  for (const char* options :
       {"--do-sample --beam-size 4", "--no-do-sample --n-best 2", "--temperature -1", "--top-p 0",
        "--top-p 1.5", "--do-sample --no-do-sample --beam-size 0",
        "--min-new-tokens 5 --max-new-tokens 4", "--samples 0"}) {
    const auto outcome = folder_->run(concat("generate ", model("clm"), options), input);
    EXPECT_EQ(outcome.code, 2) << options;
    EXPECT_EQ(outcome.out, "") << options;
    EXPECT_THAT(outcome.err, StartsWith("error: ")) << options;
  }
}

TEST_F(GenerateTest, ASearchFindsMoreProbableTextWithMoreBeams) {
  const auto best = [&](const std::string& options) {
    const Json line = Json::parse(generate(
        options + " --detail jsonl --length-penalty-type none --max-new-tokens 6", "ba\n"));
    return line.at("continuations").at(0).at("log_probability").get<double>();
  };
  // The same text has another rounding among more rows.
  EXPECT_GE(best("--beam-size 16"), best("--no-do-sample") - 1e-6);
}

TEST_F(GenerateTest, AStopTextEndsAContinuationAndIsLeftOut) {
  const std::string options = "--max-new-tokens 60 --seed 3";
  const std::string prompt = "ba ce";
  const std::string whole =
      generate(concat(options, " --prompt '", prompt, "'"), "", "characters").substr(prompt.size());
  for (const std::string stop : {"\n", " ", "a", "o k"}) {
    const std::string expected = whole.find(stop) == std::string::npos
                                     ? whole
                                     : concat(whole.substr(0, whole.find(stop)), '\n');
    EXPECT_EQ(
        generate(concat(options, " --stop '", stop, "' --prompt '", prompt, "'"), "", "characters"),
        prompt + expected)
        << stop;
  }
  // The first of several.
  EXPECT_EQ(generate(concat(options, " --stop u --stop e --stop a --prompt '", prompt, "'"), "",
                     "characters"),
            concat(prompt, whole.substr(0, whole.find_first_of("uea")), '\n'));
}

TEST_F(GenerateTest, DetailsAreOneObjectALine) {
  const Lines lines = lines_of(
      generate("--detail jsonl --samples 2 --max-new-tokens 5 --min-new-tokens 2", "ba ce\n\"\n"));
  ASSERT_EQ(lines.size(), 4u);
  for (size_t i = 0; i < lines.size(); ++i) {
    const Json line = Json::parse(lines[i]);
    EXPECT_EQ(line.at("prompt"), i < 2 ? "ba ce" : "\"");
    ASSERT_EQ(line.at("continuations").size(), 1u);
    const Json& text = line["continuations"][0];
    EXPECT_LT(text.at("log_probability").get<double>(), 0);
    const size_t tokens = text.at("tokens").size();
    EXPECT_GE(tokens, 2u);
    EXPECT_LE(tokens, 5u);
    EXPECT_EQ(text.at("finished").get<bool>(), tokens < 5) << lines[i];
    const std::vector<double> values = text.at("token_log_probabilities");
    EXPECT_EQ(values.size(), tokens);
    EXPECT_EQ(text.at("end_log_probability").is_number(), text["finished"].get<bool>());
    double sum = text["finished"].get<bool>() ? text["end_log_probability"].get<double>() : 0;
    for (const double value : values) sum += value;
    EXPECT_NEAR(sum, text["log_probability"].get<double>(), 1e-9);
    std::string pieces;
    for (const std::string piece : text["tokens"]) {
      const bool word = piece.starts_with("▁");
      pieces += word ? concat(' ', piece.substr(3)) : piece;
    }
    EXPECT_EQ(pieces, text.at("text").get<std::string>());
  }
}

TEST_F(GenerateTest, TheModelHasLearntItsWords) {
  const Lines lines = lines_of(generate("--no-do-sample", "ba\nce\ndi\nfo\n"));
  ASSERT_EQ(lines.size(), 4u);
  for (const std::string& line : lines) EXPECT_TRUE(made_of_words(line)) << line;
}

TEST_F(GenerateTest, ATextMayOutgrowThePositions) {
  // 16 positions; eos would end the documents of the other model.
  const std::string text = generate("--prompt ba --max-new-tokens 100 --seed 2", "", "characters");
  EXPECT_EQ(text.size(), 2u + 100 + 1);
  // Without a limit the positions are one.
  EXPECT_EQ(generate("--prompt ba --max-new-tokens 0", "", "characters").size(), 2u + 15 + 1);
  const auto outcome = folder_->run(concat("generate ", model("characters"), "--max-new-tokens 5"),
                                    "ba\nba ce di fo gu ha\n");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "warning: line 2 of 17 tokens is cut to its last 11.\n");
  EXPECT_EQ(lines_of(outcome.out).size(), 2u);
}

// Rotary positions go on: a model of 16 writes and reads longer texts.
TEST_F(GenerateTest, RotaryPositionsAreNoLimit) {
  ASSERT_EQ(
      folder_->train("clm", "rope", {"training.max_steps=100", "model.position_embedding=rope"}), 0)
      << folder_->messages();
  const auto generated = [&](const std::string& options) {
    const Json line = Json::parse(folder_->output(
        concat("generate --model rope --prompt 'ba ce' --seed 1 --detail jsonl ", options)));
    return line.at("continuations").at(0);
  };
  const Json text = generated("--min-new-tokens 60 --max-new-tokens 60");
  EXPECT_EQ(text.at("tokens").size(), 60u);
  // The same text from the model without its cache.
  const auto model = TextModel::load(folder_->path("rope"), "cpu", "test", kContinuesText);
  std::vector<int32_t> ids = {kEosId};
  for (const int32_t id : model->tokenizers.source->encode("ba ce")) ids.push_back(id);
  const size_t prompt = ids.size();
  for (const std::string piece : text.at("tokens")) {
    for (int32_t id = 0; id < model->tokenizers.source->vocab_size(); ++id) {
      if (model->tokenizers.source->piece(id) == piece) ids.push_back(id);
    }
  }
  ASSERT_EQ(ids.size(), prompt + 60);
  const auto count = static_cast<int64_t>(ids.size());
  const Var logits = model->model.logits(model->model.hidden(Tensor::from(ids, {1, count})));
  const auto values = log_softmax(logits).value().to_vector<float>();
  double sum = 0;
  for (size_t t = prompt; t < ids.size(); ++t) {
    sum += double(values[(t - 1) * 40 + static_cast<size_t>(ids[t])]);
  }
  EXPECT_NEAR(text.at("log_probability").get<double>(), sum, 1e-3);
  // Without a limit a text ends with the positions of the training, and needs room for itself.
  EXPECT_LE(generated("--max-new-tokens 0").at("tokens").size(), 16u - prompt + 1);
  std::string longer = "ba";
  for (int i = 0; i < 20; ++i) longer += " ce";
  folder_->write("long", longer + '\n');
  const auto outcome = folder_->run("generate --model rope --max-new-tokens 0", longer + '\n');
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("warning: line 1 of 21 tokens is cut to its last "));
  folder_->output("generate --model rope --max-new-tokens 5", longer + '\n');
  folder_->output("score --model rope --target long");
}

TEST_F(GenerateTest, CutsTheBeginningOfLongPrompts) {
  std::string longer;
  for (int i = 0; i < 20; ++i) longer += "ce ";
  const std::string input = "ba\n" + longer + "ba\nba\n";
  for (const std::string options : {"", "--max-new-tokens 4 ", "--samples 2 "}) {
    const auto outcome = folder_->run(concat("generate ", options, model("clm")), input);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const Lines lines = lines_of(outcome.out);
    ASSERT_EQ(lines.size(), options.starts_with("--samples") ? 6u : 3u);
    const std::string& answer = lines[lines.size() / 3];
    EXPECT_THAT(answer, StartsWith(longer + "ba"));
    EXPECT_GT(answer.size(), longer.size() + 2) << "no room was left for a continuation";
    EXPECT_THAT(outcome.err, StartsWith("warning: line 2 of "));
    EXPECT_THAT(outcome.err, HasSubstr(" tokens is cut to its last "));
    EXPECT_EQ(outcome.err.find("warning", 1), std::string::npos) << "told once";
  }
}

}  // namespace
}  // namespace tapestry
