#include "nn/models/vision_transformer.h"

#include "tests/autograd/support.h"

namespace tapestry {
namespace {

using test::distance;

constexpr ImageClasses kData{.height = 4, .width = 6, .channels = 3, .classes = 5};

ModelOptions small_options() {
  ModelOptions options = vision_transformer_defaults();
  options.hidden_size = 8;
  options.intermediate_size = 12;
  options.num_attention_heads = 2;
  options.num_hidden_layers = 2;
  options.patch_size = 2;
  options.dropout = 0;
  options.initializer_range = 0.5;
  return options;
}

TEST(CutIntoPatchesTest, PatchesAreThoseOfTheImage) {
  const int64_t rows = 2, height = 6, width = 4, channels = 3, p = 2;
  const Tensor images = test::uniform({rows, height, width, channels}, 1);
  const Tensor patches = cut_into_patches(images, p).value();
  ASSERT_EQ(patches.shape(), (Shape{rows, 6, p * p * channels}));
  const auto pixels = images.to_vector<double>(), got = patches.to_vector<double>();
  for (int64_t b = 0; b < rows; ++b) {
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        for (int64_t c = 0; c < channels; ++c) {
          const int64_t patch = y / p * (width / p) + x / p;
          const int64_t inside = (y % p * p + x % p) * channels + c;
          const int64_t at = (b * 6 + patch) * (p * p * channels) + inside;
          EXPECT_EQ(got[static_cast<size_t>(at)],
                    pixels[static_cast<size_t>(((b * height + y) * width + x) * channels + c)]);
        }
      }
    }
  }
}

TEST(CutIntoPatchesTest, PatchesMustDivideTheImage) {
  EXPECT_EQ(test::error_of([] {
              cut_into_patches(test::uniform({2, 6, 4, 1}, 1), 4);
            }),
            "[patches] expected images (B, height, width, C) that patches of 4 x 4 divide, got "
            "(2, 6, 4, 1).");
  ParamStore store;
  ModelOptions options = small_options();
  options.patch_size = 4;
  EXPECT_EQ(test::error_of([&] { VisionTransformer(options, kData, store.root()); }),
            "[vit] patch_size must divide the height and width of the images, got 4 and 4 x 6.");
}

// Attention itself ignores the order of its inputs: without positions the patches may be swapped,
// with positions they may not.
TEST(VisionTransformerTest, PositionsTellThePatchesApart) {
  for (const PositionEmbedding positions :
       {PositionEmbedding::kNone, PositionEmbedding::kLearned, PositionEmbedding::kSinusoidal,
        PositionEmbedding::kRope}) {
    ModelOptions options = small_options();
    options.position_embedding = positions;
    ParamStore store(1, DType::kFloat64);
    const VisionTransformer model(options, kData, store.root());
    EXPECT_EQ(model.tokens(), 7);
    const Tensor image = test::uniform({1, 4, 6, 3}, 1);
    // The upper half and the lower half, three patches each, are swapped.
    const Tensor halves = image.reshape({2, 36});
    const Var turned =
        reshape(concat({Var(halves.slice(1, 2)), Var(halves.slice(0, 1))}, 0), {1, 4, 6, 3});
    const double difference = distance(model(image).value(), model(turned).value());
    if (positions == PositionEmbedding::kNone) {
      EXPECT_LT(difference, 1e-12);
    } else {
      EXPECT_GT(difference, 1e-4);
    }
  }
}

TEST(VisionTransformerTest, EveryPixelReachesTheClassAndRowsAreTheirOwn) {
  ParamStore store(1, DType::kFloat64);
  const VisionTransformer model(small_options(), kData, store.root());
  const Tensor images = test::uniform({2, 4, 6, 3}, 1);
  const Tensor logits = model(images).value();
  ASSERT_EQ(logits.shape(), (Shape{2, 5}));
  for (int64_t i = 0; i < 72; ++i) {
    const Tensor changed = images.clone();
    changed.data<double>()[i] += 1;
    const Tensor other = model(changed).value();
    EXPECT_GT(distance(logits.slice(0, 1), other.slice(0, 1)), 1e-8) << i;
    EXPECT_TRUE(test::same_bits(logits.slice(1, 2), other.slice(1, 2))) << i;
  }
}

TEST(VisionTransformerTest, DropoutIsAtEveryPlace) {
  ModelOptions options = small_options();
  options.dropout = options.attention_dropout = options.activation_dropout = 0.5;
  ParamStore store(1, DType::kFloat64);
  const VisionTransformer model(options, kData, store.root());
  Tape tape({.seed = 1, .step = 1, .stream = 0});
  model(test::uniform({2, 4, 6, 3}, 1));
  EXPECT_EQ(tape.next_random().stream, 1 + 2 * (2 + 2) + 1)
      << "the embeddings', four of each layer, the head's";
}

TEST(LinearClassifierTest, IsOneProductOfAllPixels) {
  ParamStore store(1, DType::kFloat64);
  const LinearClassifier model({}, kData, store.root());
  const Tensor bias = store.at("classifier.bias").var.value();
  bias.copy_from(test::uniform({5}, 2));
  const auto w = store.at("classifier.weight").var.value().to_vector<double>();
  ASSERT_EQ(w.size(), 5u * 72u);
  const Tensor images = test::uniform({2, 4, 6, 3}, 1);
  const auto x = images.to_vector<double>(), b = bias.to_vector<double>();
  std::vector<double> expected;
  for (size_t row = 0; row < 2; ++row) {
    for (size_t k = 0; k < 5; ++k) {
      double sum = b[k];
      for (size_t i = 0; i < 72; ++i) sum += w[k * 72 + i] * x[row * 72 + i];
      expected.push_back(sum);
    }
  }
  EXPECT_LT(distance(model(images).value(), Tensor::from<double>(expected, {2, 5})), 1e-13);
}

}  // namespace
}  // namespace tapestry
