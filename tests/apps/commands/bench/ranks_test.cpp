// `mpirun ... tapestry bench`: what several ranks measure together. Skipped where there is no MPI.
#include <gmock/gmock.h>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

TEST(BenchRanks, MeasureTheLinkAndPredict) {
  if (!can_start_ranks()) GTEST_SKIP() << "no mpirun, or built without MPI";
  const TinyRunFolder folder{"bench_ranks"};
  const auto outcome = folder.run_ranks(
      2,
      "bench clm.yaml --shape 4x12 --steps 3 --warmup-steps 1 --json figures threads=1 "
      "training.gradient_accumulation_steps=6 distributed.shard=optimizer");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json figures = Json::parse(read_file(folder.path("figures")));
  EXPECT_EQ(figures.at("ranks"), 2);
  EXPECT_EQ(figures.at("hosts"), 1);
  EXPECT_EQ(figures.at("micro_batches_per_rank"), 3);
  for (const char* name : {"link_latency_s", "link_bytes_per_s", "micro_batch_s", "update_s",
                           "exchange_step_s", "exchange_predicted_step_s"}) {
    EXPECT_GT(figures.at(name).get<double>(), 0) << name;
  }
  ASSERT_EQ(figures.at("prediction").size(), 6u);
  const Json& row = figures.at("prediction").front();
  EXPECT_EQ(row.at("ranks"), 2);
  EXPECT_EQ(row.at("shard"), "none");
  EXPECT_EQ(figures.at("prediction").at(1).at("shard"), "optimizer");
  EXPECT_EQ(figures.at("prediction").at(1).at("step_s"), figures.at("exchange_predicted_step_s"));
  const std::string& out = outcome.out;
  EXPECT_EQ(out.find("link_latency_s"), out.rfind("link_latency_s"));  // rank 0 speaks, once
  EXPECT_THAT(out, HasSubstr("micro-batches a rank for 90 %"));
}

TEST(BenchRanks, AloneThereIsNothingToSay) {
  const TinyRunFolder folder{"bench_alone"};
  EXPECT_THAT(folder.output("bench clm.yaml --shape 4x12 --steps 1 --warmup-steps 0"),
              Not(HasSubstr("link_")));
}

}  // namespace
}  // namespace tapestry
