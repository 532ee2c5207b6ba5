// Every format of every task: the same examples give the same bits. What is measured of held-out
// sets, and when.
#include <gmock/gmock.h>

#include "tests/apps/tiny_runs.h"
#include "tests/data/files/compressed_files.h"

namespace tapestry {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

std::string in_quotes(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

class DataFormatsTest : public testing::Test {
 protected:
  std::vector<std::string> lines(const std::string& name) const {
    return lines_of(read_file(folder_.path(name)));
  }
  /// Trains a task with other data, and expects what `run` has.
  void expect_same(const std::string& task, const std::string& run,
                   const std::vector<std::string>& data) {
    std::vector<std::string> overrides = {"training.max_steps=20"};
    overrides.insert(overrides.end(), data.begin(), data.end());
    const std::string name = concat("run", ++runs_);
    ASSERT_EQ(folder_.train(task, name, overrides), 0) << folder_.messages();
    expect_equal(without_data_files(folder_.result(name)), without_data_files(folder_.result(run)));
  }
  std::string train(const std::string& task, std::vector<std::string> overrides = {}) {
    const std::string run = concat("run", ++runs_);
    overrides.insert(overrides.begin(), "training.max_steps=20");
    EXPECT_EQ(folder_.train(task, run, overrides), 0) << folder_.messages();
    return run;
  }
  std::vector<Json> tests_of(const std::string& run) const {
    std::vector<Json> found;
    for (const Json& line : folder_.metrics(run)) {
      if (line.at("kind") == "test") found.push_back(line);
    }
    return found;
  }

  TinyRunFolder folder_{"formats"};
  int runs_ = 0;
};

TEST_F(DataFormatsTest, PairsOfEachFormatGiveTheSameBits) {
  std::string tsv, csv = "id,\"de\"\"\",en\r\n", jsonl;
  const auto sources = lines("train.src"), targets = lines("train.tgt");
  for (size_t i = 0; i < sources.size(); ++i) {
    tsv += concat(targets[i], '\t', i, '\t', sources[i], '\n');
    csv += concat(i, ',', in_quotes(targets[i]), ',', sources[i], "\r\n");
    jsonl += Json{{"id", i}, {"translation", {{"en", sources[i]}, {"de", targets[i]}}}}.dump();
    jsonl += '\n';
  }
  folder_.write("pairs.tsv", tsv);
  folder_.write("pairs.csv.zst", zstd(csv));
  folder_.write("pairs.jsonl.gz", gzip(jsonl));
  const std::string run = train("translation");
  const auto path = [&](const std::string& name) { return folder_.path(name); };
  expect_same("translation", run,
              {concat("data.train.tsv=", path("pairs.tsv")), "data.train.source_column=3",
               "data.train.target_column=1"});
  expect_same("translation", run,
              {concat("data.train={csv: ", path("pairs.csv.zst"),
                      ", source_column: en, target_column: 'de\"'}")});
  expect_same(
      "translation", run,
      {concat("data.train.jsonl=", path("pairs.jsonl.gz")),
       "data.train.source_column=translation.en", "data.train.target_column=translation.de"});
}

TEST_F(DataFormatsTest, ShardsGiveTheBitsOfOneFileAndResume) {
  const std::string whole = train("translation");
  std::string targets, sources;
  int shard = 0;
  const auto all_sources = lines("train.src"), all_targets = lines("train.tgt");
  for (size_t i = 0; i < all_sources.size(); ++i) {
    sources += all_sources[i] + '\n';
    targets += all_targets[i] + '\n';
    if (i % 70 != 69 && i + 1 < all_sources.size()) continue;
    folder_.write(concat("shard-", shard, ".src.zst"), zstd(sources));
    folder_.write(concat("shard-", shard++, ".tgt"), targets);
    sources.clear();
    targets.clear();
  }
  ASSERT_GT(shard, 2);
  const std::string shards = concat("data.train={source: \"", folder_.path("shard-*.src.zst"),
                                    "\", target: \"", folder_.path("shard-?.tgt"), "\"}");
  expect_same("translation", whole, {shards});
  ASSERT_EQ(folder_.train("translation", "parts", {shards, "training.max_steps=7"}), 0);
  folder_.forget_messages();
  ASSERT_EQ(folder_.train("translation", "parts", {shards, "training.max_steps=20"}), 0);
  EXPECT_THAT(folder_.messages(), Not(HasSubstr("training data of")));
  EXPECT_EQ(folder_.result("parts").at("model.safetensors"),
            folder_.result(whole).at("model.safetensors"));
  // A new shard is other data.
  folder_.write("shard-9.src.zst", zstd("ba ce di\n"));
  folder_.write("shard-9.tgt", "ba ce di\n");
  ASSERT_EQ(folder_.train("translation", "parts", {shards, "training.max_steps=21"}), 0);
  EXPECT_THAT(folder_.messages(), HasSubstr("is not the training data of the checkpoint"));
}

TEST_F(DataFormatsTest, PairsHaveWeights) {
  const auto sources = lines("train.src"), targets = lines("train.tgt");
  const auto weigh = [&](const std::string& name, auto weight_of) {
    std::string weights, rest, rest_of_targets;
    for (size_t i = 0; i < sources.size(); ++i) {
      const double weight = weight_of(i);
      weights += concat(weight, '\n');
      if (weight == 0) continue;
      rest += sources[i] + '\n';
      rest_of_targets += targets[i] + '\n';
    }
    folder_.write(name, weights);
    folder_.write(name + ".src", rest);
    folder_.write(name + ".tgt", rest_of_targets);
    return concat("data.train={source: ", folder_.path("train.src"),
                  ", target: ", folder_.path("train.tgt"), ", pair_weights: ", folder_.path(name),
                  "}");
  };
  const auto model_of = [&](const std::vector<std::string>& overrides) {
    return folder_.result(train("translation", overrides)).at("model.safetensors");
  };
  const std::string plain = model_of({});
  EXPECT_EQ(model_of({weigh("ones", [](size_t) { return 1; })}), plain);
  EXPECT_EQ(model_of({weigh("twos", [](size_t) { return 2; })}), plain);
  const std::string mixed = weigh("mixed", [](size_t i) { return i % 2 == 0 ? 4 : 1; });
  EXPECT_NE(model_of({mixed}), plain);
  // Micro-batches share one divisor.
  const auto loss_of = [&](const char* splits) {
    return folder_
        .metrics(
            train("translation", {mixed, splits, "model.dropout=0", "model.attention_dropout=0",
                                  "training.max_steps=1", "training.logging_steps=1"}))
        .front()
        .at("loss")
        .get<double>();
  };
  EXPECT_NEAR(loss_of("training.splits=3"), loss_of("training.splits=1"), 1e-5);
  const std::string some = weigh("some", [](size_t i) { return i % 3 == 0 ? 0 : 1; });
  EXPECT_EQ(model_of({some}), model_of({concat("data.train={source: ", folder_.path("some.src"),
                                               ", target: ", folder_.path("some.tgt"), "}")}));
}

TEST_F(DataFormatsTest, TextsOfEachFormatGiveTheSameBits) {
  std::string csv = "n,said\n", jsonl;
  const auto texts = lines("train.src");
  for (size_t i = 0; i < texts.size(); ++i) {
    csv += concat(i, ',', in_quotes(texts[i]), '\n');
    jsonl += Json{{"text", texts[i]}}.dump() + '\n';
  }
  folder_.write("texts.csv", csv);
  folder_.write("texts.jsonl", jsonl);
  for (const std::string task : {"clm", "mlm", "span_corruption"}) {
    SCOPED_TRACE(task);
    const std::string run = train(task);
    expect_same(
        task, run,
        {concat("data.train.csv=", folder_.path("texts.csv")), "data.train.text_column=said"});
    expect_same(task, run, {concat("data.train.jsonl=", folder_.path("texts.jsonl"))});
  }
}

TEST_F(DataFormatsTest, ClassesPromptsQuestionsAndPointsAlike) {
  std::string csv = "text,label\n", classes, prompts = "when,text,words\n";
  for (const std::string& line : lines("train.tsv")) {
    const size_t tab = line.find('\t');
    csv += concat(in_quotes(line.substr(tab + 1)), ',', line.substr(0, tab), '\n');
    classes += Json{{"label", line.substr(0, tab)}, {"text", line.substr(tab + 1)}}.dump() + '\n';
  }
  for (const std::string& line : lines("train.jsonl")) {
    const Json record = Json::parse(line);
    prompts += concat(record.at("when").get<std::string>(), ",\"",
                      record.at("text").get<std::string>(), "\",", record.at("words"), '\n');
  }
  folder_.write("classes.csv", csv);
  folder_.write("classes.jsonl", classes);
  folder_.write("prompts.csv", prompts);
  std::string run = train("classification");
  expect_same("classification", run, {concat("data.train.csv=", folder_.path("classes.csv"))});
  expect_same("classification", run, {concat("data.train.jsonl=", folder_.path("classes.jsonl"))});

  run = train("prompts");
  expect_same("prompts", run,
              {concat("data.train={csv: ", folder_.path("prompts.csv"),
                      ", prompt: \"{text}\\nwhen:\", answer: \" {when}\"}")});

  std::string questions = "question,answer,start,context\n";
  const Json squad = Json::parse(read_file(folder_.path("train.json")));
  for (const Json& paragraph : squad.at("data").at(0).at("paragraphs")) {
    const Json& qa = paragraph.at("qas").at(0);
    const Json& answer = qa.at("answers").at(0);
    questions += concat(qa.at("question").get<std::string>(), ',',
                        answer.at("text").get<std::string>(), ',', answer.at("answer_start"), ",\"",
                        paragraph.at("context").get<std::string>(), "\"\n");
  }
  folder_.write("questions.csv", questions);
  run = train("questions");
  expect_same("questions", run,
              {concat("data.train.csv=", folder_.path("questions.csv")),
               "data.train.answer_start_column=start"});

  std::string points;
  for (const std::string& line : lines("train.csv")) {
    if (line == "x,y") continue;
    const size_t comma = line.find(',');
    points +=
        concat("{\"at\": ", line.substr(0, comma), ", \"y\": ", line.substr(comma + 1), "}\n");
  }
  folder_.write("points.jsonl", points);
  run = train("regression");
  expect_same(
      "regression", run,
      {concat("data.train.jsonl=", folder_.path("points.jsonl")), "data.train.x_column=at"});
}

TEST_F(DataFormatsTest, AFileOfAnotherFormatSaysWhatItLooksLike) {
  const auto fails = [&](const std::string& task, const std::string& corpus) {
    folder_.forget_messages();
    EXPECT_EQ(folder_.train(task, "bad", {concat("data.train=", corpus)}), 3);
    return folder_.messages();
  };
  EXPECT_THAT(fails("classification", concat("{tsv: ", folder_.path("train.jsonl"), "}")),
              HasSubstr("train.jsonl leaves no sentence: 200 read, 0 kept; dropped: 200 "
                        "missing_column (first "));
  EXPECT_THAT(folder_.messages(), HasSubstr("line 1 looks like JSON: use jsonl."));
  EXPECT_THAT(fails("translation", concat("{csv: ", folder_.path("train.tsv"), "}")),
              HasSubstr("line 1 looks like columns between tabs: use tsv."));
  EXPECT_THAT(fails("prompts", concat("{jsonl: ", folder_.path("train.jsonl"),
                                      ", prompt: '{txt}', answer: '{when}'}")),
              HasSubstr("train.jsonl:1: has the fields text, when, words; 'txt' is none of them; "
                        "did you mean 'text'?"));
}

// data.test is measured with the best checkpoint, and changes nothing else.
TEST_F(DataFormatsTest, ATestSetIsMeasuredOnceWithTheBestCheckpoint) {
  std::map<std::string, std::string> tasks = kTinyTasks;
  tasks["regression"] = "";
  for (const auto& [task, unused] : tasks) {
    SCOPED_TRACE(task);
    // The test set is the validation's, so what comes out is known.
    const std::string config = read_file(folder_.path(task + ".yaml"));
    const size_t at = config.find("  valid: ");
    const std::string valid = config.substr(at, config.find('\n', at) + 1 - at);
    std::string both = config;
    both.insert(at, "  test: " + valid.substr(9));
    folder_.write("tested.yaml", both);
    const std::vector<std::string> steps = {"training.max_steps=40", "training.eval_steps=10"};
    const std::string run = task + "-plain", tested = task + "-tested";
    ASSERT_EQ(folder_.train(task, run, steps), 0) << folder_.messages();
    ASSERT_EQ(folder_.train("tested", tested, steps), 0) << folder_.messages();
    CheckpointFiles with = folder_.result(tested), without = folder_.result(run);
    // It keeps what the first model says of the test set, too.
    EXPECT_EQ(with.erase("task.safetensors"), without.erase("task.safetensors"));
    expect_equal(with, without);

    const std::vector<Json> found = tests_of(tested);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].at("step"), 40);
    const std::string best = std::filesystem::canonical(folder_.path(tested + "/best")).filename();
    EXPECT_EQ(found[0].at("checkpoint"), std::stoi(best.substr(best.find('-') + 1)));
    for (const Json& line : folder_.metrics(tested)) {
      if (line.at("kind") != "valid" || line.at("step") != found[0].at("checkpoint")) continue;
      for (const auto& [name, value] : line.items()) {
        if (name == "step" || name == "kind" || name == "tokens") continue;
        EXPECT_NEAR(found[0].at(name).get<double>(), value.get<double>(), 1e-9) << name;
      }
    }
    // Again, after its end: nothing more is measured. Going on, the new end is.
    ASSERT_EQ(folder_.train("tested", tested, steps), 0);
    EXPECT_EQ(tests_of(tested).size(), 1u);

    // evaluate measures the same by itself.
    const Json again =
        Json::parse(folder_.output(concat("evaluate --data test --json --model ", tested)));
    int compared = 0;
    for (const auto& [name, value] : again.items()) {
      if (!found[0].contains(name) || !value.is_number()) continue;
      EXPECT_NEAR(value.get<double>(), found[0].at(name).get<double>(), 1e-9) << name;
      ++compared;
    }
    EXPECT_GE(compared, 1);
  }
  EXPECT_THAT(folder_.messages(), HasSubstr("test has only 20 examples: its figures say little"));
  EXPECT_THAT(folder_.messages(), HasSubstr(" test:  "));
}

}  // namespace
}  // namespace tapestry
