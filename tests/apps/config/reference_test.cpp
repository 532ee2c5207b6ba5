// The reference of the keys: whole, right, and the same as the page that is shipped.
#include "apps/config/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "core/base/error.h"
#include "data/files/files.h"
#include "tests/apps/config/config_fixture.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

const KeyEntry& entry(const std::string& name) {
  for (const KeyEntry& entry : key_entries()) {
    if (entry.name == name) return entry;
  }
  throw std::runtime_error("no entry " + name);
}

std::string error_of_key(const std::string& name) {
  try {
    describe_key(name);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "no error";
}

TEST(KeyReference, EveryKeyHasATypeAMeaningAndTasks) {
  EXPECT_GT(key_entries().size(), 100u);
  for (const KeyEntry& key : key_entries()) {
    EXPECT_NE(key.type, "") << key.name;
    EXPECT_EQ(key.tasks.empty(), key.name.starts_with("serve"))
        << key.name << ": no probe of reference.cpp shows it";
    EXPECT_TRUE(key.meaning.ends_with('.')) << key.name << ": " << key.meaning;
  }
}

TEST(KeyReference, TellsWhatABinderTells) {
  EXPECT_EQ(entry("task").preset, "required");
  EXPECT_THAT(entry("task").bounds, HasSubstr("clm, preference, mlm"));
  EXPECT_EQ(entry("seed").preset, "1");
  EXPECT_EQ(entry("seed").tasks, "all");
  EXPECT_EQ(entry("threads").bounds, "in [0, 1024]");
  EXPECT_EQ(entry("data.block_size").tasks,
            "clm without data.train.prompt and without data.train.messages_column; mlm; with rows: "
            "blocks");
  EXPECT_EQ(entry("data.train.prompt").tasks, "clm, preference");
  EXPECT_EQ(entry("data.train.answer").tasks, "clm with prompt");
  EXPECT_EQ(entry("data.train.answer").preset, "required");
  EXPECT_EQ(entry("data.block_size").preset, "256");
  EXPECT_EQ(entry("data.train.direction").tasks, "translation, embedding with ding");
  EXPECT_EQ(
      entry("data.train.source").tasks,
      "translation without tsv, without csv, without jsonl, without parquet and without ding; "
      "embedding without tsv, without csv, without jsonl, without parquet, without ding and "
      "without score_column");
  EXPECT_EQ(entry("data.augment.flip").tasks, "classification of images");
  EXPECT_EQ(entry("model.rope_theta").tasks, "all but regression; with position_embedding: rope");
  EXPECT_THAT(entry("model.rope_head_size").tasks, HasSubstr("with kv_latent_size"));
  EXPECT_THAT(entry("training.optimizer.betas").tasks,
              HasSubstr("all; with name: adam, adamw or muon"));
  EXPECT_EQ(entry("training.optimizer.betas").preset, "[0.9, 0.999]");
  EXPECT_EQ(entry("training.optimizer.betas").type, "list of numbers");
  EXPECT_THAT(entry("training.optimizer.eps").preset, HasSubstr("1e-06 with name: adadelta"));
  EXPECT_THAT(entry("training.learning_rate").preset,
              HasSubstr("0.01 with training.optimizer.name: adagrad"));
  EXPECT_EQ(entry("training.lr_gamma").tasks, "all; with lr_scheduler_type: exponential or step");
  EXPECT_EQ(entry("training.max_steps").preset, "required");
  EXPECT_EQ(entry("generation.num_beams").preset, "5; 1 (clm, preference)");
  EXPECT_EQ(entry("evaluation.lowercase").tasks, "translation");
  EXPECT_THAT(entry("model.type").bounds, HasSubstr("decoder (clm, preference)"));
}

TEST(KeyReference, ExplainsAKeyByItsNameOrItsLastPart) {
  EXPECT_THAT(describe_key("training.max_steps"), HasSubstr("Updates of the run."));
  EXPECT_EQ(describe_key("max_steps"), describe_key("training.max_steps"));
  EXPECT_EQ(describe_key("data.valid.split"), describe_key("data.train.split"));
  // A section: itself and its keys. A name of two sections: both.
  EXPECT_THAT(describe_key("masking"), HasSubstr("masking.whole_word\n"));
  EXPECT_THAT(describe_key("num_beams"), HasSubstr("generation.num_beams\n"));
  EXPECT_THAT(describe_key("num_beams"), HasSubstr("evaluation.num_beams\n"));
}

TEST(KeyReference, KnowsWhatAWrongNameWasMeantToBe) {
  EXPECT_THAT(error_of_key("training.max_step"), HasSubstr("Did you mean 'training.max_steps'?"));
  EXPECT_THAT(error_of_key("learning_rat"), HasSubstr("Did you mean 'training.learning_rate'?"));
  // A key of the same section, though another section has one of that very name.
  EXPECT_THAT(error_of_key("training.optimizer.beta"),
              HasSubstr("Did you mean 'training.optimizer.betas'?"));
  EXPECT_THAT(error_of_key("xyzzy"), HasSubstr("no key is called 'xyzzy'."));
}

// To write the page anew: tapestry help --markdown > configs/README.md
TEST(KeyReference, ThePageOfTheConfigsIsUpToDate) {
  EXPECT_TRUE(read_file(project_file("configs/README.md")) == key_reference_markdown())
      << "Run: tapestry help --markdown > configs/README.md";
}

}  // namespace
}  // namespace tapestry
