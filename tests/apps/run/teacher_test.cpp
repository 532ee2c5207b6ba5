// training.teacher: a student that learns another model's probabilities goes on with its bits,
// knows its teacher again, and refuses one that does not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "tests/apps/run/long_run.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class TeacherTest : public testing::Test {
 protected:
  static std::string teacher() { return plain("translation").path("run"); }
  static std::vector<std::string> taught(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"training.teacher=" + teacher(), "training.teacher_weight=0.6",
                               "training.teacher_temperature=2", "training.max_steps=20",
                               "training.save_steps=3"});
    return more;
  }
  int train(const std::string& run, const std::vector<std::string>& overrides) const {
    return folder_.train("translation", run, overrides);
  }
  /// What the trainings said at these values of training.teacher.
  std::string refusal(const std::vector<std::string>& overrides, int code) const {
    folder_.forget_messages();
    EXPECT_EQ(train("refused", overrides), code) << folder_.messages();
    return folder_.messages();
  }
  std::string messages() const { return folder_.messages(); }

  TinyRunFolder folder_{"teacher"};
};

TEST_F(TeacherTest, AStudentSurvivesAKillOnOtherThreads) {
  ASSERT_EQ(train("whole", taught()), 0) << messages();
  ASSERT_EQ(train("alone", {"training.max_steps=20", "training.save_steps=3"}), 0) << messages();
  EXPECT_NE(folder_.result("alone").at("model.safetensors"),
            folder_.result("whole").at("model.safetensors"));
  const pid_t killed = folder_.start("translation", "killed", taught());
  while (!fs::exists(folder_.path("killed/last"))) sleep_milliseconds(1);
  kill(killed, SIGKILL);
  TinyRunFolder::wait(killed);
  ASSERT_EQ(train("killed", taught({"threads=2"})), 0) << messages();
  expect_equal(folder_.result("whole"), folder_.result("killed"));
}

TEST_F(TeacherTest, AStudentComesNearerToItsTeacher) {
  ASSERT_EQ(train("run", taught({"training.teacher_weight=1", "training.max_steps=60",
                                 "training.ema_decay=0", "model.hidden_size=32"})),
            0)
      << messages();
  std::vector<double> divergences;
  for (const nlohmann::json& line : folder_.metrics("run")) {
    if (line.contains("teacher_divergence")) divergences.push_back(line["teacher_divergence"]);
  }
  ASSERT_EQ(divergences.size(), 12);
  EXPECT_LT(divergences.back(), divergences.front() / 2);
  EXPECT_THAT(messages(), HasSubstr("  teacher "));
  EXPECT_THAT(messages(), HasSubstr("parameters of " + teacher()));
}

// Parts of a batch are the same update, but for rounding, where nothing is drawn.
TEST_F(TeacherTest, PartsOfABatchAreTheSameUpdate) {
  const std::vector<std::string> still = {"model.dropout=0", "model.attention_dropout=0",
                                          "training.max_steps=1", "training.logging_steps=1"};
  ASSERT_EQ(train("whole", taught(still)), 0) << messages();
  std::vector<std::string> in_parts = still;
  in_parts.emplace_back("training.splits=3");
  ASSERT_EQ(train("parts", taught(in_parts)), 0) << messages();
  const auto whole = folder_.metrics("whole").at(0), parts = folder_.metrics("parts").at(0);
  for (const char* key : {"loss", "teacher_divergence", "grad_norm"}) {
    EXPECT_NEAR(whole.at(key).get<double>(), parts.at(key).get<double>(),
                1e-4 * whole.at(key).get<double>())
        << key;
  }
}

TEST_F(TeacherTest, EitherModelTeachesTheOther) {
  const std::string rnn =
      "model={type: rnn_attention, hidden_size: 16, encoder_layers: 1, decoder_layers: 1}";
  ASSERT_EQ(train("recurrent", taught({rnn, "training.max_steps=4"})), 0) << messages();
  ASSERT_EQ(train("student", taught({"training.teacher=" + folder_.path("recurrent"),
                                     "training.max_steps=4"})),
            0)
      << messages();
}

TEST_F(TeacherTest, CausalModelsLearnFromOneToo) {
  for (const std::string task : {"clm", "prompts"}) {
    const std::string teacher = "training.teacher=" + plain(task).path("run");
    const std::vector<std::string> student = {teacher, "model.hidden_size=8",
                                              "training.max_steps=10"};
    ASSERT_EQ(folder_.train(task, task, student), 0) << messages();
    EXPECT_TRUE(folder_.metrics(task).at(0).contains("teacher_divergence"));
    ASSERT_EQ(folder_.run(concat("plan ", task, ".yaml ", teacher)).code, 0);
  }
  EXPECT_THAT(folder_
                  .run("bench clm.yaml --steps 1 --warmup-steps 0 --shape 2x8 training.teacher=" +
                       plain("clm").path("run"))
                  .out,
              HasSubstr("tokens_per_s"));
}

TEST_F(TeacherTest, AnotherTeacherIsSaid) {
  ASSERT_EQ(train("first", {"training.max_steps=4"}), 0) << messages();
  ASSERT_EQ(train("second", {"training.max_steps=4", "seed=2"}), 0) << messages();
  const auto student = [&](const std::string& steps) {
    return taught({"training.teacher=" + folder_.path("teacher"), "training.max_steps=" + steps});
  };
  fs::copy(folder_.path("first"), folder_.path("teacher"), fs::copy_options::recursive);
  ASSERT_EQ(train("student", student("4")), 0) << messages();
  ASSERT_EQ(train("student", student("6")), 0) << messages();
  EXPECT_EQ(messages().find("is not the teacher"), std::string::npos);
  fs::remove_all(folder_.path("teacher"));
  fs::copy(folder_.path("second"), folder_.path("teacher"), fs::copy_options::recursive);
  ASSERT_EQ(train("student", student("8")), 0) << messages();
  EXPECT_THAT(messages(), HasSubstr("model.safetensors is not the teacher of the checkpoint"));
}

TEST_F(TeacherTest, ATeacherThatDoesNotFitIsRefused) {
  EXPECT_THAT(refusal({"training.teacher=nowhere"}, 3),
              HasSubstr("nowhere is neither a checkpoint nor a run folder with one."));
  EXPECT_THAT(refusal({"training.teacher=" + plain("clm").path("run")}, 3),
              HasSubstr("[training.teacher] expected a model of task translation, "));
  EXPECT_THAT(refusal(taught({"tokenizer.vocab_size=35"}), 3), HasSubstr("this config"));
  EXPECT_THAT(refusal(taught({"training.r_drop=1"}), 2),
              HasSubstr("'training.r_drop' does not go with training.teacher, got 1."));
  EXPECT_THAT(refusal({"training.teacher_weight=0.5"}, 2),
              HasSubstr("'training.teacher_weight' has no effect without teacher."));
  for (const std::string wrong : {"training.teacher_weight=0", "training.teacher_weight=1.5",
                                  "training.teacher_temperature=0"}) {
    EXPECT_THAT(refusal(taught({wrong}), 2), HasSubstr(wrong.substr(0, wrong.find('='))));
  }
  EXPECT_FALSE(fs::exists(folder_.path("refused/last")));
}

TEST_F(TeacherTest, PlanAndBenchCountIt) {
  std::string arguments;
  for (const std::string& one : taught()) arguments += " '" + one + "'";
  EXPECT_THAT(folder_.output("plan translation.yaml" + arguments),
              HasSubstr("weights of the teacher"));
  EXPECT_THAT(folder_.output("bench translation.yaml --steps 1 --warmup-steps 0" + arguments),
              HasSubstr("tokens_per_s"));
  EXPECT_THAT(
      folder_.output("bench translation.yaml --steps 1 --warmup-steps 0 --shape 4x5x6" + arguments),
      HasSubstr("tokens_per_s"));
}

}  // namespace
}  // namespace tapestry
