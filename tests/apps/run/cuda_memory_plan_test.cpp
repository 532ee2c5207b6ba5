// What a plan says of a GPU's memory, against what its allocator gives out.
#include <gmock/gmock.h>

#include <fstream>

#include "apps/run/memory_plan.h"
#include "apps/tasks/answers/placeholders.h"
#include "apps/tasks/dry_training.h"
#include "apps/tasks/models.h"
#include "apps/tasks/task.h"
#include "autograd/ops.h"
#include "core/allocator.h"
#include "core/build_info.h"
#include "tests/apps/tiny_runs.h"
#include "tests/core/cuda/need_gpu.h"

namespace tapestry {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void no_cuda_note(const std::string&) {}

class CudaMemoryPlanTest : public testing::Test {
 protected:
  void SetUp() override { NEED_GPU(); }
  Config config_of(const std::string& task, std::vector<std::string> overrides = {}) const {
    overrides.push_back("device=cuda");
    return load_config(folder_.path(task + ".yaml"), overrides);
  }
  // The first product takes the workspace of all.
  static void use_products() {
    const Tensor one = Tensor::full({1, 1}, 1, DType::kFloat32, parse_device("cuda"));
    matmul(Var(one), Var(one));
  }
  TinyRunFolder folder_{"cuda-memory-plan"};
};

TEST_F(CudaMemoryPlanTest, KnowsTheActivationsToTheByte) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> all = {
      {"translation", {}},
      {"translation", {"training.recompute=true"}},
      {"translation", {"dtype=bfloat16"}},
      {"translation", {"model.position_embedding=relative"}},
      {"translation", {"model.decoder_self_attention=ssru"}},
      {"clm", {"model.position_embedding=rope", "model.kv_latent_size=8"}},
      {"prompts", {}},
      {"mlm", {}},
      {"classification", {}},
      {"questions", {}},
      {"images", {}}};
  use_products();
  for (const auto& [task, overrides] : all) {
    Config config = config_of(task, overrides);
    const TokenizerPair tokenizers = placeholder_tokenizers(config, no_cuda_note);
    const std::optional<MemoryPlan> plan = plan_memory(config, tokenizers);
    ASSERT_TRUE(plan) << task;
    EXPECT_TRUE(plan->on_gpu);
    const DryTraining training = model_of(config).dry(config, tokenizers);
    const auto in_use = [] {
      return host_memory().bytes_in_use + memory_of(parse_device("cuda")).bytes_in_use;
    };
    const int64_t before = in_use();
    const Tape tape({.seed = config.seed, .step = 0, .stream = 0});
    const CrossEntropy result =
        training.loss(batches_of(config).front(), {.label_smoothing = 0.1, .normalizer = 1});
    EXPECT_EQ(plan->activations, in_use() - before)
        << task << ' ' << testing::PrintToString(overrides);
  }
}

// Which asks the GPU what it can do, and gets its answer.
TEST_F(CudaMemoryPlanTest, PlansHopperAttention) {
  const std::string line = concat("cd '", folder_.path("."), "' && '", tapestry_binary(),
                                  "' plan clm.yaml device=cuda dtype=bfloat16 model.hidden_size=64 "
                                  "model.num_attention_heads=1 >out 2>err");
  EXPECT_EQ(WEXITSTATUS(std::system(line.c_str())), 0) << read_file(folder_.path("err"));
}

// Batches of blocks and of images are all of one size.
TEST_F(CudaMemoryPlanTest, KnowsThePeakOfATraining) {
  constexpr double kShare = 0.05;
  for (const char* task : {"clm", "images"}) {
    for (const char* dtype : {"dtype=float32", "dtype=bfloat16"}) {
      Config config = config_of(task, {dtype});
      const TokenizerPair tokenizers = placeholder_tokenizers(config, no_cuda_note);
      const MemoryPlan plan = plan_memory(config, tokenizers).value();
      const std::string run = std::string(task) + dtype;
      ASSERT_EQ(folder_.train(task, run,
                              {"device=cuda", dtype, "training.max_steps=4",
                               "training.logging_steps=4", "training.eval_steps=0"}),
                0)
          << folder_.messages();
      std::ifstream metrics(folder_.path(run + "/metrics.jsonl"));
      std::string line;
      std::getline(metrics, line);
      const double peak = nlohmann::json::parse(line).at("peak_bytes");
      const bool emulated = std::string(build_info().devices).ends_with("emulated CUDA");
      const auto planned =
          static_cast<double>(emulated ? plan.tensors : plan.still_needed());  // no workspace
      EXPECT_NEAR(planned, peak, kShare * peak) << task << ' ' << dtype;
    }
  }
}

// More than any GPU has: nothing of it is ever there.
TEST_F(CudaMemoryPlanTest, ATrainingThatDoesNotFitIsTold) {
  std::vector<std::string> overrides = {
      "model.hidden_size=8192",       "model.intermediate_size=32768",
      "model.num_attention_heads=64", "model.num_hidden_layers=96",
      "data.block_size=1024",         "model.max_position_embeddings=1024",
      "training.batch_size=65536"};
  Config large = config_of("clm", overrides), small = config_of("clm");
  const TokenizerPair tokenizers = placeholder_tokenizers(large, no_cuda_note);
  EXPECT_FALSE(memory_shortage(small, tokenizers));
  const int64_t before = memory_of(parse_device("cuda")).bytes_reserved;
  const std::optional<MemoryShortage> shortage = memory_shortage(large, tokenizers);
  EXPECT_EQ(memory_of(parse_device("cuda")).bytes_reserved, before);
  ASSERT_TRUE(shortage);
  EXPECT_TRUE(shortage->certain);
  EXPECT_THAT(shortage->text, AllOf(HasSubstr(" are free on cuda:0; "),
                                    HasSubstr("training.recompute=true needs ")));
}

}  // namespace
}  // namespace tapestry
