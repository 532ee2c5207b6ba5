// A model's type and precision are its store's: models of two types train side by side in one
// program as each does without the other.
#include "core/precision.h"

#include "nn/models/rnn_attention.h"
#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using test::kVocabulary;

template <class Model>
struct Kind;
template <>
struct Kind<EncoderDecoder> {
  static EncoderDecoder make(const ParamScope& scope) {
    return {
        test::post_norm_options(), {.source_size = kVocabulary, .target_size = kVocabulary}, scope};
  }
  static EncoderDecoder::Batch batch() { return test::batch_of({5, 3, 7}, {4, 6, 2}, 7, 7); }
};
template <>
struct Kind<RnnAttention> {
  static RnnAttention make(const ParamScope& scope) {
    return {
        test::pre_norm_options(), {.source_size = kVocabulary, .target_size = kVocabulary}, scope};
  }
  static RnnAttention::Batch batch() { return Kind<EncoderDecoder>::batch(); }
};
template <>
struct Kind<LanguageModel> {
  static LanguageModel make(const ParamScope& scope) {
    return {test::bert_options(), {.size = kVocabulary}, /*causal=*/false, scope};
  }
  static LanguageModel::Batch batch() { return test::text_batch({7, 4, 9}, 9, /*causal=*/false); }
};

// A model that remembers every loss and gradient of its training.
template <class Model>
struct PreciseLearner {
  explicit PreciseLearner(DType dtype, Precision precision = Precision::kFull)
      : store(5, dtype, {}, precision), model(Kind<Model>::make(store.root())) {
    test::disturb(store);
  }
  void step() {
    const auto batch = Kind<Model>::batch();
    passes.push_back(test::train_pass(store, [&] { return model.loss(batch, {}).loss; }));
    size_t i = 0;
    for (const Parameter& p : store.parameters()) {
      const Var gradient = passes.back().gradients[i++];
      p.var.value().copy_from((p.var + -0.1 * gradient).value());
    }
  }

  ParamStore store;
  Model model;
  std::vector<test::Pass> passes;
};

constexpr int kSteps = 3;

template <class Model>
std::vector<test::Pass> without_another(DType dtype) {
  PreciseLearner<Model> learner(dtype);
  for (int i = 0; i < kSteps; ++i) learner.step();
  return learner.passes;
}

template <class Model>
class TwoTypes : public testing::Test {};
using Models = testing::Types<EncoderDecoder, RnnAttention, LanguageModel>;
TYPED_TEST_SUITE(TwoTypes, Models);

TYPED_TEST(TwoTypes, TrainSideBySideAsEachDoesWithoutTheOther) {
  PreciseLearner<TypeParam> full(DType::kFloat32), mixed(DType::kBFloat16);
  for (int i = 0; i < kSteps; ++i) {
    full.step();
    mixed.step();
  }
  const auto full_only = without_another<TypeParam>(DType::kFloat32);
  const auto mixed_only = without_another<TypeParam>(DType::kBFloat16);
  for (int i = 0; i < kSteps; ++i) {
    EXPECT_TRUE(test::same_bits(full.passes[i], full_only[i])) << "step " << i;
    EXPECT_TRUE(test::same_bits(mixed.passes[i], mixed_only[i])) << "step " << i;
  }
  EXPECT_FALSE(test::same_bits(full.passes[0], mixed.passes[0]));
  EXPECT_LT(test::distance(full.passes[0], mixed.passes[0]), 0.1);
}

template <class Model>
class Bf16x3OnTiles : public testing::Test {
 protected:
  void SetUp() override {
    if (!why_no_bf16x3(bfloat16_kernel()).empty()) {
      GTEST_SKIP() << "this processor has no AMX-BF16; nn.EmulatedTiles runs it anywhere";
    }
  }
};
TYPED_TEST_SUITE(Bf16x3OnTiles, Models);

TYPED_TEST(Bf16x3OnTiles, TrainsNearFloat32) {
  PreciseLearner<TypeParam> full(DType::kFloat32), split(DType::kFloat32, Precision::kBf16x3);
  for (int i = 0; i < kSteps; ++i) {
    full.step();
    split.step();
    EXPECT_FALSE(test::same_bits(full.passes[i], split.passes[i])) << "step " << i;
    EXPECT_LT(test::distance(full.passes[i], split.passes[i]), 1e-4) << "step " << i;
  }
}

TEST(Precision, Bf16x3NeedsTiles) {
  EXPECT_EQ(why_no_bf16x3(Bfloat16Kernel::kAmx), "");
  EXPECT_EQ(why_no_bf16x3(Bfloat16Kernel::kAmxEmulated), "");
  EXPECT_EQ(why_no_bf16x3(Bfloat16Kernel::kWidened),
            "needs a processor with AMX; this one multiplies bfloat16 on float32.");
  EXPECT_EQ(why_no_bf16x3(Bfloat16Kernel::kBfmmla),
            "needs a processor with AMX; this one multiplies bfloat16 on bfmmla.");
  EXPECT_EQ(why_no_bf16x3(Bfloat16Kernel::kAvx512),
            "needs a processor with AMX; this one multiplies bfloat16 on avx512_bf16, where three "
            "products take longer than one of float32.");
  const auto make = [] { ParamStore(1, DType::kFloat32, {}, Precision::kBf16x3); };
  if (why_no_bf16x3(bfloat16_kernel()).empty()) {
    EXPECT_NO_THROW(make());
  } else {
    EXPECT_THROW(make(), Error);
  }
  EXPECT_THROW(check_precision(Precision::kBf16x3, {Device::Kind::kCuda, 0}), Error);
}

TEST(Precision, IsRefusedWhereTheDeviceDoesNotHaveIt) {
  EXPECT_THROW(ParamStore(1, DType::kFloat32, {}, Precision::kTf32), Error);
  EXPECT_NO_THROW(check_precision(Precision::kTf32, {Device::Kind::kCuda, 0}));
}

}  // namespace
}  // namespace tapestry
