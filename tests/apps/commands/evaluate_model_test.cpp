// tapestry evaluate --model: what it says agrees with what the other commands do on the same data.
#include <gmock/gmock.h>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class EvaluateModelTest : public testing::Test {
 protected:
  std::string model(const std::string& task) {
    EXPECT_EQ(folder_.train(task, task, {"training.max_steps=60"}), 0) << folder_.messages();
    return concat(" --model ", task, ' ');
  }
  Json evaluate(const std::string& arguments) const {
    return Json::parse(folder_.output(concat("evaluate --json ", arguments)));
  }

  TinyRunFolder folder_{"evaluate"};
};

TEST_F(EvaluateModelTest, AClassifierCountsWhatClassifySays) {
  const std::string run = model("classification");
  const Json figures = evaluate(concat(run, "--data valid.tsv"));
  std::string texts;
  std::vector<std::string> labels;
  for (const std::string& line : lines_of(read_file(folder_.path("valid.tsv")))) {
    labels.push_back(line.substr(0, line.find('\t')));
    texts += line.substr(line.find('\t') + 1) + '\n';
  }
  std::map<std::pair<std::string, std::string>, int> confusion;
  const auto said = lines_of(folder_.output(concat("classify", run), texts));
  ASSERT_EQ(said.size(), labels.size());
  for (size_t i = 0; i < said.size(); ++i) {
    ++confusion[{labels[i], said[i].substr(0, said[i].find('\t'))}];
  }
  const Json& classes = figures.at("classes");
  for (size_t t = 0; t < 2; ++t) {
    for (size_t p = 0; p < 2; ++p) {
      EXPECT_EQ(figures.at("confusion")[t][p],
                (confusion[{classes[t].at("name"), classes[p].at("name")}]));
    }
  }
  EXPECT_EQ(figures.at("texts"), 20);
  EXPECT_EQ(evaluate(concat(run, "--data valid")), figures);
  EXPECT_EQ(evaluate(concat(run, "--data tsv=valid.tsv --data label_column=1")), figures);
  std::string records;
  for (size_t i = 0; i < labels.size(); ++i) {
    records += Json{{"label", labels[i]}, {"text", lines_of(texts)[i]}}.dump() + '\n';
  }
  folder_.write("labelled.jsonl.gz", gzip(records));
  EXPECT_EQ(evaluate(concat(run, "--data labelled.jsonl.gz")), figures);
  EXPECT_EQ(evaluate(concat(run, "--jsonl labelled.jsonl.gz")), figures);
  const std::string text = folder_.output(concat("evaluate", run, "--data valid.tsv"));
  EXPECT_THAT(text,
              testing::ContainsRegex("^nll [^a-z]+(to [^a-z]+)?accuracy [0-9.]+ [(][0-9.]+ to "
                                     "[0-9.]+[)] %  macro f1 [0-9.]+ %  "
                                     "weighted f1 [0-9.]+ %  texts 20\n"));
  EXPECT_THAT(text, HasSubstr("class  precision  recall      f1  examples\nearly  "));
  EXPECT_THAT(text, HasSubstr("confusion: "));
}

TEST_F(EvaluateModelTest, ATranslatorScoresWhatTranslateWrites) {
  const std::string run = model("translation");
  const Json figures = evaluate(concat(run, "--data source=valid.src --data target=valid.tgt"));
  const std::string source = read_file(folder_.path("valid.src"));
  folder_.write("hypotheses", folder_.output(concat("translate --beam-size 1", run), source));
  const Json scores = evaluate("--hypothesis hypotheses --reference valid.tgt");
  EXPECT_EQ(figures.at("bleu"), scores.at("bleu").at("score"));
  EXPECT_EQ(figures.at("chrf"), scores.at("chrf").at("score"));
  EXPECT_EQ(figures.at("sentences"), 20);
  double sum = 0, tokens = 0;
  for (const std::string& line :
       lines_of(folder_.output(concat("score --source valid.src --target valid.tgt", run)))) {
    sum += std::stod(line);
    tokens += std::stod(line.substr(line.find('\t') + 1));
  }
  EXPECT_NEAR(figures.at("nll").get<double>(), -sum / tokens, 1e-4);
}

// What packed weights lose, by one command: the BLEU of what `translate` writes with them, and the
// log-probabilities of `score`.
TEST_F(EvaluateModelTest, WeightsAreRoundedAsAnswersRoundThem) {
  const std::string run = model("translation"), data = "--data source=valid.src target=valid.tgt";
  const std::string source = read_file(folder_.path("valid.src"));
  std::map<std::string, double> losses;
  for (const WeightFormat format : kWeightFormats) {
    const std::string weights = concat(" --weights ", name_of(format), ' ');
    SCOPED_TRACE(weights);
    const Json figures = evaluate(concat(run, data, weights));
    folder_.write("hypotheses",
                  folder_.output(concat("translate --beam-size 1", run, weights), source));
    const Json scores = evaluate("--hypothesis hypotheses --reference valid.tgt");
    EXPECT_EQ(figures.at("bleu"), scores.at("bleu").at("score"));
    double sum = 0, tokens = 0;
    for (const std::string& line : lines_of(
             folder_.output(concat("score --source valid.src --target valid.tgt", run, weights)))) {
      sum += std::stod(line);
      tokens += std::stod(line.substr(line.find('\t') + 1));
    }
    losses[name_of(format)] = figures.at("nll").get<double>();
    EXPECT_NEAR(losses[name_of(format)], -sum / tokens, 2e-6);
  }
  EXPECT_EQ(evaluate(concat(run, data)).at("nll").get<double>(), losses["float32"]);
  for (const char* rounded : {"bfloat16", "int8", "int4"}) {
    EXPECT_GT(std::abs(losses[rounded] - losses["float32"]), 5e-6) << rounded;
  }
  // Of a model that learnt for a format it is the other one that has to be asked for.
  ASSERT_EQ(folder_.train("clm", "learnt", {"training.max_steps=5", "training.quantize=int4"}), 0);
  const auto nll = [&](const std::string& weights) {
    return evaluate(concat("--model learnt --data valid ", weights)).at("nll").get<double>();
  };
  EXPECT_EQ(nll(""), nll("--weights int4"));
  EXPECT_NE(nll(""), nll("--weights float32"));
  ASSERT_EQ(folder_.train("clm", "adapters",
                          {"training.max_steps=5", "training.lora={rank: 2, target: [\"*\"]}"}),
            0);
  const auto outcome = folder_.run("evaluate --model adapters --data valid --weights int8");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("rounds merged weights, but adapters"));
}

TEST_F(EvaluateModelTest, SaysWhatItNeeds) {
  const std::string run = model("classification");
  const auto fails = [&](const std::string& arguments, int code) {
    const auto outcome = folder_.run(concat("evaluate", run, arguments));
    EXPECT_EQ(outcome.code, code) << arguments << '\n' << outcome.err;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_THAT(fails("", 2), HasSubstr("[evaluate] give --data"));
  EXPECT_THAT(fails("--data test", 2), HasSubstr("the model's config has no data.test."));
  EXPECT_THAT(fails("--data valid.src", 2),
              HasSubstr("--data must be train, valid, test, keys of"));
  EXPECT_THAT(fails("--data text=valid.src", 2), HasSubstr("unknown key 'text'"));
  EXPECT_THAT(fails("--data nowhere.tsv", 3), HasSubstr("nowhere.tsv cannot be opened"));
  EXPECT_THAT(fails("--data tsv=valid.tsv --data text_column=5", 3), HasSubstr("missing_column"));
  folder_.write("other.csv", "label,text\nnever,ba\n");
  EXPECT_THAT(fails("--data other.csv", 3),
              HasSubstr("other.csv:2 must have one of the labels early, late, got 'never'."));
  EXPECT_THAT(fails("--data images=train-images.gz --data labels=train-labels", 2),
              AllOf(HasSubstr("[evaluate] expected texts with a class each for the model of "
                              "classification/best, got images in "),
                    HasSubstr("/train-images.gz, ")));
  EXPECT_THAT(
      fails("--data source=valid.src --data target=valid.tgt", 2),
      HasSubstr("source=valid.src: unknown key 'source'; known: images, tsv, csv, jsonl, parquet, "
                "label_column, "));
}

}  // namespace
}  // namespace tapestry
