// A budget of memory: what it chooses, that an update stays what it is, and that a run keeps it.
#include <gmock/gmock.h>

#include "apps/run/memory_plan.h"
#include "apps/tasks/answers/placeholders.h"
#include "core/base/byte_count.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

void no_budget_note(const std::string&) {}

class MemoryBudgetTest : public testing::Test {
 protected:
  Config config_of(const std::string& task, std::vector<std::string> overrides) const {
    return load_config(folder_.path(task + ".yaml"), overrides);
  }
  TinyRunFolder folder_{"memory-budget"};
};

// Activations outweigh all else.
const std::vector<std::string> kManyActivations = {
    "model.hidden_size=64", "model.intermediate_size=256", "model.num_hidden_layers=6",
    "training.batch_size=65536"};

TEST_F(MemoryBudgetTest, ChoosesTheCheapestThatFits) {
  Config config = config_of("clm", kManyActivations);
  const TokenizerPair tokenizers = placeholder_tokenizers(config, no_budget_note);
  const int64_t resident = resident_bytes();
  const auto peak_of = [&](const Config& planned) {
    return plan_memory(planned, tokenizers, resident)->peak();
  };
  const int64_t plain = peak_of(config);
  Config split = config;
  split.training.splits = 2;
  const int64_t half = peak_of(split);
  split.training.splits = 8;
  const int64_t eighth = peak_of(split);
  ASSERT_LT(eighth, half);
  ASSERT_LT(half, plain - (64 << 20));
  const auto chosen = [&](int64_t budget) {
    Config choice = config;
    choice.training.memory_budget = std::to_string(budget);
    EXPECT_THAT(keep_to_budget(choice, tokenizers, /*may_split=*/true, resident),
                HasSubstr("training.memory_budget " + std::to_string(budget)));
    EXPECT_LE(peak_of(choice), budget);
    return std::pair(choice.training.splits, choice.model.recompute);
  };
  EXPECT_EQ(chosen(plain), std::pair(int64_t{1}, false));
  EXPECT_EQ(chosen((plain + half) / 2), std::pair(int64_t{2}, false));
  EXPECT_EQ(chosen(eighth), std::pair(int64_t{8}, false));
  // On several ranks only recompute is left.
  config.training.memory_budget = std::to_string((plain + half) / 2);
  keep_to_budget(config, tokenizers, /*may_split=*/false, resident);
  EXPECT_EQ(config.training.splits, 1);
  EXPECT_TRUE(config.model.recompute);
}

TEST_F(MemoryBudgetTest, OneThatNothingMeetsEndsBeforeWork) {
  std::vector<std::string> overrides = kManyActivations;
  overrides.push_back("training.memory_budget=1MB");
  EXPECT_EQ(folder_.train("clm", "run", overrides), 5);
  EXPECT_THAT(folder_.messages(),
              AllOf(HasSubstr("training.memory_budget is 1MB, the training needs "),
                    HasSubstr(" with training.recompute=true training.splits=")));
  EXPECT_EQ(read_file(folder_.path("run/metrics.jsonl")), "");
  overrides.back() = "training.memory_budget=much";
  EXPECT_EQ(folder_.train("clm", "run", overrides), 2);
}

// The loss of an update is a sum over its targets, however its batches are cut.
TEST_F(MemoryBudgetTest, PartsLeaveTheUpdateAsItIs) {
  const std::vector<std::string> exact = {"model.dropout=0", "training.max_steps=12",
                                          "training.logging_steps=1", "dtype=float64",
                                          "training.eval_steps=0"};
  for (const auto& [task, config] : kTinyTasks) {
    std::vector<std::string> overrides = exact;
    overrides.push_back("model.attention_dropout=0");
    ASSERT_EQ(folder_.train(task, task + "-whole", overrides), 0) << task << folder_.messages();
    overrides.push_back("training.splits=3");
    ASSERT_EQ(folder_.train(task, task + "-parts", overrides), 0) << task << folder_.messages();
    const auto whole = folder_.metrics(task + "-whole"), parts = folder_.metrics(task + "-parts");
    ASSERT_EQ(whole.size(), parts.size()) << task;
    for (size_t i = 0; i < whole.size(); ++i) {
      for (const char* key : {"loss", "grad_norm"}) {
        if (!whole[i].contains(key)) continue;
        const double value = whole[i][key];
        EXPECT_NEAR(parts[i][key].get<double>(), value, 1e-9 * std::abs(value))
            << task << ' ' << key << " of line " << i;
      }
    }
  }
}

TEST_F(MemoryBudgetTest, ARunThatGoesOnKeepsTheChoiceAndTheBits) {
  // So many that what the process gains and loses between plan and training does not count.
  std::vector<std::string> overrides = kManyActivations;
  overrides.back() = "training.batch_size=1048576";
  Config config = config_of("clm", overrides);
  const TokenizerPair tokenizers = placeholder_tokenizers(config, no_budget_note);
  const int64_t budget = plan_memory(config, tokenizers)->peak() * 3 / 4;
  overrides.push_back(concat("training.memory_budget=", budget));
  overrides.emplace_back("training.max_steps=4");
  ASSERT_EQ(folder_.train("clm", "whole", overrides), 0) << folder_.messages();
  EXPECT_THAT(folder_.messages(), HasSubstr("training.splits="));
  overrides.back() = "training.max_steps=2";
  ASSERT_EQ(folder_.train("clm", "twice", overrides), 0);
  folder_.forget_messages();
  overrides.back() = "training.max_steps=4";
  ASSERT_EQ(folder_.train("clm", "twice", overrides), 0);
  EXPECT_THAT(folder_.messages(),
              AllOf(HasSubstr("as before, training.splits "), Not(HasSubstr("training.splits 1"))));
  EXPECT_TRUE(folder_.result("whole") == folder_.result("twice"));
}

TEST(ByteCountTest, ReadsWhatPeopleWrite) {
  EXPECT_EQ(byte_count("4GB"), 4000000000);
  EXPECT_EQ(byte_count("1.5 GiB"), int64_t{3} << 29);
  EXPECT_EQ(byte_count("600000"), 600000);
  EXPECT_EQ(byte_count("12 MB"), 12000000);
  for (const char* wrong :
       {"", "GB", "-1GB", "0", "nan", "inf", "1e30", "4 gigs", "4GB x", "0x10GB", "0X1p40"}) {
    EXPECT_FALSE(byte_count(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace tapestry
