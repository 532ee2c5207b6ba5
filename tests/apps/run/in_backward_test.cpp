// training.optimizer_in_backward: the same run in less memory.
#include <gmock/gmock.h>

#include "apps/run/flight_recorder.h"
#include "apps/run/memory_plan.h"
#include "apps/tasks/answers/placeholders.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using testing::Not;

using Overrides = std::vector<std::string>;

Overrides with(Overrides overrides, const std::string& last) {
  overrides.push_back(last);
  return overrides;
}

class InBackwardTest : public testing::Test {
 protected:
  void train(const std::string& task, const std::string& run, const Overrides& overrides) const {
    ASSERT_EQ(folder_.train(task, run, overrides), 0) << task << folder_.messages();
  }
  TinyRunFolder folder_{"in-backward"};
  static constexpr const char* kOn = "training.optimizer_in_backward=true";
};

// Each run stops and goes on with another number of threads.
TEST_F(InBackwardTest, ARunHasTheSameBits) {
  const std::vector<std::pair<std::string, Overrides>> runs = {
      {"translation", {}},
      {"clm", {"model.tie_word_embeddings=true", "training.ema_decay=0.9"}},
      {"clm", {"training.recompute=true", "model.dropout=0.1", "training.optimizer={name: muon}"}},
      {"clm", {"training.lora={rank: 2, modules_to_save: [\"*norm*\"]}"}},
      {"mlm", {"dtype=bfloat16", "training.optimizer.state_dtype=bfloat16"}},
      {"clm", {"training.optimizer.state_dtype=float8"}},
      {"preference", {"training.freeze=[\"*embed*\"]"}},
      {"images", {"training.optimizer={name: sgd}", "training.clip_value=0.01"}},
      {"clm", {"training.max_grad_norm=0.5", "training.max_grad_norm_of=former"}},
      {"regression", {}}};
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& [task, extra] = runs[i];
    Overrides overrides = {"training.max_grad_norm=0", "training.gradient_accumulation_steps=1",
                           "training.max_steps=20", "training.eval_steps=0",
                           "training.save_steps=0"};
    overrides.insert(overrides.end(), extra.begin(), extra.end());
    const std::string after = concat("after", i), in = concat("in", i);
    train(task, after, with(overrides, "threads=1"));
    const Overrides on = with(overrides, kOn);
    train(task, in, with(with(on, "threads=2"), "--stop-at=9"));
    train(task, in, with(on, "threads=1"));
    SCOPED_TRACE(concat(task, ' ', testing::PrintToString(extra)));
    expect_equal(folder_.result(in), folder_.result(after));
    EXPECT_THAT(folder_.output(concat("replay ", in, " --step 19")),
                HasSubstr("loss and gradient norm have the bits that the run recorded"));
    const auto records = [&](const std::string& run) {
      return FlightRecorder::read(folder_.path(run + "/" + FlightRecorder::kFile));
    };
    ASSERT_EQ(records(in).size(), records(after).size());
    for (size_t at = 0; at < records(in).size(); ++at) {
      EXPECT_TRUE(records(in)[at].same_bits(records(after)[at])) << at;
      EXPECT_EQ(records(in)[at].layers, records(after)[at].layers) << at;
    }
  }
}

TEST_F(InBackwardTest, IsRefusedWhereItCannotHold) {
  const auto message = [&](const Overrides& overrides) -> std::string {
    Overrides all = {"training.max_grad_norm=0", "training.gradient_accumulation_steps=1"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    try {
      load_config(folder_.path("clm.yaml"), with(all, kOn));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string key = "'training.optimizer_in_backward' ";
  EXPECT_EQ(message({}), "");
  EXPECT_EQ(message({"training.clip_value=1"}), "");
  EXPECT_THAT(message({"training.gradient_accumulation_steps=2"}),
              HasSubstr(key + "needs gradient_accumulation_steps: 1, got 2: "));
  EXPECT_THAT(message({"training.splits=4"}), HasSubstr(key + "needs splits: 1, got 4: "));
  EXPECT_THAT(
      message({"training.max_grad_norm=0.5"}),
      HasSubstr(key + "needs max_grad_norm_of: former with max_grad_norm: 0.5, got update: "));
  EXPECT_EQ(message({"training.max_grad_norm=0.5", "training.max_grad_norm_of=former"}), "");
  EXPECT_THAT(message({"device=cuda"}), HasSubstr(key + "is for device: cpu, got device: cuda"));
}

TEST_F(InBackwardTest, ALossThatIsNotFiniteIsSkipped) {
  const Overrides ruinous = {kOn,
                             "training.max_grad_norm=0",
                             "training.gradient_accumulation_steps=1",
                             "training.eval_steps=0",
                             "training.lr_scheduler_type=constant",
                             "training.warmup_steps=0",
                             "training.learning_rate=1e38"};
  EXPECT_EQ(folder_.train("clm", "run", ruinous), 4);
  EXPECT_THAT(folder_.messages(), HasSubstr("update 2 is skipped: loss "));
  EXPECT_THAT(folder_.messages(), HasSubstr("incident-2 keeps the weights"));
  EXPECT_THAT(folder_.messages(), HasSubstr("10 updates in a row had no finite loss"));
}

// The rate ruins the weights in the first update, so that the second has a loss, but gradients that
// overflow on their way.
TEST_F(InBackwardTest, AGradientThatIsNotFiniteEndsTheRun) {
  const Overrides ruinous = {"training.max_grad_norm=0",
                             "training.gradient_accumulation_steps=1",
                             "training.eval_steps=0",
                             "training.save_steps=1",
                             "training.lr_scheduler_type=constant",
                             "training.warmup_steps=0",
                             "training.optimizer={name: sgd}",
                             "training.learning_rate=1e3",
                             "training.max_steps=4"};
  EXPECT_EQ(folder_.train("clm", "run", with(ruinous, kOn)), 4);
  EXPECT_THAT(folder_.messages(), HasSubstr("[train] update 2: the gradient of "));
  EXPECT_THAT(folder_.messages(), HasSubstr(" is not finite, and "));
  EXPECT_THAT(folder_.messages(), HasSubstr(" parameters were updated before it in backward; "));
  EXPECT_THAT(folder_.messages(), Not(HasSubstr("incident-")));
  // From the last checkpoint on the update is skipped, as it is in a run that never had the key.
  EXPECT_TRUE(std::filesystem::exists(folder_.path("run/checkpoint-1")));
  folder_.forget_messages();
  EXPECT_EQ(folder_.train("clm", "run", ruinous), folder_.train("clm", "other", ruinous));
  EXPECT_THAT(folder_.messages(), HasSubstr("update 2 is skipped: gradient norm "));
  expect_equal(folder_.result("run"), folder_.result("other"));
}

TEST_F(InBackwardTest, ThePlanKnowsTheSmallerMemory) {
  const auto plan_of = [&](const std::string& task, const Overrides& overrides) {
    Config config =
        load_config(folder_.path(task + ".yaml"), with(with(overrides, "training.max_grad_norm=0"),
                                                       "training.gradient_accumulation_steps=1"));
    return *plan_memory(config, placeholder_tokenizers(config, [](const std::string&) {}),
                        /*resident=*/0);
  };
  for (const std::string task : {"translation", "clm", "images"}) {
    const Overrides large = {
        "model.hidden_size=128", "model.intermediate_size=512",
        task == "translation" ? "model.decoder_layers=4" : "model.num_hidden_layers=4"};
    const MemoryPlan after = plan_of(task, large), in = plan_of(task, with(large, kOn));
    EXPECT_EQ(after.gradients, 4 * after.parameters);
    EXPECT_GT(in.gradients, 0);
    EXPECT_LT(in.gradients, after.gradients / 2) << task;
    EXPECT_LT(in.tensors, after.tensors - after.gradients / 2) << task;
    EXPECT_EQ(in.optimizer, after.optimizer);
    // Uses of parameters are counted, too.
    EXPECT_NEAR(static_cast<double>(in.activations), static_cast<double>(after.activations),
                1e-3 * static_cast<double>(after.activations));
  }
}

}  // namespace
}  // namespace tapestry
