// Language models whose rows are single documents: data.rows=documents.
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

class DocumentRowsTest : public testing::Test {
 protected:
  void train(const std::string& task, const std::string& run, std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"training.max_steps=4", "training.eval_steps=4"});
    ASSERT_EQ(folder_.train(task, run, overrides), 0) << folder_.messages();
  }
  double validation_nll(const std::string& run) const {
    for (const Json& entry : folder_.metrics(run)) {
      if (entry.at("kind") == "valid") return entry.at("nll");
    }
    return std::nan("");
  }
  double figure(const std::string& json, const std::string& name) const {
    return Json::parse(json).at(name);
  }

  const std::vector<std::string> documents_ = {
      "data={train: {text: train.src}, valid: {text: "
      "valid.src}, rows: documents, max_length: 32}",
      "model.max_position_embeddings=32"};
  TinyRunFolder folder_{"documents"};
};

// What a training and a validation measure is what `score` says of each line by itself.
TEST_F(DocumentRowsTest, OfACausalModelAreTheLinesThatScoreMeasures) {
  train("clm", "run", documents_);
  const std::string evaluated = folder_.output("evaluate --model run --text valid.src --json");
  double log_probability = 0, tokens = 0;
  std::istringstream scores(folder_.output("score --model run --target valid.src"));
  for (double total, count; scores >> total >> count;) {
    log_probability += total;
    tokens += count;
  }
  EXPECT_EQ(figure(evaluated, "tokens"), tokens);
  EXPECT_NEAR(figure(evaluated, "nll"), -log_probability / tokens, 1e-4);
  EXPECT_NEAR(figure(evaluated, "nll"), validation_nll("run"), 1e-5);
  EXPECT_NEAR(figure(evaluated, "bits_per_character"),
              -log_probability / std::log(2.0) / figure(evaluated, "characters"), 1e-3);
}

// A row is the same beside others, which are longer, as by itself.
TEST_F(DocumentRowsTest, DoNotSeeEachOther) {
  for (const char* task : {"clm", "mlm"}) {
    SCOPED_TRACE(task);
    std::vector<std::string> still = documents_;
    still.insert(still.end(), {"training.batch_type=sentences", "training.learning_rate=1e-12"});
    std::vector<std::string> alone = still, together = still;
    alone.emplace_back("training.batch_size=1");
    together.emplace_back("training.batch_size=16");
    train(task, concat(task, "-alone"), alone);
    train(task, concat(task, "-together"), together);
    EXPECT_NEAR(validation_nll(concat(task, "-alone")), validation_nll(concat(task, "-together")),
                1e-5);
  }
}

TEST_F(DocumentRowsTest, HaveTheKeysOfLinesNotOfBlocks) {
  std::vector<std::string> overrides = documents_;
  overrides.emplace_back("data.block_size=16");
  EXPECT_EQ(folder_.train("mlm", "run", overrides), 2);
  EXPECT_THAT(folder_.messages(),
              HasSubstr("'data.block_size' has no effect with rows: documents; see max_length."));
}

// A config of blocks, such as an import writes, learns from documents by one override.
TEST_F(DocumentRowsTest, AnOverrideTurnsTheLengthOfBlocksIntoThatOfDocuments) {
  ASSERT_EQ(folder_.train("mlm", "run", {"data.rows=documents", "training.max_steps=1"}), 0)
      << folder_.messages();
  const std::string written = read_file(folder_.path("run/config.yaml"));
  EXPECT_THAT(written, HasSubstr("\n  rows: documents\n"));
  EXPECT_THAT(written, HasSubstr("\n  max_length: 16\n"));
  EXPECT_THAT(written, testing::Not(HasSubstr("block_size")));
  ASSERT_EQ(folder_.train("documents", "back", {"data.rows=blocks", "training.max_steps=1"}), 0)
      << folder_.messages();
  EXPECT_THAT(read_file(folder_.path("back/config.yaml")), HasSubstr("\n  block_size: 16\n"));
  // A wrong value of the file is still one.
  std::string wrong = read_file(folder_.path("mlm.yaml"));
  wrong.replace(wrong.find("block_size: 16"), 14, "block_size: abc");
  folder_.write("wrong.yaml", wrong);
  EXPECT_EQ(folder_.train("wrong", "wrong", {"data.rows=documents"}), 2);
  EXPECT_THAT(folder_.messages(), HasSubstr("'data.max_length' must be an integer, got 'abc'"));
}

}  // namespace
}  // namespace tapestry
