// Trainings on preferences: the numbers of trl, and what a resumed one keeps.
#include <gmock/gmock.h>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

std::string fixture_of(const std::string& name) { return project_file("tests/fixtures/" + name); }

const Json& numbers() {
  static const Json kNumbers = Json::parse(read_file(fixture_of("preference/numbers.json")));
  return kNumbers;
}

class PreferenceTraining : public testing::Test {
 protected:
  int train(const std::string& run, const std::vector<std::string>& overrides) const {
    return folder_.train("preference", run, overrides);
  }
  // Three updates from the folder of the fixtures, on all examples, measured after each.
  void train_as_trl(const std::string& preference) const {
    const std::string corpus =
        concat("{jsonl: '", fixture_of("preference/train.jsonl"),
               "', prompt: '{prompt}', chosen: '{chosen}', ", "rejected: '{rejected}'}");
    folder_.write("trl.yaml",
                  concat("task: preference\ninit_from: '", fixture_of("huggingface_text/llama"),
                         "'\noutput_dir: run\ndata: {max_length: 32, train: ", corpus,
                         ", valid: ", corpus, "}\npreference: ", preference, R"(
training:
  batch_type: sentences
  batch_size: 6
  max_steps: 3
  learning_rate: 0.01
  max_grad_norm: 0
  optimizer: {name: adamw, weight_decay: 0}
  eval_steps: 1
  logging_steps: 1
)"));
    folder_.output("train trl.yaml");
  }
  std::vector<double> logged(const char* name, bool of_validations) const {
    std::vector<double> values;
    for (const Json& entry : folder_.metrics("run")) {
      if (entry.contains("margin") == of_validations) values.push_back(entry.at(name));
    }
    return values;
  }

  TinyRunFolder folder_{"preference"};
};

class LossesOfTrl : public PreferenceTraining, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, LossesOfTrl, testing::Values("dpo", "ipo", "simpo", "orpo"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(LossesOfTrl, HaveItsNumbers) {
  const std::string name = GetParam();
  const bool simpo = name == "simpo";
  train_as_trl(concat("{loss: ", name, ", beta: ", simpo ? "2, margin: 0.5" : "0.3", "}"));
  const Json& expected = numbers().at(name);
  const std::vector<double> losses = logged("loss", false);
  ASSERT_EQ(losses.size(), 3u);
  const auto theirs = expected.at("losses").get<std::vector<double>>();
  for (size_t i = 0; i < theirs.size(); ++i) EXPECT_NEAR(losses[i], theirs[i], 2e-6) << i;
  if (!expected.contains("norms")) return;
  const std::vector<double> norms = logged("grad_norm", false);
  const std::vector<double> margins = logged("margin", true);
  const bool same_rewards = name != "ipo";  // theirs are of whole answers, whatever the loss
  for (size_t i = 0; i < 3; ++i) {
    const double norm = expected.at("norms")[i];
    EXPECT_NEAR(norms[i], norm, 1e-5 * norm) << i;
    // Theirs are measured before an update.
    if (i > 0 && same_rewards) {
      EXPECT_NEAR(margins[i - 1], expected.at("margins")[i], 1e-5) << i;
    }
  }
  folder_.output("export --model run/last --output home");
  const std::string bytes = read_file(folder_.path("home/model.safetensors"));
  for (const auto& [tensor, value] : parse_safetensors(bytes, "home")) {
    double sum = 0;
    for (const double x : value.to(DType::kFloat64).to_vector<double>()) sum += std::abs(x);
    const double theirs_sum = expected.at("sums").at(tensor);
    EXPECT_NEAR(sum, theirs_sum, 1e-5 * theirs_sum) << tensor;
  }
}

// Its reference is the model of before the training, not of before the resume.
TEST_F(PreferenceTraining, AResumeKeepsTheReference) {
  const std::vector<std::string> options = {"training.max_steps=6", "training.save_steps=3"};
  ASSERT_EQ(train("whole", options), 0) << folder_.messages();
  EXPECT_THAT(folder_.messages(), HasSubstr("preference.loss without init_from"));
  ASSERT_EQ(train("parts", {"training.max_steps=3", "training.save_steps=3"}), 0);
  ASSERT_EQ(train("parts", options), 0) << folder_.messages();
  expect_equal(folder_.result("whole"), folder_.result("parts"));
  // Other examples have no reference.
  const std::string file = folder_.path("train.answers.jsonl");
  const std::string bytes = read_file(file);
  const size_t end = bytes.find('\n') + 1;
  write_file(file, bytes.substr(end) + bytes.substr(0, end));
  folder_.forget_messages();
  EXPECT_EQ(train("parts", {"training.max_steps=9"}), 2);
  EXPECT_THAT(folder_.messages(), HasSubstr("the examples of data.train are not those"));
  write_file(file, bytes.substr(end));
  EXPECT_NE(train("parts", {"training.max_steps=9"}), 0);
  EXPECT_THAT(folder_.messages(), HasSubstr("Changed since the checkpoint"));
}

TEST_F(PreferenceTraining, PartsHaveTheSameLoss) {
  const auto losses = [&](const char* splits) {
    std::filesystem::remove_all(folder_.path("run"));
    EXPECT_EQ(train("run", {"training.max_steps=4", "training.logging_steps=1", "model.dropout=0",
                            "model.attention_dropout=0", concat("training.splits=", splits)}),
              0)
        << folder_.messages();
    return logged("loss", false);
  };
  const std::vector<double> whole = losses("1"), parts = losses("3");
  ASSERT_EQ(whole.size(), 4u);
  ASSERT_EQ(parts.size(), 4u);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], parts[i], 1e-5);
}

// Rewards of dpo are beta times what the model finds likelier than the reference, by answer; kl is
// what it finds less likely, by token.
TEST_F(PreferenceTraining, TheDivergenceIsThatOfTheRewards) {
  ASSERT_EQ(train("run", {"training.max_steps=20", "training.eval_steps=10"}), 0)
      << folder_.messages();
  const std::vector<double> divergences = logged("kl", true);
  const std::vector<double> chosen = logged("chosen_reward", true);
  const std::vector<double> rejected = logged("rejected_reward", true);
  ASSERT_EQ(divergences.size(), 2u);
  EXPECT_NE(divergences[0], divergences[1]);
  for (size_t i = 0; i < 2; ++i) {
    const double tokens = -20 * (chosen[i] + rejected[i]) / 0.5 / divergences[i];
    EXPECT_GE(tokens, 2 * 20 - 1e-3) << "two answers of 20 examples";
    EXPECT_NEAR(tokens, std::round(tokens), 1e-3);
  }
}

TEST_F(PreferenceTraining, LearnsAndAnswers) {
  ASSERT_EQ(train("run", {"training.max_steps=120", "preference.loss=orpo"}), 0)
      << folder_.messages();
  EXPECT_GT(logged("accuracy", true).back(), 75) << "half of them are right by chance";
  const Json figures = Json::parse(folder_.output("evaluate --json --model run --data valid"));
  EXPECT_GT(figures.at("likelier"), 75);
  EXPECT_EQ(figures.at("prompts"), 20);
  EXPECT_EQ(lines_of(folder_.output("generate --model run", R"({"text": "ba ce"})"
                                                            "\n"))
                .size(),
            1u);
}

}  // namespace
}  // namespace tapestry
