#include "core/base/nearest_name.h"

#include <gtest/gtest.h>

namespace tapestry {
namespace {

const std::vector<std::string> kNames = {"learning_rate", "lr_scheduler_type", "warmup_steps",
                                         "num_attention_heads", "seed"};

TEST(NearestName, FindsFewEdits) {
  EXPECT_EQ(nearest_name("learning_rat", kNames), "learning_rate");
  EXPECT_EQ(nearest_name("laerning_rate", kNames), "learning_rate");
  EXPECT_EQ(nearest_name("Learning-Rate", kNames), "learning_rate");
  EXPECT_EQ(nearest_name("sede", kNames), "seed");
}

TEST(NearestName, FindsTheSameWords) {
  EXPECT_EQ(nearest_name("num_heads", kNames), "num_attention_heads");
  EXPECT_EQ(nearest_name("warmup", kNames), "warmup_steps");
  EXPECT_EQ(nearest_name("linear_warmup_steps", kNames), "warmup_steps");
}

TEST(NearestName, FindsInitials) {
  EXPECT_EQ(nearest_name("lr", kNames), "learning_rate");
  EXPECT_EQ(nearest_name("nah", kNames), "num_attention_heads");
}

TEST(NearestName, KnowsWhenThereIsNone) {
  EXPECT_EQ(nearest_name("dropout", kNames), "");
  EXPECT_EQ(nearest_name("x", {}), "");
  EXPECT_EQ(nearest_name("___", kNames), "");
}

}  // namespace
}  // namespace tapestry
