// allow_bf16x3: what the commands say and do with it on processors with and without tiles, both of
// which the binary can be told that it runs on.
#include <gmock/gmock.h>

#include <cstdlib>
#include <optional>

#include "tests/apps/tiny_runs.h"
#include "tests/environment_variable.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

class Bf16x3Test : public testing::Test {
 protected:
  // The binary inherits it.
  void run_on(const char* kernel) {
    kernel_.reset();
    kernel_.emplace("TAPESTRY_BFLOAT16", kernel);
  }

  /// The losses of a training of a few updates.
  std::vector<double> losses(const std::string& run, const std::string& override) const {
    const auto outcome =
        folder_.run(concat("train clm.yaml training.max_steps=8 "
                           "training.logging_steps=1 training.eval_steps=0 "
                           "training.optimizer.name=sgd model.dropout=0 output_dir=",
                           run, ' ', override));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::vector<double> all;
    for (const nlohmann::json& entry : folder_.metrics(run)) {
      if (entry.contains("loss")) all.push_back(entry.at("loss"));
    }
    return all;
  }

  TinyRunFolder folder_{"bf16x3"};

 private:
  std::optional<EnvironmentVariable> kernel_;
};

TEST_F(Bf16x3Test, IsRefusedWithoutTilesWhereItStands) {
  run_on("float32");
  const std::string why =
      "'allow_bf16x3' needs a processor with AMX; this one multiplies bfloat16 on float32.\n";
  const auto given = folder_.run("train clm.yaml allow_bf16x3=true");
  EXPECT_EQ(given.code, 2);
  EXPECT_THAT(given.err, HasSubstr("command line: allow_bf16x3=true: " + why));
  folder_.write("on.yaml", "allow_bf16x3: true\n" + read_file(folder_.path("clm.yaml")));
  const auto written = folder_.run("bench on.yaml --shape 4x12");
  EXPECT_EQ(written.code, 2);
  EXPECT_THAT(written.err, HasSubstr("on.yaml:1:15: " + why));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("run")));
}

TEST_F(Bf16x3Test, TrainsNearFloat32AndSaysSo) {
  run_on("amx_emulated");
  const std::vector<double> full = losses("full", ""), split = losses("split", "allow_bf16x3=true");
  ASSERT_EQ(full.size(), split.size());
  ASSERT_GE(full.size(), 8u);
  double largest = 0;
  for (size_t i = 0; i < full.size(); ++i) {
    largest = std::max(largest, std::abs(full[i] - split[i]));
  }
  RecordProperty("largest", concat(largest));
  EXPECT_LT(largest, 1e-4);
  EXPECT_GT(largest, 0);
  EXPECT_NE(folder_.result("full").at("model.safetensors"),
            folder_.result("split").at("model.safetensors"));
  EXPECT_THAT(read_file(folder_.path("split/train.log")),
              HasSubstr(", float32 in three products, bfloat16 on amx_emulated"));
  // What it trained computes anywhere.
  run_on("float32");
  folder_.write("text", "ba ce\n");
  EXPECT_THAT(folder_.output("score --model split --target text"), Not(testing::IsEmpty()));
}

TEST_F(Bf16x3Test, BenchAndPlanKnowIt) {
  run_on("amx_emulated");
  const std::string bench = "bench clm.yaml --shape 4x12 --steps 1 --warmup-steps 0";
  EXPECT_THAT(folder_.output(bench), Not(HasSubstr("precision")));
  const std::string told = folder_.output(bench + " allow_bf16x3=true");
  EXPECT_THAT(told, HasSubstr("precision                          bf16x3\n"));
  EXPECT_THAT(told, HasSubstr("bfloat16_kernel                    amx_emulated\n"));
  // Packed operands take memory. Nothing fits, so that it measures no rates, which takes minutes.
  const auto planned = [&](const std::string& override) {
    const std::string needs = "the training needs ";
    const std::string text =
        folder_
            .run("plan clm.yaml training.batch_size=16384 training.memory_budget=1MB " + override)
            .err;
    EXPECT_THAT(text, HasSubstr(needs));
    return std::atof(text.c_str() + text.find(needs) + needs.size());
  };
  EXPECT_GT(planned("allow_bf16x3=true"), planned(""));
}

}  // namespace
}  // namespace tapestry
