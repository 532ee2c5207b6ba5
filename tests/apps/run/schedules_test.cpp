// Schedules as a run has them: what the log says of them, and the one that has a state.
#include <gmock/gmock.h>

#include "apps/config/config.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

class SchedulesTest : public testing::Test {
 protected:
  void train(const std::string& run, const std::vector<std::string>& overrides) const {
    ASSERT_EQ(folder_.train("translation", run, overrides), 0) << folder_.messages();
  }
  /// What the log of a run of 60 updates says of its rates.
  std::string rates(const std::vector<std::string>& overrides) const {
    folder_.forget_messages();
    std::filesystem::remove_all(folder_.path("rates"));
    std::vector<std::string> all = {"training.max_hours=1e-9"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    EXPECT_EQ(folder_.train("translation", "rates", all), 0) << folder_.messages();
    for (const std::string& line : lines_of(folder_.messages())) {
      const size_t at = line.find("learning rate: ");
      if (at != std::string::npos) return line.substr(at + 15);
    }
    return "nothing";
  }
  std::vector<double> learning_rates(const std::string& run) const {
    std::vector<double> found;
    for (const Json& entry : folder_.metrics(run)) {
      if (entry.at("kind") == "train") found.push_back(entry.at("learning_rate"));
    }
    return found;
  }

  TinyRunFolder folder_{"schedules"};
};

TEST_F(SchedulesTest, TheLogSaysTheFirstRateAndWhereItTurns) {
  EXPECT_EQ(rates({}), "0.0005 at update 1, 0.005 at update 10, 0.00204 at update 60");
  EXPECT_EQ(rates({"training.lr_scheduler_type=constant", "training.warmup_steps=0"}),
            "0.005 at update 1");
  EXPECT_EQ(rates({"training.lr_scheduler_type=linear", "training.warmup_steps=0",
                   "training.warmup_ratio=0.5"}),
            "0.000167 at update 1, 0.005 at update 30, 0 at update 60");
  EXPECT_EQ(rates({"training.lr_scheduler_type=warmup_stable_decay", "training.lr_decay_steps=20",
                   "training.min_lr_ratio=0.1"}),
            "0.00095 at update 1, 0.005 at update 10, 0.005 at update 40, 0.0005 at update 60");
  EXPECT_EQ(
      rates({"training.lr_scheduler_type=reduce_lr_on_plateau", "training.lr_patience=2"}),
      "0.0005 at update 1, 0.005 at update 10; times 0.1 after more than 2 validations without "
      "a better nll");
}

// The clock tells only when it begins. From there on the updates of a run are what its checkpoint
// says, to the bit.
TEST_F(SchedulesTest, ACooldownEndsARunOfSoManyHours) {
  const std::vector<std::string> timed = {
      "training.max_steps=1000000",  "training.max_hours=0.0008",
      "training.cooldown_share=0.5", "training.lr_scheduler_type=constant",
      "training.warmup_steps=0",     "training.logging_steps=1",
      "training.eval_steps=100000",  "training.save_steps=100000"};
  train("run", timed);
  EXPECT_THAT(folder_.messages(), HasSubstr("; falls to 0 in the last 50 % of 0.0008 h"));
  EXPECT_THAT(folder_.messages(), HasSubstr("the rate falls to 0 until update "));
  const Json state = Json::parse(folder_.result("run").at("trainer_state.json"));
  const int64_t begin = state.at("cooldown").at("begin"), updates = state["cooldown"]["updates"];
  EXPECT_GT(begin, 0);
  EXPECT_EQ(state.at("step"), begin + updates);
  const std::vector<double> rates = learning_rates("run");
  ASSERT_EQ(std::ssize(rates), begin + updates);
  for (int64_t i = 0; i < std::ssize(rates); ++i) {
    const double left = static_cast<double>(begin + updates - i) / static_cast<double>(updates);
    EXPECT_NEAR(rates[static_cast<size_t>(i)], 0.005 * std::min(1.0, left), 1e-12) << i;
  }
  // Once more from where it began, with another clock.
  const std::string again = folder_.path("again");
  std::filesystem::copy(
      folder_.path("run"), again,
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
  for (const char* link : {"last", "best"}) std::filesystem::remove(again + "/" + link);
  std::filesystem::remove_all(concat(again, "/checkpoint-", begin + updates));
  ASSERT_TRUE(std::filesystem::exists(concat(again, "/checkpoint-", begin)));
  std::filesystem::create_directory_symlink(concat("checkpoint-", begin), again + "/last");
  train("again", timed);
  expect_equal(folder_.result("run"), folder_.result("again"));
}

// A threshold that no validation passes lets the rate fall; what it fell to is part of the state.
TEST_F(SchedulesTest, APlateauResumesToTheSameBits) {
  const std::vector<std::string> plateau = {"training.lr_scheduler_type=reduce_lr_on_plateau",
                                            "training.warmup_steps=0",
                                            "training.eval_steps=5",
                                            "training.lr_metric=nll",
                                            "training.lr_threshold=50",
                                            "training.lr_patience=1",
                                            "training.lr_cooldown=1",
                                            "training.lr_factor=0.5"};
  const auto until = [&](const char* steps) {
    std::vector<std::string> all = plateau;
    all.push_back(concat("training.max_steps=", steps));
    return all;
  };
  train("whole", until("60"));
  // The first validation is the best; the third has passed the patience; one cools down.
  const std::vector<double> rates = learning_rates("whole");
  ASSERT_EQ(rates.size(), 12u);
  EXPECT_EQ(rates[0], 5e-3);
  EXPECT_EQ(rates[2], 5e-3);
  EXPECT_EQ(rates[3], 2.5e-3);
  EXPECT_EQ(rates[5], 2.5e-3);
  EXPECT_EQ(rates[6], 1.25e-3);
  EXPECT_THAT(folder_.messages(), HasSubstr("no better nll than "));
  EXPECT_THAT(folder_.messages(), HasSubstr(": the learning rate falls to 0.0025"));
  // 20 is a place of validation: in the midst of a patience, after a fall.
  train("parts", until("20"));
  const Json state = Json::parse(read_file(folder_.path("parts/last/trainer_state.json")));
  EXPECT_EQ(state.at("plateau").at("scale"), 0.5);
  train("parts", until("60"));
  expect_equal(folder_.result("whole"), folder_.result("parts"));
  EXPECT_EQ(folder_.metrics("whole"), folder_.metrics("parts"));
}

TEST_F(SchedulesTest, EpochsTellTheShareOfTheWarmup) {
  const std::vector<std::string> epochs = {"training.max_steps=0", "training.num_train_epochs=2",
                                           "training.warmup_steps=0", "training.warmup_ratio=0.5",
                                           "training.lr_scheduler_type=linear"};
  train("epochs", epochs);
  const std::vector<double> rates = learning_rates("epochs");
  ASSERT_GT(rates.size(), 1u);
  EXPECT_EQ(rates.back(), 0);
  // A decay that is longer than the epochs is told before the first update.
  EXPECT_EQ(folder_.train("translation", "short",
                          {"training.max_steps=0", "training.num_train_epochs=1",
                           "training.lr_scheduler_type=warmup_stable_decay",
                           "training.lr_decay_steps=100000"}),
            2);
  EXPECT_THAT(folder_.messages(),
              HasSubstr("[schedule] decay_steps must be at most max_steps less the warm-up"));
}

TEST_F(SchedulesTest, ConfigsNameWhatIsMissing) {
  const auto error = [&](const std::vector<std::string>& overrides) -> std::string {
    try {
      load_config(folder_.path("translation.yaml"), overrides);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_THAT(error({"training.lr_scheduler_type=exponential"}),
              HasSubstr("missing key 'lr_gamma'"));
  EXPECT_THAT(error({"training.lr_scheduler_type=warmup_stable_decay"}),
              HasSubstr("'training.lr_decay_steps' must be 1 or more for warmup_stable_decay"));
  EXPECT_THAT(error({"training.lr_scheduler_type=reduce_lr_on_plateau", "data.valid="}),
              HasSubstr("reduce_lr_on_plateau needs a validation set, got no 'data.valid'."));
  EXPECT_THAT(error({"training.warmup_ratio=0.1"}),
              HasSubstr("'training.warmup_ratio' must be 0 beside warmup_steps, got 0.1 and 10."));
  EXPECT_THAT(error({"training.lr_num_cycles=2"}),
              HasSubstr("has no effect with lr_scheduler_type: inverse_sqrt"));
}

}  // namespace
}  // namespace tapestry
