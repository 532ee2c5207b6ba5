// What a plan says of memory, against the memory that the same update takes.
#include "apps/run/memory_plan.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include "apps/tasks/answers/placeholders.h"
#include "apps/tasks/dry_training.h"
#include "apps/tasks/models.h"
#include "apps/tasks/task.h"
#include "core/allocator.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void no_note(const std::string&) {}

class MemoryPlanTest : public testing::Test {
 protected:
  Config config_of(const std::string& task, std::vector<std::string> overrides = {}) const {
    return load_config(folder_.path(task + ".yaml"), overrides);
  }
  // The exit code of a process that has 3 GB of addresses.
  int run_in_3_gb(const std::string& command) const {
    const std::string line = concat("cd '", folder_.path("."), "' && ulimit -v 3000000 && '",
                                    tapestry_binary(), "' ", command, " >out 2>err");
    return WEXITSTATUS(std::system(line.c_str()));
  }
  TinyRunFolder folder_{"memory-plan"};
};

// What backward needs, counted where it is real.
int64_t activations_of(const Config& config, const TokenizerPair& tokenizers) {
  const DryTraining training = model_of(config).dry(config, tokenizers);
  const int64_t before = host_memory().bytes_in_use;
  const Tape tape({.seed = config.seed, .step = 0, .stream = 0});
  const CrossEntropy result =
      training.loss(batches_of(config).front(), {.label_smoothing = 0.1, .normalizer = 1});
  return host_memory().bytes_in_use - before;
}

TEST_F(MemoryPlanTest, KnowsTheActivationsToTheByte) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> all = {
      {"translation", {}},
      {"translation", {"training.recompute=true"}},
      {"translation", {"model.norm=rmsnorm", "model.hidden_act=swiglu"}},
      {"translation", {"model.position_embedding=alibi", "model.norm_position=pre"}},
      {"translation", {"model.position_embedding=relative"}},
      {"translation", {"model.decoder_self_attention=ssru"}},
      {"translation", {"training.guided_alignment.file=/dev/null"}},
      {"clm", {}},
      {"clm", {"model.position_embedding=rope", "model.kv_latent_size=8"}},
      {"prompts", {}},
      {"chat", {}},
      {"mlm", {}},
      {"infilling", {}},
      {"classification", {}},
      {"questions", {}},
      {"tokens", {}},
      {"images", {}}};
  for (const auto& [task, overrides] : all) {
    Config config = config_of(task, overrides);
    const TokenizerPair tokenizers = placeholder_tokenizers(config, no_note);
    const std::optional<MemoryPlan> plan = plan_memory(config, tokenizers);
    ASSERT_TRUE(plan) << task;
    EXPECT_EQ(plan->activations, activations_of(config, tokenizers))
        << task << ' ' << testing::PrintToString(overrides);
    EXPECT_EQ(plan->weights, 4 * model_of(config).parameters(config, tokenizers)->elements());
    EXPECT_EQ(plan->averages > 0, config.training.ema_decay > 0);
  }
  EXPECT_FALSE(plan_memory(config_of("regression"), {}));
}

// A matrix between layers has one state, all else AdamW's two; products come on top.
TEST_F(MemoryPlanTest, CountsWhatMuonKeepsAndComputes) {
  const auto plan_of = [&](const std::string& optimizer) {
    Config config = config_of("translation", {"training.optimizer={name: " + optimizer + "}"});
    return *plan_memory(config, placeholder_tokenizers(config, no_note));
  };
  const MemoryPlan adamw = plan_of("adamw"), muon = plan_of("muon");
  Config config = config_of("translation", {"training.optimizer={name: muon}"});
  const auto store = model_of(config).parameters(config, placeholder_tokenizers(config, no_note));
  int64_t matrices = 0, counts = 0;
  for (const Parameter& parameter : store->parameters()) {
    if (parameter.projections.empty()) continue;
    matrices += parameter.var.value().numel();
    ++counts;  // that AdamW keeps of its updates
  }
  EXPECT_GT(matrices, store->elements() / 2);
  EXPECT_EQ(adamw.optimizer - muon.optimizer, 4 * (matrices + counts));
  EXPECT_GT(muon.cost.flops, adamw.cost.flops);
}

// They stand beside the parameters, and are more than the activations of a small batch.
TEST_F(MemoryPlanTest, CountsTheWeightsThatAValidationPacks) {
  for (const char* task : {"translation", "prompts"}) {
    Config config = config_of(task, {"model.hidden_size=256", "model.intermediate_size=1024",
                                     "training.batch_type=sentences", "training.batch_size=1"});
    const TokenizerPair tokenizers = placeholder_tokenizers(config, no_note);
    const std::optional<MemoryPlan> plan = plan_memory(config, tokenizers);
    config.training.freeze = {"*norm*"};  // packs nothing, and has nearly the same gradients
    const std::optional<MemoryPlan> unpacked = plan_memory(config, tokenizers);
    ASSERT_TRUE(plan && unpacked) << task;
    EXPECT_GT(plan->tensors, unpacked->tensors + plan->weights / 4) << task;
  }
}

// Tokens are in a file that the system may take back, or else in memory that is needed.
TEST_F(MemoryPlanTest, CountsTheDataThatStays) {
  const auto plan_of = [&](const std::string& task, std::vector<std::string> overrides) {
    Config config = config_of(task, std::move(overrides));
    const TokenizerPair tokenizers = placeholder_tokenizers(config, no_note);
    return plan_memory(config, tokenizers).value();
  };
  const MemoryPlan cached = plan_of("clm", {}), kept = plan_of("clm", {"data.cache=false"});
  EXPECT_GT(cached.mapped, 0);
  EXPECT_EQ(cached.data, 0);
  EXPECT_EQ(kept.mapped, 0);
  EXPECT_EQ(kept.data, cached.mapped);
  EXPECT_EQ(kept.still_needed(), cached.still_needed() + kept.data);
  EXPECT_GT(plan_of("images", {}).data, 0);
  EXPECT_GT(plan_of("questions", {}).data, 0);
}

// Nothing of a model is ever there, so a plan of one that does not fit can be made.
TEST_F(MemoryPlanTest, TakesNoMemoryItself) {
  const std::vector<std::string> large = {
      "model.hidden_size=8192",       "model.intermediate_size=32768",
      "model.num_attention_heads=64", "model.num_hidden_layers=96",
      "data.block_size=1024",         "model.max_position_embeddings=1024",
      "training.batch_size=65536",    "tokenizer.vocab_size=50000"};
  Config config = config_of("clm", large);
  const TokenizerPair tokenizers = placeholder_tokenizers(config, no_note);
  const int64_t before = host_memory().bytes_reserved;
  const std::optional<MemoryPlan> plan = plan_memory(config, tokenizers);
  ASSERT_TRUE(plan);
  EXPECT_EQ(host_memory().bytes_reserved, before);
  EXPECT_GT(plan->peak(), int64_t{1} << 40);
  constexpr double kSteps = 1e5;  // a number for each parameter
  EXPECT_NEAR(static_cast<double>(plan->optimizer), 2. * static_cast<double>(plan->weights),
              kSteps);
  EXPECT_GT(plan->activations, plan->weights / 4);
}

#ifndef __SANITIZE_ADDRESS__  // which needs address space without end
TEST_F(MemoryPlanTest, ATrainingThatDoesNotFitEndsBeforeItBegins) {
  const std::string large =
      " model.hidden_size=512 model.intermediate_size=4096 model.num_hidden_layers=16 "
      "data.block_size=512 model.max_position_embeddings=512 training.batch_size=16384 ";
  for (const char* command : {"train", "plan"}) {
    EXPECT_EQ(run_in_3_gb(concat(command, " clm.yaml", large)), 5) << command;
    EXPECT_THAT(read_file(folder_.path("err")),
                AllOf(HasSubstr("[plan] the training needs "), HasSubstr(" are free on "),
                      HasSubstr("; training.recompute=true needs ")))
        << command;
  }
  EXPECT_EQ(run_in_3_gb("plan clm.yaml"), 0) << read_file(folder_.path("err"));
  EXPECT_THAT(read_file(folder_.path("out")), HasSubstr("activations of the largest batch"));
}

// Batches of so many sentences are planned as if all were as long as they may be, and are not.
TEST_F(MemoryPlanTest, AShortageThatIsOnlyEstimatedIsAWarning) {
  EXPECT_EQ(run_in_3_gb("train translation.yaml training.batch_type=sentences "
                        "training.batch_size=65536 data.max_length=512 training.max_steps=1 "
                        "model.max_position_embeddings=512"),
            0);
  EXPECT_THAT(read_file(folder_.path("err")),
              AllOf(HasSubstr("warning: [plan] the training needs "),
                    HasSubstr("Shorter texts may need less, and it goes on")));
}
#endif

// Batches whose ids alone are more than a dry run has memory for.
TEST_F(MemoryPlanTest, PlansBatchesOfAMillionTokens) {
  for (const char* task : {"classification", "translation", "questions"}) {
    Config config = config_of(task, {"training.batch_type=sentences", "training.batch_size=16384",
                                     "data.max_length=64", "model.max_position_embeddings=64"});
    const TokenizerPair tokenizers = placeholder_tokenizers(config, no_note);
    const std::optional<MemoryPlan> plan = plan_memory(config, tokenizers);
    ASSERT_TRUE(plan) << task;
    EXPECT_GT(plan->activations, int64_t{16384} * 64 * 4) << task;
    const std::optional<MemoryShortage> shortage = memory_shortage(config, tokenizers);
    EXPECT_FALSE(shortage && shortage->certain) << task;
  }
}

// A batch of 2^31 tokens, whose ids alone are more than this machine may have.
TEST_F(MemoryPlanTest, TakesNoMemoryForTheLargestBatch) {
  constexpr int64_t kMost = int64_t{1} << 30;
  for (const char* task : {"translation", "clm", "mlm", "prompts", "classification", "questions"}) {
    const std::string line =
        concat("cd '", folder_.path("."), "' && '", tapestry_binary(), "' plan ", task,
               ".yaml training.batch_size=2147483647 threads=1 >out 2>err");
    rusage before{}, after{};
    getrusage(RUSAGE_CHILDREN, &before);
    EXPECT_EQ(WEXITSTATUS(std::system(line.c_str())), 5) << task;
    getrusage(RUSAGE_CHILDREN, &after);
    EXPECT_LE(1024 * after.ru_maxrss, std::max<int64_t>(kMost, 1024 * before.ru_maxrss)) << task;
    EXPECT_THAT(read_file(folder_.path("err")), HasSubstr("[plan] the training needs ")) << task;
  }
}

}  // namespace
}  // namespace tapestry
