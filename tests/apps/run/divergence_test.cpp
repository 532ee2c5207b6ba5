// Trainings that go wrong: which checkpoints are left, and what the user hears.
#include <gmock/gmock.h>

#include "apps/checkpoint/run_folder.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class DivergenceTest : public testing::Test {
 protected:
  int train(const std::vector<std::string>& overrides) const {
    folder_.forget_messages();
    std::vector<std::string> all = {"training.eval_steps=0", "training.lr_scheduler_type=constant"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return folder_.train("clm", "run", all);
  }
  std::vector<int64_t> steps() const { return RunFolder(folder_.path("run")).steps(); }
  std::string last_good(int64_t step) const {
    return concat("The last good checkpoint is ", folder_.path("run/checkpoint-"), step, "; ");
  }

  TinyRunFolder folder_{"divergence"};
};

// The update that ruins the weights is finite itself.
TEST_F(DivergenceTest, TheLastGoodCheckpointStaysWhateverTheLimit) {
  ASSERT_EQ(train({"training.max_steps=20", "training.save_steps=10"}), 0) << folder_.messages();
  EXPECT_EQ(train({"training.learning_rate=1e38", "training.save_steps=1",
                   "training.save_total_limit=1"}),
            4);
  EXPECT_THAT(folder_.messages(),
              AllOf(HasSubstr("10 updates in a row had no finite loss"), HasSubstr(last_good(20))));
  EXPECT_THAT(steps(), ElementsAre(20, 21));
  // A start that knows nothing of that one does not lose it either.
  EXPECT_EQ(train({"training.learning_rate=1e38", "training.save_steps=1",
                   "training.save_total_limit=1"}),
            4);
  EXPECT_THAT(folder_.messages(), HasSubstr(last_good(20)));
  EXPECT_THAT(steps(), ElementsAre(20, 21));
}

TEST_F(DivergenceTest, NothingIsSavedWhileUpdatesAreSkipped) {
  EXPECT_EQ(train({"training.learning_rate=1e38", "training.warmup_steps=0",
                   "training.save_steps=2", "training.max_steps=6"}),
            4);
  EXPECT_THAT(folder_.messages(), HasSubstr("the last update or validation is not finite"));
  EXPECT_THAT(steps(), ElementsAre());
}

TEST_F(DivergenceTest, AUselessLossIsDivergenceToo) {
  const std::vector<std::string> exploding = {"training.learning_rate=2", "training.warmup_steps=2",
                                              "training.max_steps=30",
                                              "training.divergence_patience=10"};
  EXPECT_EQ(train(exploding), 4) << folder_.messages();
  EXPECT_THAT(folder_.messages(), HasSubstr("the nll of 10 updates in a row is above "));
  EXPECT_THAT(read_file(folder_.path("run/report.html")), HasSubstr("\"metric\":\"nll\""));
  fs::remove_all(folder_.path("run"));
  std::vector<std::string> patient = exploding;
  patient.back() = "training.divergence_patience=0";
  EXPECT_EQ(train(patient), 0) << folder_.messages();
}

TEST_F(DivergenceTest, AValidationThatIsNotFiniteEndsWithItsCode) {
  EXPECT_EQ(train({"training.optimizer={name: adamw, weight_decay: 1e30}", "training.max_steps=1",
                   "training.ema_decay=0"}),
            4);
  EXPECT_THAT(folder_.messages(), HasSubstr("[train] "));
  EXPECT_THAT(steps(), ElementsAre());
}

}  // namespace
}  // namespace tapestry
