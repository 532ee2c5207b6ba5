// A Config that is filled in C++: default_config(), members, complete().
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/checkpoint/run_folder.h"
#include "apps/config/config.h"
#include "apps/run/outputs/log.h"
#include "apps/run/resume.h"
#include "apps/run/trainer/trainer.h"
#include "apps/tasks/task.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

Config tiny(const std::string& task, const CorpusSpec& train, bool images = false) {
  Config config = default_config(*find_task(task), images ? &kImageExamples : nullptr);
  config.device = "cpu";
  config.data.train = {train};
  config.data.block_size = 16;
  config.data.corpus.max_length = 32;
  config.tokenizer.vocab_size = 40;
  config.model.hidden_size = 16;
  config.model.intermediate_size = 32;
  config.model.num_attention_heads = 2;
  config.model.num_hidden_layers = 1;
  config.model.patch_size = 4;
  config.batch.batch_size = 128;
  config.training.max_steps = 3;
  return config;
}

TEST(Complete, AConfigOfCppTrains) {
  const TinyRunFolder data("complete");
  CorpusSpec text, images;
  text.text = data.path("train.src");
  images.images = data.path("train-images.gz");
  images.labels = data.path("train-labels");
  for (Config config :
       {tiny("clm", text), tiny("mlm", text), tiny("classification", images, /*images=*/true)}) {
    SCOPED_TRACE(config.task->name);
    config.output_dir = data.path(concat("run-", config.task->name));
    complete(config);
    RunFolder folder(config.output_dir);
    RunLog log(config.output_dir, 0);
    Resume resume("never", folder, config);
    const auto task = make_task(config, {}, {}, [](const std::string&) {});
    Ranks alone;
    EXPECT_EQ(Trainer(config, *task, alone, &folder, log, std::move(resume)).run(), 0);
    // What it wrote is what a file with these keys would have given.
    const Config again =
        load_checkpoint_config(read_file(config.output_dir + "/last/config.json"), "config.json");
    EXPECT_EQ(to_yaml(again), to_yaml(load_checkpoint_config(to_json(again), "again")));
    EXPECT_EQ(again.schedule.max_steps, 3);
  }
}

TEST(Complete, SetsWhatFollowsFromOtherMembers) {
  CorpusSpec text, images;
  text.text = "x";
  images.images = "x";
  Config config = tiny("denoising", text);
  config.seed = 7;
  config.tokenizer.vocab_size = 400;
  complete(config);
  EXPECT_EQ(config.batch.seed, 7u);
  EXPECT_EQ(config.schedule.max_steps, 3);
  EXPECT_EQ(config.schedule.model_size, 16);
  EXPECT_TRUE(config.tokenizer.mask_piece);
  EXPECT_EQ(config.tokenizer.sentinels, 100);
  EXPECT_EQ(config.denoising.max_length, 32);
  EXPECT_EQ(config.training.metric_for_best_model, "nll");

  Config pictures = tiny("classification", images, /*images=*/true);
  complete(pictures);
  EXPECT_EQ(pictures.batch.batch_type, "sentences");
  EXPECT_EQ(pictures.model_type, ModelType::kVit);
  EXPECT_EQ(pictures.training.metric_for_best_model, "accuracy");
  EXPECT_EQ(default_config(*find_task("classification"), &kImageExamples).batch.batch_size, 256);
  EXPECT_TRUE(default_config(*find_task("clm")).generation.do_sample);
}

TEST(Complete, ListsEveryKeyThatDoesNotGoWithTheOthers) {
  CorpusSpec text;
  text.text = "x";
  Config config = tiny("clm", text);
  config.model.num_attention_heads = 3;
  config.schedule.type = ScheduleType::kStep;
  config.generation.num_beams = 4;
  config.training.max_steps = 0;
  try {
    complete(config);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_STREQ(error.what(),
                 "'model.hidden_size' must be a multiple of num_attention_heads without head_size, "
                 "got 16 and 3.\n"
                 "'training.max_steps' must be at least 1 without num_train_epochs, got 0.\n"
                 "'training.lr_step_size' must be 1 or more for step, got 0.\n"
                 "'generation.num_beams' must be 1 with do_sample, got 4.");
  }
}

TEST(Complete, AnEmptyConfigIsNoTraining) {
  Config config;
  EXPECT_THROW(complete(config), Error);
}

}  // namespace
}  // namespace tapestry
