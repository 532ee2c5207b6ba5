// The flight recorder: what a run remembers, what it keeps of an update that goes wrong, and that
// the update is computed again to the same bits.
#include <gmock/gmock.h>

#include <cmath>

#include "apps/run/flight_recorder.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kSameBits = "loss and gradient norm have the bits that the run recorded";

std::vector<int64_t> steps_of(const std::vector<UpdateRecord>& records) {
  std::vector<int64_t> steps;
  for (const UpdateRecord& record : records) steps.push_back(record.step);
  return steps;
}

class IncidentTest : public testing::Test {
 protected:
  std::vector<UpdateRecord> records(const std::string& run = "run") const {
    return FlightRecorder::read(folder_.path(run + "/" + FlightRecorder::kFile));
  }
  std::vector<std::string> incidents() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path("run"))) {
      const std::string name = entry.path().filename();
      if (name.starts_with("incident-")) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  int train(std::vector<std::string> overrides) const {
    folder_.forget_messages();
    overrides.insert(overrides.begin(),
                     {"training.eval_steps=0", "training.lr_scheduler_type=constant"});
    return folder_.train("clm", "run", overrides);
  }

  TinyRunFolder folder_{"incident"};
};

TEST_F(IncidentTest, AnyUpdateOfAnyTaskIsComputedAgain) {
  std::vector<std::string> tasks = {"regression"};
  for (const auto& [task, config] : kTinyTasks) tasks.push_back(task);
  for (const std::string& task : tasks) {
    ASSERT_EQ(folder_.train(task, task, {"training.max_steps=13", "training.save_steps=10"}), 0)
        << task << folder_.messages();
    const std::string out = folder_.output(concat("replay ", task, " --step 12 --threads 2"));
    EXPECT_THAT(out, AllOf(HasSubstr("checkpoint-10 by way of 1 update"), HasSubstr(kSameBits),
                           HasSubstr("all are finite"), HasSubstr("micro-batch 1, ")))
        << task;
    fs::remove_all(folder_.path(concat(task, "/checkpoint-10")));
  }
  EXPECT_THAT(folder_.output("replay clm --step 3"), HasSubstr(kSameBits));  // from the beginning
  EXPECT_THAT(folder_.output("replay clm"), HasSubstr("update       13  loss "));
  EXPECT_EQ(folder_.run("replay clm --step 4 --texts -1").code, 2);
  EXPECT_EQ(folder_.run("replay nowhere --step 4").code, 2);
}

TEST_F(IncidentTest, AnUpdateThatIsNotFiniteIsKeptAndExplained) {
  EXPECT_EQ(train({"training.learning_rate=1e38", "training.warmup_steps=0"}), 4);
  ASSERT_EQ(incidents().size(), 1u) << folder_.messages();
  const std::string step = incidents().front().substr(incidents().front().find('-') + 1);
  EXPECT_THAT(folder_.messages(),
              HasSubstr(concat("incident-", step, " keeps the weights and the place of update ",
                               step, "; tapestry replay ")));
  const std::string out = folder_.output("replay run --step " + step);
  EXPECT_THAT(out, AllOf(HasSubstr("from run/incident-" + step), HasSubstr(kSameBits),
                         HasSubstr("first number that is none: forward, operation "),
                         HasSubstr("which is not finite either")));
  EXPECT_FALSE(fs::exists(folder_.path("run/incident-" + step + "/optimizer.safetensors")));
  EXPECT_THAT(folder_.output("replay run"), HasSubstr("incident-" + step + ": loss "));
}

TEST_F(IncidentTest, ALossThatJumpsIsKeptWithTheWeightsBeforeIt) {
  ASSERT_EQ(train({"training.max_steps=40", "training.save_steps=40"}), 0) << folder_.messages();
  EXPECT_THAT(incidents(), ElementsAre());
  train({"training.max_steps=45", "training.learning_rate=3", "training.divergence_patience=0"});
  EXPECT_THAT(folder_.messages(), HasSubstr("the loss jumped from about "));
  ASSERT_GE(incidents().size(), 1u) << folder_.messages();
  const std::string step = incidents().front().substr(incidents().front().find('-') + 1);
  EXPECT_THAT(folder_.output("replay run --step " + step),
              AllOf(HasSubstr("from run/incident-" + step), HasSubstr(kSameBits)));
}

TEST_F(IncidentTest, TheirNumberHasALimit) {
  EXPECT_EQ(
      train({"training.learning_rate=1e38", "training.warmup_steps=0", "training.incidents=0"}), 4);
  EXPECT_THAT(incidents(), ElementsAre());
}

TEST_F(IncidentTest, TheRingKnowsTheLastUpdatesWhateverHappens) {
  const std::vector<std::string> ring = {"training.flight_records=8", "training.max_steps=20"};
  ASSERT_EQ(train(ring), 0) << folder_.messages();
  EXPECT_THAT(steps_of(records()), ElementsAre(13, 14, 15, 16, 17, 18, 19, 20));
  const UpdateRecord last = records().back();
  EXPECT_GT(last.grad_norm, 0);
  EXPECT_GT(last.largest_activation.value_or(0), 0.1);
  EXPECT_LT(last.zero_gradients.value_or(1), 0.9);
  double squares = 0;
  for (const auto& [layer, norm] : last.layers) squares += norm * norm;
  EXPECT_NEAR(std::sqrt(squares), last.grad_norm, 1e-4 * last.grad_norm);

  // In two starts: the same lines.
  ASSERT_EQ(folder_.train("clm", "again",
                          {"training.eval_steps=0", "training.lr_scheduler_type=constant",
                           "training.flight_records=8", "training.max_steps=14"}),
            0);
  ASSERT_EQ(folder_.train("clm", "again",
                          {"training.eval_steps=0", "training.lr_scheduler_type=constant",
                           "training.flight_records=8", "training.max_steps=20"}),
            0);
  EXPECT_EQ(read_file(folder_.path("again/flight.jsonl")),
            read_file(folder_.path("run/flight.jsonl")));
}

// As after its file was lost: zeros stand before the first record.
TEST_F(IncidentTest, TheRingNeedNotBeginWithItsFirstLine) {
  const std::string path = folder_.path("flight.jsonl");
  UpdateRecord record;
  record.layers = {{"a", 2}};
  for (const int64_t step : {7000, 7001}) {  // each by a start of its own
    record.step = step;
    FlightRecorder recorder(path, /*records=*/10000, step - 1);
    EXPECT_TRUE(recorder.write(record));
  }
  EXPECT_GT(fs::file_size(path), 7000u * 100);
  EXPECT_THAT(steps_of(FlightRecorder::read(path)), ElementsAre(7000, 7001));
  {
    FlightRecorder shorter(path, /*records=*/3, 7001);
    record.step = 7002;
    EXPECT_TRUE(shorter.write(record));
  }
  EXPECT_THAT(steps_of(FlightRecorder::read(path)), ElementsAre(7002));
}

TEST_F(IncidentTest, ItCanBeOff) {
  ASSERT_EQ(train({"training.flight_records=0", "training.max_steps=2"}), 0);
  EXPECT_FALSE(fs::exists(folder_.path("run/flight.jsonl")));
}

// Anything may be in a file.
TEST_F(IncidentTest, ForeignLinesAreLeftOut) {
  UpdateRecord record;
  record.step = 7;
  record.loss = NAN;
  record.nll = INFINITY;
  record.layers = {{"a", 2}};
  const std::string line = to_json(record);
  folder_.write("flight.jsonl", concat("{\"step\": \"x\"}\n[]\n", std::string(9, '\0'), '\n', line,
                                       "   \n{\"step\": 1}\nnonsense"));
  const std::vector<UpdateRecord> read = FlightRecorder::read(folder_.path("flight.jsonl"));
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(to_json(read.front()), line);
  EXPECT_TRUE(read.front().same_bits(record));
  EXPECT_THAT(FlightRecorder::read(folder_.path("no such file")), ElementsAre());
}

TEST(LossWatchTest, TellsAJumpFromNoise) {
  LossWatch watch;
  const auto noisy = [](int i) { return 3 + 0.1 * ((i * 7919) % 13 - 6) / 6.; };
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(watch.jumps(noisy(i), 10)) << i;
  EXPECT_NEAR(watch.usual(), 3, 0.1);
  EXPECT_FALSE(watch.jumps(3.2, 10));
  EXPECT_TRUE(watch.jumps(6, 10));
  EXPECT_NEAR(watch.usual(), 3, 0.1);  // one loss does not make it usual
  EXPECT_FALSE(watch.jumps(NAN, 10));
  EXPECT_TRUE(watch.jumps(6, 10));
  EXPECT_FALSE(watch.jumps(0.5, 10));
  EXPECT_FALSE(watch.jumps(100, 0));
}

}  // namespace
}  // namespace tapestry
