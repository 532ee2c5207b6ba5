// Runs whose base is kept in a format beside adapters (training.lora.base).
#include <gmock/gmock.h>

#include "apps/run/memory_plan.h"
#include "apps/tasks/answers/placeholders.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using Tensors = std::map<std::string, Tensor>;

std::vector<std::string> lora(const std::string& base) {
  return {"training.lora={rank: 2, target: [\"*\"], base: " + base + "}"};
}

class FrozenBaseTest : public testing::Test {
 protected:
  int train(const std::string& task, const std::string& run,
            const std::vector<std::string>& overrides = {}) const {
    return folder_.train(task, run, overrides);
  }
  std::string messages() const { return folder_.messages(); }
  std::string file(const std::string& checkpoint) const {
    return read_checkpoint(folder_.path(checkpoint)).at("model.safetensors");
  }
  Tensors parameters(const std::string& checkpoint) const {
    const NamedTensors tensors = parse_safetensors(file(checkpoint), "");
    return {tensors.begin(), tensors.end()};
  }

  TinyRunFolder folder_{"frozen-base"};
};

TEST_F(FrozenBaseTest, ResumesToTheSameBitsOnAnyThreads) {
  const std::vector<std::vector<std::string>> runs = {{"clm", "int4", "dtype=float32"},
                                                      {"clm", "int8", "dtype=bfloat16"},
                                                      {"translation", "bfloat16", "dtype=float32"},
                                                      {"mlm", "int4", "dtype=float64"}};
  for (const std::vector<std::string>& run : runs) {
    const std::string &task = run[0], name = task + run[1];
    SCOPED_TRACE(name);
    const std::vector<std::string> options = lora(run[1]) + std::vector<std::string>{run[2]};
    ASSERT_EQ(train(task, name + "-whole", options + std::vector<std::string>{"threads=1"}), 0)
        << messages();
    ASSERT_EQ(train(task, name + "-parts",
                    options + std::vector<std::string>{"training.max_steps=33", "threads=2"}),
              0)
        << messages();
    ASSERT_EQ(train(task, name + "-parts", options + std::vector<std::string>{"threads=1"}), 0)
        << messages();
    expect_equal(folder_.result(name + "-whole"), folder_.result(name + "-parts"));
  }
}

// Rounded once, when the training begins, by rows or groups of their own.
TEST_F(FrozenBaseTest, KeepsTheModelThatItBeginsWithAndLearnsBesideIt) {
  ASSERT_EQ(train("clm", "base", {"training.max_steps=20"}), 0) << messages();
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    const std::string run = name_of(format);
    ASSERT_EQ(train("clm", run,
                    lora(run) + std::vector<std::string>{"init_from=" + folder_.path("base"),
                                                         "training.max_steps=20"}),
              0)
        << messages();
    EXPECT_THAT(messages(), HasSubstr(format == WeightFormat::kInt8
                                          ? "; the base has 5 matrices in int8: 0 MB"
                                          : "; the base has 1 matrix in int8, 4 in int4: 0 MB"));
    const Tensors before = parameters("base/last"), after = parameters(run + "/last");
    int rounded = 0;
    for (const auto& [name, tensor] : before) {
      std::vector<float> expected = tensor.to_vector<float>();
      if (tensor.shape().rank() == 2 && !name.starts_with("position")) {
        const int64_t rows = tensor.shape()[0], cols = tensor.shape()[1];
        const FrozenMatrix matrix(name.starts_with("embedding") ? WeightFormat::kInt8 : format,
                                  rows, cols);
        matrix.store(0, rows, expected.data());
        matrix.read({0, rows}, {0, cols}, expected.data(), cols);
        ++rounded;
      }
      EXPECT_EQ(after.at(name).to_vector<float>(), expected) << name;
    }
    EXPECT_EQ(rounded, 5);
    const Tensor& up = after.at("layers.0.self_attention.qkv.lora_B");
    EXPECT_NE(up.to_vector<float>(), Tensor::zeros(up.shape()).to_vector<float>());
    EXPECT_LT(file(run + "/last").size(), file("base/last").size());
  }
  // The same base goes on bit by bit; another format would round it twice.
  const std::vector<std::string> from = {"init_from=" + folder_.path("int8"),
                                         "training.max_steps=1"};
  ASSERT_EQ(train("clm", "same", lora("int8") + from), 0) << messages();
  const Tensors first = parameters("int8/last"), second = parameters("same/last");
  for (const auto& [name, tensor] : first) {
    if (name.find("lora_") != std::string::npos) continue;
    EXPECT_EQ(second.at(name).to_vector<float>(), tensor.to_vector<float>()) << name;
  }
  EXPECT_EQ(train("clm", "other", lora("int4") + from), 2);
  EXPECT_THAT(messages(), HasSubstr(".weight is int8 in "));
  EXPECT_THAT(messages(), HasSubstr("and training.lora.base would round it again, to int4."));
}

TEST_F(FrozenBaseTest, ARunKeepsItsBase) {
  ASSERT_EQ(train("clm", "run", lora("int8") + std::vector<std::string>{"training.max_steps=3"}), 0)
      << messages();
  for (const char* other : {"int4", "dtype"}) {
    EXPECT_EQ(train("clm", "run", lora(other)), 2);
    EXPECT_THAT(messages(), HasSubstr(concat("[train] training.lora.base is ", other,
                                             ", the checkpoint's int8: a run keeps its base.")));
  }
}

// What answers, and what goes home, has the base as it was rounded.
TEST_F(FrozenBaseTest, GoesHomeMergedWithTheBaseThatItLearnedBeside) {
  ASSERT_EQ(train("translation", "run",
                  lora("int4") + std::vector<std::string>{"training.learning_rate=0.1"}),
            0)
      << messages();
  folder_.output(
      concat("export --model ", folder_.path("run"), " --output ", folder_.path("theirs")));
  folder_.output(concat("import ", folder_.path("theirs"), " --output ", folder_.path("back")));
  const Tensors merged = parameters("back"), apart = parameters("run/best");
  int adapted = 0;
  for (const auto& [name, tensor] : merged) {
    const Tensor expected =
        with_adapter(apart.at(name), name, {.rank = 2}, [&](const std::string& part) {
          const auto found = apart.find(part);
          return found == apart.end() ? std::optional<Tensor>() : found->second;
        });
    adapted += expected.to_vector<float>() != apart.at(name).to_vector<float>();
    const std::vector<float> is = tensor.to_vector<float>(), was = expected.to_vector<float>();
    ASSERT_EQ(is.size(), was.size()) << name;
    for (size_t i = 0; i < was.size(); ++i) ASSERT_NEAR(is[i], was[i], 1e-6) << name;
  }
  EXPECT_GT(adapted, 4);
  const auto score = [&](const std::string& model) {
    std::istringstream in(
        folder_.output(concat("score --model ", folder_.path(model), " --source ",
                              folder_.path("valid.src"), " --target ", folder_.path("valid.tgt"))));
    std::vector<double> scores;
    for (std::string line; std::getline(in, line);) scores.push_back(std::stod(line));
    return scores;
  };
  const std::vector<double> a = score("run"), b = score("back");
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-3) << i;
}

TEST_F(FrozenBaseTest, APlanCountsIt) {
  const auto plan_of = [&](const std::string& base) {
    const std::vector<std::string> wide = {"model.hidden_size=256", "model.intermediate_size=512"};
    Config config = load_config(folder_.path("clm.yaml"), lora(base) + wide);
    return *plan_memory(config, placeholder_tokenizers(config, [](const std::string&) {}));
  };
  // Of a layer 4 * 256^2 + 2 * 256 * 512 numbers, of the table 40 * 256.
  constexpr int64_t kLayer = 524288, kTable = 10240;
  const MemoryPlan plain = plan_of("dtype"), int8 = plan_of("int8"), int4 = plan_of("int4");
  EXPECT_EQ(plain.base, 0);
  EXPECT_EQ(int4.base, kLayer * 9 / 16 + 40 * 260);
  EXPECT_EQ(plain.weights - int4.weights, 4 * (kLayer + kTable) - int4.base);
  EXPECT_LT(int4.base, int8.base);
  EXPECT_LT(int8.base, plain.weights / 3);
  EXPECT_LT(int4.checkpoint, plain.checkpoint / 4);
  EXPECT_THAT(folder_.output(concat("plan ", folder_.path("clm.yaml"),
                                    " 'training.lora={rank: 2, base: int4}'")),
              HasSubstr("of these, the base in int4"));
}

TEST_F(FrozenBaseTest, WhatItCannotDoIsSaidBeforeItBegins) {
  EXPECT_EQ(train("clm", "run", {"training.lora.base=int8"}), 2);
  EXPECT_THAT(messages(), HasSubstr("'training.lora.base' has no effect without rank"));
  EXPECT_EQ(train("clm", "run", {"training.lora={rank: 2, base: int3}"}), 2);
  EXPECT_THAT(messages(), HasSubstr("dtype, bfloat16, int8, int4"));
  EXPECT_EQ(train("clm", "run", lora("int4") + std::vector<std::string>{"device=cuda:1"}), 2);
  EXPECT_THAT(messages(), HasSubstr("'training.lora.base' is for device: cpu, got int4 and "
                                    "device: cuda:1."));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("run")));
}

}  // namespace
}  // namespace tapestry
