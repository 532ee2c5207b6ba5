// A base that is kept in a format beside adapters: its gradients are those of the numbers that it
// holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "autograd/gradcheck.h"
#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using namespace test;  // NOLINT: the small models

constexpr WeightFormat kFormats[] = {WeightFormat::kBFloat16, WeightFormat::kInt8,
                                     WeightFormat::kInt4};
const LoraOptions kBaseLora{.rank = 2, .alpha = 3, .dropout = 0, .target = {"*"}};

// The same parameters, with the matrices of the base in a format, or with their numbers.
struct Adapted {
  Adapted(const ModelOptions& options, std::optional<WeightFormat> format,
          DType dtype = DType::kFloat64, std::vector<std::string> learning = {},
          const LoraOptions& lora = kBaseLora)
      : store(5, dtype, Device{}, Precision::kFull, lora, ParamStore::Start::kDrawn,
              {.format = format, .learning = std::move(learning)}),
        model(options, {.size = kVocabulary, .no_target = 0}, true, store.root()) {
    uint32_t stream = 100;
    for (const Parameter& parameter : store.parameters()) {
      ++stream;
      if (parameter.shape.rank() > 1 && !is_adapter(parameter.name)) continue;
      const Tensor moved = uniform(parameter.shape, stream, -0.5, 0.5);
      parameter.var.value().copy_from(moved.to(dtype));
    }
  }

  // Takes the numbers of a base in a format.
  void take_numbers_of(const Adapted& other) {
    for (const Parameter& parameter : other.store.parameters()) {
      if (!parameter.frozen) continue;
      const FrozenMatrix& w = *parameter.frozen;
      const Tensor numbers = Tensor::empty({w.rows(), w.cols()}, DType::kFloat64);
      w.read({0, w.rows()}, {0, w.cols()}, numbers.data<double>(), w.cols());
      store.at(parameter.name).var.value().copy_from(numbers.to(store.dtype()));
    }
  }

  CrossEntropy loss() const {
    const Tensor ids = uniform_ids({3, 7}, 1, 4, kVocabulary);
    return model.loss({ids, uniform_ids({3, 7}, 2, 4, kVocabulary)}, {.label_smoothing = 0.1});
  }

  ParamStore store;
  LanguageModel model;
};

std::vector<ModelOptions> all_options() {
  ModelOptions capped = gpt2_options();  // tied
  capped.logit_softcap = 3;
  return {gpt2_options(), llama_options(), capped};
}

TEST(FrozenBase, GradientsAreThoseOfItsNumbers) {
  LoraOptions dora = kBaseLora;
  dora.dora = true;
  std::vector<std::pair<ModelOptions, LoraOptions>> cases = {{llama_options(), dora}};
  for (const ModelOptions& options : all_options()) cases.emplace_back(options, kBaseLora);
  for (const auto& [options, lora] : cases) {
    for (const WeightFormat format : kFormats) {
      SCOPED_TRACE(name_of(format));
      const Adapted frozen(options, format, DType::kFloat64, {}, lora);
      Adapted plain(options, std::nullopt, DType::kFloat64, {}, lora);
      plain.take_numbers_of(frozen);
      {
        Tape tape;
        const CrossEntropy loss = plain.loss();
        tape.backward(loss.loss);
      }
      Tape tape;
      const CrossEntropy loss = frozen.loss();
      tape.backward(loss.loss);
      for (const Parameter& parameter : frozen.store.parameters()) {
        const Tensor expected = plain.store.at(parameter.name).var.grad();
        if (parameter.frozen) {
          EXPECT_FALSE(parameter.var.grad().defined()) << parameter.name;
        } else {
          EXPECT_LT(distance(parameter.var.grad(), expected), 1e-13) << parameter.name;
        }
      }
    }
  }
}

TEST(FrozenBase, GradientsAgreeWithDifferences) {
  for (const WeightFormat format : kFormats) {
    const Adapted model(llama_options(), format);
    std::vector<Var> inputs;
    for (const Parameter& parameter : model.store.parameters()) {
      if (!parameter.frozen) inputs.push_back(parameter.var);
    }
    const GradcheckResult result =
        gradcheck({name_of(format), inputs, [&] { return model.loss().loss; }}, 8);
    EXPECT_TRUE(result.passed) << result.name << ": " << result.worst_place;
  }
}

// What a table or a classifier loses is not made good by other layers.
TEST(FrozenBase, HoldsWhatOnlyMultipliesAndDoesNotLearn) {
  const Adapted model(llama_options(), WeightFormat::kInt4, DType::kFloat32,
                      {"layers.0.feed_forward.*"});
  std::map<std::string, std::string> formats;
  for (const Parameter& parameter : model.store.parameters()) {
    if (parameter.frozen) {
      EXPECT_FALSE(parameter.var.needs_grad());
      formats[parameter.name] = name_of(parameter.frozen->format());
    } else {
      EXPECT_TRUE(parameter.shape.rank() == 1 || is_adapter(parameter.name) ||
                  parameter.name.starts_with("layers.0.feed_forward."))
          << parameter.name;
    }
  }
  EXPECT_EQ(formats.at("embedding.weight"), "int8");
  EXPECT_EQ(formats.at("output.weight"), "int8");
  EXPECT_EQ(formats.at("layers.0.self_attention.qkv.weight"), "int4");
  EXPECT_EQ(formats.at("layers.1.feed_forward.down.weight"), "int4");
  EXPECT_FALSE(formats.contains("layers.0.feed_forward.down.weight"));
  const Adapted plain(llama_options(), std::nullopt, DType::kFloat32);
  EXPECT_EQ(model.store.elements(), plain.store.elements());
}

// It is drawn as the same matrix would be, and then rounded.
TEST(FrozenBase, IsDrawnAsItsNumbersWouldBe) {
  const Adapted frozen(gpt2_options(), WeightFormat::kBFloat16, DType::kFloat32);
  const Adapted plain(gpt2_options(), std::nullopt, DType::kFloat32);
  for (const Parameter& parameter : frozen.store.parameters()) {
    if (!parameter.frozen) continue;
    const FrozenMatrix& w = *parameter.frozen;
    std::vector<float> numbers(static_cast<size_t>(w.rows() * w.cols()));
    w.read({0, w.rows()}, {0, w.cols()}, numbers.data(), w.cols());
    EXPECT_EQ(numbers, plain.store.at(parameter.name)
                           .var.value()
                           .to(DType::kBFloat16)
                           .to(DType::kFloat32)
                           .to_vector<float>())
        << parameter.name;
  }
}

TEST(FrozenBase, CannotBeReadAsAParameter) {
  const Adapted model(llama_options(), WeightFormat::kInt8);
  try {
    model.model.table.var();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("got a frozen one."));
  }
}

}  // namespace
}  // namespace tapestry
