// Trainings on several ranks that mpirun starts: every task has the same bits on 1, 2 and 4 ranks.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

// Four micro-batches an update, each a part; matrices of several chunks, so that there are several
// buckets. A validation in between and one at the end.
const std::vector<std::string> kRun = {"training.gradient_accumulation_steps=4",
                                       "distributed.parts=4",
                                       "distributed.bucket_mb=0.1",
                                       "training.max_steps=6",
                                       "training.eval_steps=3",
                                       "training.save_steps=3",
                                       "training.logging_steps=2"};

template <class Param>
class RanksOf : public testing::TestWithParam<Param> {
 protected:
  virtual std::string task() const = 0;
  void SetUp() override {
    if (!can_start_ranks()) GTEST_SKIP() << "no mpirun, or built without MPI";
  }
  TinyRunFolder::Outcome train(int ranks, const std::string& run,
                               std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.begin(), kRun.begin(), kRun.end());
    if (task() != "regression" && task() != "images") {
      overrides.push_back("model.intermediate_size=1100");
    }
    std::string arguments;
    for (const std::string& override : overrides) arguments += " '" + override + "'";
    return folder_.run_ranks(ranks, concat("train ", task(), ".yaml output_dir=", run, arguments));
  }
  // Of lines of metrics, what does not depend on how many ranks there are.
  std::vector<nlohmann::json> metrics(const std::string& run) const {
    std::vector<nlohmann::json> lines = folder_.metrics(run);
    for (nlohmann::json& line : lines) {
      for (const char* key : {"ranks", "exchange_share", "slowest_rank", "slowest_over_mean"}) {
        line.erase(key);
      }
    }
    return lines;
  }
  TinyRunFolder folder_ = TinyRunFolder("ranks");
};

class RanksTest : public RanksOf<std::string> {
 protected:
  std::string task() const override { return GetParam(); }
};

TEST_P(RanksTest, AnyNumberOfThemHasTheSameBits) {
  const TinyRunFolder::Outcome alone = train(1, "alone");
  ASSERT_EQ(alone.code, 0) << alone.err;
  for (const int ranks : {2, 4}) {
    for (const std::string shard : {"none", "optimizer"}) {
      SCOPED_TRACE(concat(ranks, " ranks, shard ", shard));
      const std::string run = concat("run-", ranks, '-', shard);
      const TinyRunFolder::Outcome outcome = train(ranks, run, {"distributed.shard=" + shard});
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      expect_equal(folder_.result("alone"), folder_.result(run));
      EXPECT_EQ(metrics("alone"), metrics(run));
      EXPECT_THAT(outcome.err,
                  HasSubstr(concat(ranks, " ranks on 1 host: 4 parts of 1 micro-batch")));
    }
  }
}

// A run goes on where it was, with more ranks or fewer.
TEST_P(RanksTest, AnotherNumberOfThemGoesOn) {
  ASSERT_EQ(train(1, "alone", {"training.eval_steps=2"}).code, 0);
  int64_t steps = 0;
  for (const int ranks : {2, 4, 1}) {
    const std::string shard = ranks == 4 ? "optimizer" : "none";
    const TinyRunFolder::Outcome outcome =
        train(ranks, "elastic",
              {"training.eval_steps=2", concat("training.max_steps=", steps + 2),
               "distributed.shard=" + shard});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const std::string resumed = steps > 0 ? concat("resuming after update ", steps) : "";
    EXPECT_THAT(outcome.err, HasSubstr(resumed));
    steps += 2;
  }
  expect_equal(folder_.result("alone"), folder_.result("elastic"));
}

using NormsOfRanks = RanksTest;

// Running statistics go through the micro-batches one after the other, whichever rank has them.
TEST_P(NormsOfRanks, RunningStatisticsHaveTheSameBits) {
  ASSERT_EQ(train(1, "alone", {"model.norm=batchnorm"}).code, 0);
  for (const int ranks : {2, 4}) {
    const std::string run = concat("run-", ranks);
    const TinyRunFolder::Outcome outcome = train(ranks, run, {"model.norm=batchnorm"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    expect_equal(folder_.result("alone"), folder_.result(run));
  }
}

// The divisor of the loss is the sum of the weights over all ranks.
class WeightsOfRanks : public RanksTest {};

TEST_P(WeightsOfRanks, AnyNumberOfRanksHasTheSameBits) {
  std::string weights;
  for (size_t i = 0; i < lines_of(read_file(folder_.path("train.src"))).size(); ++i) {
    const double size = std::pow(10, double(i * 31 % 8) - 3);  // so many that sums lose digits
    weights += concat(size * std::sqrt(double(1 + i * 7919 % 101)), '\n');
  }
  folder_.write("weights", weights);
  const std::vector<std::string> weighted = {"data.train.pair_weights=weights"};
  for (const int ranks : {1, 2, 4}) {
    const TinyRunFolder::Outcome outcome = train(ranks, concat("run-", ranks), weighted);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    expect_equal(folder_.result("run-1"), folder_.result(concat("run-", ranks)));
    EXPECT_EQ(metrics("run-1"), metrics(concat("run-", ranks)));
  }
  ASSERT_EQ(train(1, "plain").code, 0);
  EXPECT_NE(folder_.result("plain").at("model.safetensors"),
            folder_.result("run-1").at("model.safetensors"));
}

// The others would wait for the rank that stopped.
class StopsOfRanks : public RanksTest {};

TEST_P(StopsOfRanks, AllStopAtTheSameUpdate) {
  const std::string run = concat("train ", GetParam(), ".yaml output_dir=run",
                                 " training.gradient_accumulation_steps=4 --stop-at=");
  const TinyRunFolder::Outcome differ =
      folder_.run_ranks(2, concat(run, "2 : -np 1 '", tapestry_binary(), "' ", run, 3));
  EXPECT_EQ(differ.code, 2);
  EXPECT_THAT(differ.err, HasSubstr("expected the command line of rank 0 everywhere"));
  EXPECT_THAT(differ.err, HasSubstr("--stop-at=3"));
  const TinyRunFolder::Outcome agree = folder_.run_ranks(2, run + "2");
  EXPECT_EQ(agree.code, 0);
  EXPECT_THAT(agree.err, HasSubstr("stopped after update 2 as it was asked to"));
}

// A rank would average the roundings of weights whose float32 values another rank has.
TEST_P(RanksTest, AveragesOfSlicesAreRefusedInMixedPrecision) {
  const std::vector<std::string> overrides = {"dtype=bfloat16", "training.ema_decay=0.9"};
  std::vector<std::string> sharded = overrides;
  sharded.emplace_back("distributed.shard=optimizer");
  const TinyRunFolder::Outcome outcome = train(2, "sharded", sharded);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("training.ema_decay with dtype bfloat16 needs "
                                     "distributed.shard=none on 2 ranks"));
  if (GetParam() != "translation") return;
  ASSERT_EQ(train(1, "alone", overrides).code, 0);
  ASSERT_EQ(train(2, "whole", overrides).code, 0);
  expect_equal(folder_.result("alone"), folder_.result("whole"));
}

// A slice may end within a block.
TEST_P(RanksTest, StatesInBlocksAreForWholeStates) {
  if (GetParam() != "translation") return;
  const std::vector<std::string> overrides = {"training.optimizer.state_dtype=float8"};
  const TinyRunFolder::Outcome outcome =
      train(2, "sharded", {overrides[0], "distributed.shard=optimizer"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("training.optimizer.state_dtype float8 needs "
                                     "distributed.shard=none on 2 ranks"));
  ASSERT_EQ(train(1, "alone", overrides).code, 0);
  ASSERT_EQ(train(2, "whole", overrides).code, 0);
  expect_equal(folder_.result("alone"), folder_.result("whole"));
}

// Options whose effect could depend on which rank has what.
struct RankOptions {
  std::string name;
  std::string task;
  std::vector<std::string> overrides;
};
void PrintTo(const RankOptions& options, std::ostream* out) { *out << options.name; }

// A matrix that Muon makes orthogonal belongs to one rank as a whole. Averages of rounded weights
// whose masters other ranks have would be other ones.
std::vector<RankOptions> rank_options() {
  const std::string muon = "training.optimizer={name: muon, normuon_beta2: 0.9}";
  std::vector<RankOptions> all;
  for (const std::string task : {"translation", "images"}) {
    all.push_back({task + "_muon", task, {muon, "training.ema_decay=0.9"}});
    all.push_back({task + "_muon_rounded", task, {muon, "dtype=bfloat16", "training.ema_decay=0"}});
  }
  all.push_back({"states_rounded",
                 "translation",
                 {"training.optimizer={name: adamw, state_dtype: bfloat16}", "dtype=bfloat16",
                  "training.ema_decay=0"}});
  all.push_back({"texts_drawn",
                 "translation",
                 {"tokenizer={algorithm: bpe, vocab_size: 40, sampling: {source: {dropout: 0.2}, "
                  "target: {dropout: 0.2}}}",
                  "training.word_dropout=0.2", "training.r_drop=5"}});
  for (const std::string task : {"clm", "mlm"}) {
    all.push_back(
        {task + "_documents", task, {"data.packing=best_fit", "data.document_mask=true"}});
  }
  return all;
}

class OptionsOfRanks : public RanksOf<RankOptions> {
 protected:
  std::string task() const override { return GetParam().task; }
};

TEST_P(OptionsOfRanks, AnyNumberOfRanksHasTheSameBits) {
  ASSERT_EQ(train(1, "alone", GetParam().overrides).code, 0);
  for (const int ranks : {2, 4}) {
    for (const std::string shard : {"none", "optimizer"}) {
      SCOPED_TRACE(concat(ranks, " ranks, shard ", shard));
      const std::string run = concat(ranks, '-', shard);
      std::vector<std::string> sharded = GetParam().overrides;
      sharded.push_back("distributed.shard=" + shard);
      const TinyRunFolder::Outcome outcome = train(ranks, run, sharded);
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      expect_equal(folder_.result("alone"), folder_.result(run));
      EXPECT_EQ(metrics("alone"), metrics(run));
    }
  }
}

TEST_P(OptionsOfRanks, AnotherNumberOfThemGoesOn) {
  std::vector<std::string> overrides = GetParam().overrides;
  overrides.emplace_back("training.eval_steps=2");
  ASSERT_EQ(train(1, "alone", overrides).code, 0);
  int64_t steps = 0;
  for (const int ranks : {2, 4, 1}) {
    std::vector<std::string> part = overrides;
    part.push_back(concat("training.max_steps=", steps += 2));
    part.emplace_back("distributed.shard=optimizer");
    const TinyRunFolder::Outcome outcome = train(ranks, "elastic", part);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  expect_equal(folder_.result("alone"), folder_.result("elastic"));
}

INSTANTIATE_TEST_SUITE_P(All, OptionsOfRanks, testing::ValuesIn(rank_options()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Translation, WeightsOfRanks, testing::Values("translation"));
INSTANTIATE_TEST_SUITE_P(Clm, NormsOfRanks, testing::Values("clm"));
INSTANTIATE_TEST_SUITE_P(Clm, StopsOfRanks, testing::Values("clm"));
INSTANTIATE_TEST_SUITE_P(Tasks, RanksTest, testing::ValuesIn([] {
                           std::vector<std::string> tasks = {"regression"};
                           for (const auto& [task, config] : kTinyTasks) tasks.push_back(task);
                           return tasks;
                         }()),
                         [](const auto& info) { return info.param; });

// The divergence from a teacher is shared out as the losses are.
TEST(TaughtRanksTest, HaveTheSameBits) {
  if (!can_start_ranks()) GTEST_SKIP() << "no mpirun, or built without MPI";
  const TinyRunFolder folder("ranks-taught");
  ASSERT_EQ(folder.train("translation", "teacher", {"training.max_steps=20"}), 0);
  for (const int ranks : {1, 2}) {
    std::string arguments =
        concat("train translation.yaml training.teacher=teacher output_dir=of-", ranks);
    for (const std::string& override : kRun) arguments += ' ' + override;
    const TinyRunFolder::Outcome outcome = folder.run_ranks(ranks, arguments);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  expect_equal(folder.result("of-1"), folder.result("of-2"));
  const auto one = folder.metrics("of-1"), two = folder.metrics("of-2");
  ASSERT_EQ(one.size(), two.size());
  EXPECT_GT(one.at(0).at("teacher_divergence"), 0);
  EXPECT_EQ(one.at(0).at("teacher_divergence"), two.at(0).at("teacher_divergence"));
}

}  // namespace
}  // namespace tapestry
