// Training on a GPU (or its emulation) against the CPU: loss curves, mixed precision, resuming, and
// checkpoints that move between devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/build_info.h"
#include "tests/apps/tiny_runs.h"
#include "tests/core/cuda/need_gpu.h"

namespace tapestry {
namespace {

class CudaTrainingTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { NEED_GPU(); }
  // Ten updates, every one of them reported.
  int train(const std::string& run, std::vector<std::string> overrides) const {
    overrides.insert(overrides.end(), {"training.max_steps=10", "training.logging_steps=1",
                                       "training.eval_steps=0"});
    return folder_.train(GetParam(), run, overrides);
  }
  std::vector<double> losses(const std::string& run) const {
    std::vector<double> values;
    for (const auto& entry : folder_.metrics(run)) {
      if (entry["kind"] == "train") values.push_back(entry["loss"]);
    }
    return values;
  }
  void expect_near(const std::string& a, const std::string& b, double tolerance) const {
    const std::vector<double> x = losses(a), y = losses(b);
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(x[i], y[i], tolerance * std::abs(x[i])) << "update " << i + 1;
    }
  }

  TinyRunFolder folder_{"cuda"};
};

TEST_P(CudaTrainingTest, TheLossCurveIsTheCpus) {
  const auto train = [this](const std::string& run, std::vector<std::string> overrides) {
    // A CPU computes no padding (nn/layers/unpadded.h), and dropout draws by place: pairs of this
    // task that are padded much would have other draws.
    if (GetParam() == "translation") {
      overrides.insert(overrides.end(), {"model.dropout=0", "model.attention_dropout=0"});
    }
    return CudaTrainingTest::train(run, overrides);
  };
  ASSERT_EQ(train("cpu", {"device=cpu"}), 0) << folder_.messages();
  ASSERT_EQ(train("cuda", {"device=cuda"}), 0) << folder_.messages();
  ASSERT_EQ(train("mixed", {"device=cuda", "dtype=bfloat16"}), 0) << folder_.messages();
  expect_near("cpu", "cuda", 1e-5);
  EXPECT_THAT(read_file(folder_.path("cuda/starts.jsonl")),
              testing::HasSubstr("\"device\":\"" + device_name(parse_device("cuda"))));
  expect_near("cpu", "mixed", 0.01);
}

// What a GPU does not know is refused before data is read, also if nobody named the GPU.
TEST_P(CudaTrainingTest, AutomaticDevicesHaveItsRules) {
  for (const std::string device : {"auto", "cuda"}) {
    EXPECT_EQ(train(device, {"device=" + device, "training.max_grad_norm=0",
                             "training.gradient_accumulation_steps=1",
                             "training.optimizer_in_backward=true"}),
              2);
    EXPECT_THAT(folder_.messages(),
                testing::HasSubstr("'training.optimizer_in_backward' is for device: cpu, got"));
    EXPECT_FALSE(std::filesystem::exists(folder_.path(device))) << device;
    folder_.forget_messages();
  }
}

// The parts report their last update alone: nothing waits for the others.
TEST_P(CudaTrainingTest, AResumedRunHasTheSameBits) {
  for (const std::string dtype : {"dtype=float32", "dtype=bfloat16"}) {
    const std::string whole = "whole" + dtype, parts = "parts" + dtype;
    ASSERT_EQ(train(whole, {"device=cuda", dtype}), 0) << folder_.messages();
    for (const char* steps : {"training.max_steps=4", "training.max_steps=10"}) {
      ASSERT_EQ(folder_.train(GetParam(), parts,
                              {"device=cuda", dtype, "training.logging_steps=100",
                               "training.eval_steps=0", steps}),
                0)
          << folder_.messages();
    }
    expect_equal(folder_.result(whole), folder_.result(parts));
  }
}

TEST_P(CudaTrainingTest, GraphsHaveTheSameBits) {
  for (const std::string dtype : {"dtype=float32", "dtype=bfloat16"}) {
    const std::string plain = "plain" + dtype, graphs = "graphs" + dtype;
    ASSERT_EQ(train(plain, {"device=cuda", dtype}), 0) << folder_.messages();
    folder_.forget_messages();
    ASSERT_EQ(train(graphs, {"device=cuda", dtype, "cuda_graphs=true"}), 0) << folder_.messages();
    expect_equal(folder_.result(plain), folder_.result(graphs));
    EXPECT_THAT(folder_.messages(), testing::ContainsRegex("CUDA graphs: [1-9][0-9]* launched"));
  }
}

TEST_P(CudaTrainingTest, ACheckpointMovesBetweenDevices) {
  ASSERT_EQ(train("whole", {"device=cpu"}), 0) << folder_.messages();
  const std::vector<std::string> common = {"training.logging_steps=1", "training.eval_steps=0"};
  const auto go_on = [&](std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), common.begin(), common.end());
    return folder_.train(GetParam(), "moved", overrides);
  };
  ASSERT_EQ(go_on({"device=cpu", "training.max_steps=3"}), 0) << folder_.messages();
  ASSERT_EQ(go_on({"device=cuda", "dtype=bfloat16", "training.max_steps=7"}), 0)
      << folder_.messages();
  ASSERT_EQ(go_on({"device=cpu", "training.max_steps=10"}), 0) << folder_.messages();
  expect_near("whole", "moved", 0.01);
}

class CudaBatchNormTest : public CudaTrainingTest {};

// Running statistics of a bfloat16 model are float32: they and their moving average.
TEST_P(CudaBatchNormTest, MixedPrecisionKeepsFloat32Statistics) {
  const std::string norm = "model.norm=batchnorm";
  ASSERT_EQ(train("cpu", {"device=cpu", norm}), 0) << folder_.messages();
  ASSERT_EQ(train("mixed", {"device=cuda", "dtype=bfloat16", norm}), 0) << folder_.messages();
  expect_near("cpu", "mixed", 0.02);
  const auto statistics = [&](const std::string& run) {
    NamedTensors found;
    for (auto& [name, tensor] :
         parse_safetensors(folder_.result(run).at("model.safetensors"), run)) {
      if (name.find("running_") != std::string::npos) found.emplace_back(name, tensor);
    }
    return found;
  };
  const NamedTensors full = statistics("cpu"), mixed = statistics("mixed");
  ASSERT_EQ(full.size(), 2 * 2 + 2 * 3);
  ASSERT_EQ(mixed.size(), full.size());
  for (size_t i = 0; i < full.size(); ++i) {
    const auto x = full[i].second.to_vector<float>(), y = mixed[i].second.to_vector<float>();
    for (size_t j = 0; j < x.size(); ++j) {
      EXPECT_NEAR(x[j], y[j], 0.05 * std::max(1.0f, std::abs(x[j]))) << full[i].first;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaBatchNormTest, testing::Values("translation"));

INSTANTIATE_TEST_SUITE_P(All, CudaTrainingTest,
                         testing::Values("translation", "clm", "mlm", "classification", "images"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tapestry
