// What a translation training does with its pairs: data.clean and data.augment.
#include <gmock/gmock.h>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using testing::Not;

class TrainingPairsTest : public testing::Test {
 protected:
  void train(const std::string& run, const std::vector<std::string>& overrides) const {
    ASSERT_EQ(folder_.train("translation", run, overrides), 0) << folder_.messages();
  }
  TinyRunFolder folder_{"pairs"};
};

TEST_F(TrainingPairsTest, WhatIsLeftOutIsCountedAndHeldOutPairsAreWarnedOf) {
  const std::string twice = read_file(folder_.path("train.src")),
                    target = read_file(folder_.path("train.tgt"));
  folder_.write("twice.src", twice + twice);
  folder_.write("twice.tgt", target + target);
  train("run", {"data.train={source: twice.src, target: twice.tgt}", "training.max_steps=2",
                "data.valid={source: train.src, target: train.tgt}",
                "data.clean={deduplicate: pairs, max_ratio: 4}"});
  EXPECT_THAT(folder_.messages(), HasSubstr("training data: 400 read, "));
  EXPECT_THAT(folder_.messages(), HasSubstr(" duplicate (first "));
  EXPECT_THAT(folder_.messages(),
              HasSubstr("200 of 200 validation pairs stand in the training data, too, such as '"));
  folder_.forget_messages();
  train("other", {"training.max_steps=2", "data.valid={source: valid.tgt, target: valid.src}"});
  EXPECT_THAT(folder_.messages(), Not(HasSubstr("duplicate")));
}

TEST_F(TrainingPairsTest, ChangedTextsResumeToTheSameBits) {
  const auto options = [](std::vector<std::string> own) {
    own.emplace_back("data.augment={upper_case: 0.3, no_end_mark: 0.3, typos: 0.5}");
    return own;
  };
  train("plain", {});
  train("whole", options({"threads=1"}));
  train("parts", options({"threads=2", "training.max_steps=33"}));
  train("parts", options({"threads=1"}));
  expect_equal(folder_.result("whole"), folder_.result("parts"));
  EXPECT_NE(folder_.result("whole").at("model.safetensors"),
            folder_.result("plain").at("model.safetensors"));
}

}  // namespace
}  // namespace tapestry
