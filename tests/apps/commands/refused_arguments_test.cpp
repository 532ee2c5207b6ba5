// Arguments that would do harm, or nothing: the commands refuse them before any work.
#include <gmock/gmock.h>

#include <memory>

#include "apps/checkpoint/files.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using OrderedRecord = nlohmann::ordered_json;
using testing::HasSubstr;

/// The models are trained once.
class RefusedArguments : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TinyRunFolder>("refused");
    for (const char* task : {"translation", "classification", "clm"}) {
      EXPECT_EQ(folder_->train(task, task, {"training.max_steps=5"}), 0) << folder_->messages();
    }
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static void expect_refused(const std::string& arguments, const std::string& message,
                             int code = 2) {
    const auto outcome = folder_->run(arguments, "ba ce\n");
    EXPECT_EQ(outcome.code, code) << arguments << '\n' << outcome.err;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << arguments;
  }
  static bool exists(const std::string& name) {
    return std::filesystem::exists(folder_->path(name));
  }
  /// The last checkpoint of a run under another name, with another config.
  static void copy(const std::string& run, const std::string& to,
                   const std::function<void(OrderedRecord&)>& change) {
    CheckpointFiles files = read_checkpoint(folder_->path(run + "/last"));
    OrderedRecord config = OrderedRecord::parse(files.at("config.json"));
    change(config);
    files["config.json"] = config.dump();
    write_checkpoint(folder_->path(to), CheckpointContent(files.begin(), files.end()));
  }

  static std::unique_ptr<TinyRunFolder> folder_;
};

std::unique_ptr<TinyRunFolder> RefusedArguments::folder_;

TEST_F(RefusedArguments, AverageComparesConfigs) {
  const auto refused = [](const std::string& run, const std::string& to, const std::string& what) {
    expect_refused(concat("average ", run, "/last ", to, " --output mean"), what, 3);
    EXPECT_FALSE(exists("mean"));
  };
  copy("translation", "heads", [](OrderedRecord& config) { config["model"]["norm_eps"] = 0.5; });
  refused("translation", "heads", "model.norm_eps is 0.5 in heads, ");
  copy("classification", "labels", [](OrderedRecord& config) {
    OrderedRecord& labels = config["data"]["labels"];
    labels = {labels[1], labels[0]};
  });
  refused("classification", "labels", "data.labels is [");
  // What only trains says nothing about the weights.
  copy("translation", "dropped", [](OrderedRecord& config) {
    config["model"]["dropout"] = 0.25;
    config["output_dir"] = "elsewhere";
  });
  EXPECT_EQ(folder_->run("average translation/last dropped --output mean").code, 0);
}

TEST_F(RefusedArguments, OutputsOverwriteNeitherInputsNorEachOther) {
  const std::string corpus = "ba ce\ndi fo\n";
  folder_->write("corpus", corpus);
  folder_->write("corpus.part", corpus);
  const std::string translate = "translate --model translation --input corpus ";
  for (const char* files :
       {"--output oo --attention oo", "--output oo --alignments oo",
        "--output oo --alignments ./oo", "--output oo --attention oo.part",
        "--output oo.part --alignments oo", "--alignments corpus", "--attention corpus",
        "--output new --prefix new", "--output corpus --alignments corpus"}) {
    expect_refused(translate + files, "would overwrite");
    EXPECT_FALSE(exists("oo") || exists("oo.part")) << files;
    EXPECT_EQ(read_file(folder_->path("corpus")), corpus) << files;
  }
  expect_refused("translate --model translation --input corpus.part --output corpus",
                 "--output corpus would overwrite --input corpus.part");
  EXPECT_EQ(read_file(folder_->path("corpus.part")), corpus);
  std::filesystem::remove(folder_->path("corpus.part"));
  expect_refused("classify --model classification --output oo --attention oo.part",
                 "would overwrite");
  expect_refused("score --model translation --source corpus --target valid.tgt --output corpus",
                 "--output corpus would overwrite --source corpus");
  EXPECT_EQ(folder_->run(translate + "--output /dev/null --attention /dev/null").code, 0);
  // By whatever name, a text may be replaced by its own answers.
  EXPECT_EQ(folder_->run(translate + "--output ./corpus").code, 0);
}

TEST_F(RefusedArguments, NothingIsWrittenIntoACheckpoint) {
  const std::string file = folder_->path("translation/last/model.safetensors");
  const std::string bytes = read_file(file);
  for (const char* option : {"--output", "--alignments", "--attention"}) {
    expect_refused(
        concat("translate --model translation ", option, " translation/last/model.safetensors"),
        "is in the folder of a checkpoint");
  }
  expect_refused("shortlist --model translation --output translation/best/lex.s2t",
                 "is in the folder of a checkpoint");
  EXPECT_TRUE(read_file(file) == bytes);
  EXPECT_FALSE(exists("translation/best/lex.s2t.part"));
}

TEST_F(RefusedArguments, OptionsForTranslationsAreNotForAModel) {
  const std::string evaluate = "evaluate --model translation --data valid ";
  for (const char* option : {"--lowercase", "--metrics chrf", "--confidence", "--width 3",
                             "--num-refs 1", "--seed 1", "--tokenize none", "--paired-bs"}) {
    expect_refused(evaluate + option, "--hypothesis");
  }
  expect_refused("evaluate --hypothesis valid.src --reference valid.src --documents lines",
                 "--model");
}

TEST_F(RefusedArguments, ACheckpointHasItsConfig) {
  expect_refused("inspect translation model.hidden_size=64",
                 "[inspect] a checkpoint has its config: got 'model.hidden_size=64'");
  EXPECT_EQ(folder_->run("inspect translation.yaml model.dropout=0").code, 0);
}

TEST_F(RefusedArguments, FiguresThatCannotBeWrittenAreNotMeasured) {
  for (const char* what : {"translation.yaml", "--decode translation", "--ops --filter softmax"}) {
    const auto outcome = folder_->run(concat("bench --json no/where ", what));
    EXPECT_EQ(outcome.code, 1) << what;
    EXPECT_THAT(outcome.err, HasSubstr("cannot write to no/where")) << what;
  }
  expect_refused("bench --ops --filter softmax --json no/where", "no/where", 1);
}

TEST_F(RefusedArguments, KeysComeOnce) {
  const std::string data = " --data source=train.src target=train.tgt source=valid.src";
  expect_refused("shortlist --model translation --output lex" + data,
                 "[shortlist --data] source is given twice, the second time as 'source=valid.src'");
  EXPECT_FALSE(exists("lex"));
  expect_refused("distil translation --output distilled" + data,
                 "[distil --data] source is given twice");
  EXPECT_FALSE(exists("distilled"));
  expect_refused("plan translation.yaml model.hidden_size=32 model.hidden_size=16",
                 "[plan] model.hidden_size is given twice");
}

// An option that changes nothing is told, since somebody meant something by it.
TEST_F(RefusedArguments, OptionsHaveAnEffect) {
  expect_refused("classify --model classification --threshold 0.9",
                 "--threshold is for a model of multi_label, classification is of task "
                 "classification.");
  expect_refused("shortlist --model translation --shortlist-size 3 --output lex",
                 "--shortlist-size is of a vmap, got --format marian");
  EXPECT_FALSE(exists("lex"));
  const std::string translate = "translate --model translation ";
  expect_refused(translate + "--alignment-layer 1",
                 "--alignment-layer is for --alignments, --markup and --copy-unknown");
  expect_refused(translate + "--alignment-units tokens", "--alignments");
  EXPECT_EQ(folder_->run(translate + "--alignment-layer 1 --markup xml", "ba\n").code, 0);
  expect_refused(
      "score --model translation --source valid.src --target valid.tgt "
      "--alignment-layer 1",
      "--alignments");
  const std::string evaluate = "evaluate --hypothesis valid.src --reference valid.src ";
  expect_refused(evaluate + "--confidence-n 9", "--confidence");
  expect_refused(evaluate + "--paired-bs-n 9", "--paired-bs");
  expect_refused(evaluate + "--paired-ar-n 9", "--paired-ar");
  const std::string generate = "generate --model clm --samples 2 ";
  expect_refused(generate + "--no-do-sample", "--samples 2 would be the same text each time");
  expect_refused(generate + "--beam-size 2", "--samples 2 would be the same text each time");
  EXPECT_EQ(folder_->run(generate + "--do-sample", "ba\n").code, 0);
  expect_refused("replay clm --step 6", "[replay] clm has made 5 updates, got --step 6.");
}

TEST_F(RefusedArguments, TextsAreUtf8) {
  folder_->write("latin", "ba\nc\xE9\n");
  expect_refused("evaluate --hypothesis latin --reference latin", "latin:2 is not UTF-8 at byte 2.",
                 3);
  expect_refused("generate --model clm --prompt b\xE9", "--prompt is not UTF-8 at byte 2.", 3);
}

}  // namespace
}  // namespace tapestry
