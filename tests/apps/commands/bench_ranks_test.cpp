// `mpirun ... tapestry bench`: what several ranks measure together. Skipped where there is no MPI.
#include <gmock/gmock.h>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

constexpr const char* kMpirun =
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
    "OMPI_MCA_btl_vader_single_copy_mechanism=none ASAN_OPTIONS=detect_leaks=0 "
    "mpirun --oversubscribe --bind-to none -n 2 ";

bool has_mpi() {
  const std::string module = std::filesystem::path(tapestry_binary()).parent_path().string() +
                             "/../lib/tapestry/libtapestry_mpi.so";
  return std::system("command -v mpirun >/dev/null") == 0 &&
         (std::filesystem::exists(module) || getenv("TAPESTRY_REQUIRE_MPI") != nullptr);
}

TEST(BenchRanks, MeasureTheLinkAndPredict) {
  if (!has_mpi()) GTEST_SKIP() << "no MPI";
  const TinyRunFolder folder{"bench_ranks"};
  const std::string command =
      concat("cd '", folder.path(""), "' && ", kMpirun, tapestry_binary(),
             " bench clm.yaml --shape 4x12 --steps 3 --warmup-steps 1 --json figures threads=1 "
             "training.gradient_accumulation_steps=6 >out 2>err");
  ASSERT_EQ(std::system(command.c_str()), 0) << read_file(folder.path("err"));
  const Json figures = Json::parse(read_file(folder.path("figures")));
  EXPECT_EQ(figures.at("ranks"), 2);
  EXPECT_EQ(figures.at("hosts"), 1);
  EXPECT_EQ(figures.at("micro_batches_per_rank"), 3);
  for (const char* name : {"link_latency_s", "link_bytes_per_s", "micro_batch_s", "update_s",
                           "gradient_bytes", "exchange_step_s", "exchange_predicted_step_s"}) {
    EXPECT_GT(figures.at(name).get<double>(), 0) << name;
  }
  ASSERT_EQ(figures.at("prediction").size(), 6u);
  const Json& row = figures.at("prediction").front();
  EXPECT_EQ(row.at("ranks"), 2);
  EXPECT_EQ(row.at("shard"), "none");
  EXPECT_EQ(row.at("step_s"), figures.at("exchange_predicted_step_s"));
  // Rank 0 speaks, once.
  const std::string out = read_file(folder.path("out"));
  EXPECT_EQ(out.find("link_latency_s"), out.rfind("link_latency_s"));
  EXPECT_THAT(out, HasSubstr("micro-batches a rank for 90 %"));
}

TEST(BenchRanks, AloneThereIsNothingToSay) {
  const TinyRunFolder folder{"bench_alone"};
  EXPECT_THAT(folder.output("bench clm.yaml --shape 4x12 --steps 1 --warmup-steps 0"),
              Not(HasSubstr("link_")));
}

}  // namespace
}  // namespace tapestry
