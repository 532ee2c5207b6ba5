// deterministic: portable gives one answer on every processor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "core/cpu/portable_bits.h"
#include "core/cpu/vector_target.h"
#include "tests/apps/run/kept_results.h"
#include "tests/apps/tiny_runs.h"
#include "tests/environment_variable.h"
#include "tests/golden.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

/// What the processors differ in, from the best that this one has on: the vectors, OpenBLAS's core,
/// and what multiplies bfloat16.
struct Kernels {
  std::string vectors;
  std::optional<std::string> core = {}, bfloat16 = {};
};
std::vector<Kernels> kernels_of_this_processor() {
  std::vector<Kernels> all = {{vector_target()}};
  if (vector_target() == "AVX3") all.push_back({"AVX2", "Haswell", "float32"});
  if (vector_target().starts_with("AVX")) all.push_back({"AVX2", "Sandybridge", "amx_emulated"});
  return all;
}

using TaskAndType = std::pair<std::string, std::string>;
class PortableBits : public testing::TestWithParam<TaskAndType> {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_portable_bits(); !why.empty()) GTEST_SKIP() << why;
  }

  /// The hash of the weights after some updates, and all answers of the run.
  std::string results_with(const Kernels& kernels) {
    const EnvironmentVariable vectors("TAPESTRY_VECTORS", kernels.vectors);
    const EnvironmentVariable core("OPENBLAS_CORETYPE", kernels.core);
    const EnvironmentVariable bfloat16("TAPESTRY_BFLOAT16", kernels.bfloat16);
    const auto& [task, dtype] = GetParam();
    std::filesystem::remove_all(folder_.path("run"));
    EXPECT_EQ(
        folder_.train(task, "run",
                      {"deterministic=portable", concat("dtype=", dtype), "training.max_steps=12"}),
        0)
        << folder_.messages();
    std::string results = hash_of(parse_safetensors(
        read_checkpoint(folder_.path("run/last")).at("model.safetensors"), "model.safetensors"));
    for (const auto& [command, input] : questions_of(task)) {
      results += concat('\n', command, '\n', folder_.output(command, input));
    }
    return results;
  }

  TinyRunFolder folder_{concat("portable-", GetParam().first, '-', GetParam().second)};
};

// The kept hash is that of all processors, compilers and build types.
TEST_P(PortableBits, AreThoseOfEveryProcessor) {
  const std::vector<Kernels> all = kernels_of_this_processor();
  const std::string results = results_with(all.front());
  for (const Kernels& kernels : all) {
    EXPECT_EQ(results_with(kernels), results)
        << kernels.vectors << ' ' << kernels.core.value_or("");
  }
  GoldenFile golden("portable.txt", "Task, dtype, and hash of the weights after 12 updates.");
  const auto& [task, dtype] = GetParam();
  const std::string name = concat(task, ", ", dtype);
  EXPECT_TRUE(writes_golden() || golden.has(name)) << name;
  golden.expect(name, results.substr(0, results.find('\n')));
}

std::vector<TaskAndType> tasks_and_types() {
  std::vector<TaskAndType> all = {{"regression", "float32"}};
  for (const auto& [task, config] : kTinyTasks) {
    for (const char* dtype : {"float32", "bfloat16"}) all.emplace_back(task, dtype);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Tasks, PortableBits, testing::ValuesIn(tasks_and_types()),
                         [](const auto& info) {
                           return concat(info.param.first, '_', info.param.second);
                         });

// What validation computes by products of many rows, scoring does by few rows of packed weights.
TEST(PortableInferenceTest, ValidationAndScoreAgreeToTheLastBit) {
  if (const std::string why = why_no_portable_bits(); !why.empty()) GTEST_SKIP() << why;
  const TinyRunFolder folder("portable-score");
  ASSERT_EQ(folder.train("clm", "run", {"deterministic=portable"}), 0) << folder.messages();
  const std::string once = folder.output("score --model run --target valid.src --batch-size 1", "");
  EXPECT_EQ(folder.output("score --model run --target valid.src --batch-size 16", ""), once);
}

TEST(PortableConfigTest, WhatHasNoPortableBitsIsRefused) {
  if (const std::string why = why_no_portable_bits(); !why.empty()) GTEST_SKIP() << why;
  const TinyRunFolder folder("portable-config");
  EXPECT_NE(folder.train("clm", "run", {"deterministic=portable", "dtype=float64"}), 0);
  EXPECT_THAT(folder.messages(), HasSubstr("'deterministic' portable is for dtype: float32 and "
                                           "bfloat16, got float64"));
}

}  // namespace
}  // namespace tapestry
