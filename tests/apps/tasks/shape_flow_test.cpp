// The flow of shapes through a model, against what its layers are.
#include "apps/tasks/shape_flow.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tapestry {
namespace {

ModelOptions small_options() {
  ModelOptions options;
  options.hidden_size = 16;
  options.intermediate_size = 24;
  options.num_attention_heads = 4;
  options.num_key_value_heads = 2;
  options.encoder_layers = 2;
  options.decoder_layers = 1;
  options.num_hidden_layers = 2;
  return options;
}

template <class Model, class... Arguments>
std::string flow_of(const ModelOptions& options, const DryBatch& batch,
                    const Arguments&... arguments) {
  ParamStore store;
  const Model model(options, arguments..., store.root());
  OperationTrace trace;
  const Tape tape;
  dry_run(model, batch, Config());
  std::string text = lines_of(part_calls(store, trace, batch), batch);
  // One space between the columns.
  text.erase(
      std::unique(text.begin(), text.end(), [](char a, char b) { return a == ' ' && b == ' '; }),
      text.end());
  return text;
}

TEST(ShapeFlow, OfAnEncoderDecoder) {
  EXPECT_EQ((flow_of<EncoderDecoder>(small_options(), {.rows = 3, .source = 7, .target = 5},
                                     Vocabulary{.source_size = 40, .target_size = 40})),
            "embedding (B, S) -> (B, S, 16)\n"
            "encoder (B, S, 16) -> (B, S, 16)\n"
            "encoder.layers.0-1 (B, S, 16) -> (B, S, 16)\n"
            "encoder.layers.0-1.self_attention (B, S, 16) -> (B, S, 16)\n"
            "encoder.layers.0-1.self_attention.qkv (B, S, 16) -> (B, S, 32)\n"
            "encoder.layers.0-1.self_attention.out (B, S, 16) -> (B, S, 16)\n"
            "encoder.layers.0-1.self_attention_norm (B, S, 16), (B, S, 16) -> (B, S, 16)\n"
            "encoder.layers.0-1.feed_forward (B, S, 16) -> (B, S, 16)\n"
            "encoder.layers.0-1.feed_forward.up (B, S, 16) -> (B, S, 24)\n"
            "encoder.layers.0-1.feed_forward.down (B, S, 24) -> (B, S, 16)\n"
            "encoder.layers.0-1.feed_forward_norm (B, S, 16), (B, S, 16) -> (B, S, 16)\n"
            "embedding (B, T) -> (B, T, 16)\n"
            "decoder (B, T, 16), (B, S, 16) -> (B, T, 16)\n"
            "decoder.layers.0 (B, T, 16), (B, S, 16) -> (B, T, 16)\n"
            "decoder.layers.0.self_attention (B, T, 16) -> (B, T, 16)\n"
            "decoder.layers.0.self_attention.qkv (B, T, 16) -> (B, T, 32)\n"
            "decoder.layers.0.self_attention.out (B, T, 16) -> (B, T, 16)\n"
            "decoder.layers.0.self_attention_norm (B, T, 16), (B, T, 16) -> (B, T, 16)\n"
            "decoder.layers.0.cross_attention (B, S, 16), (B, T, 16) -> (B, T, 16)\n"
            "decoder.layers.0.cross_attention.kv (B, S, 16) -> (B, S, 16)\n"
            "decoder.layers.0.cross_attention.q (B, T, 16) -> (B, T, 16)\n"
            "decoder.layers.0.cross_attention.out (B, T, 16) -> (B, T, 16)\n"
            "decoder.layers.0.cross_attention_norm (B, T, 16), (B, T, 16) -> (B, T, 16)\n"
            "decoder.layers.0.feed_forward (B, T, 16) -> (B, T, 16)\n"
            "decoder.layers.0.feed_forward.up (B, T, 16) -> (B, T, 24)\n"
            "decoder.layers.0.feed_forward.down (B, T, 24) -> (B, T, 16)\n"
            "decoder.layers.0.feed_forward_norm (B, T, 16), (B, T, 16) -> (B, T, 16)\n"
            "embedding (B, T, 16) -> (B, T, 40)\n");
}

TEST(ShapeFlow, OfImagesAndOfTextsWithoutASide) {
  ModelOptions options = small_options();
  options.num_hidden_layers = 0;
  options.position_embedding = PositionEmbedding::kLearned;
  options.tie_word_embeddings = false;
  EXPECT_EQ((flow_of<LanguageModel>(options, {.rows = 3, .source = 7, .target = 5},
                                    LanguageModel::Vocabulary{.size = 40}, /*causal=*/true)),
            "embedding (B, T) -> (B, T, 16)\noutput (B, T, 16) -> (B, T, 40)\n");
  options.patch_size = 2;
  ParamStore store;
  const ImageClassifier model{VisionTransformer(
      options, {.height = 8, .width = 4, .channels = 1, .classes = 6}, store.root())};
  OperationTrace trace;
  const Tape tape;
  const DryBatch batch{.rows = 3, .source = 7, .target = 5};
  Config config;
  config.data.image.size = {8, 4, 1};
  dry_run(model, batch, config);
  const std::vector<PartCall> calls = part_calls(store, trace, batch);
  const auto call = [&](const std::string& part) {
    const auto found =
        std::find_if(calls.begin(), calls.end(), [&](const PartCall& c) { return c.part == part; });
    return found == calls.end() ? PartCall() : *found;
  };
  EXPECT_EQ(call("patch_embedding").inputs, (std::vector<Shape>{{3, 8, 4}}));
  EXPECT_EQ(call("patch_embedding").output, (Shape{3, 8, 16}));
  EXPECT_EQ(call("positions").output, (Shape{3, 9, 16}));
  EXPECT_EQ(call("classifier").output, (Shape{3, 6}));
}

// No size of the batch is one of the model's.
TEST(ShapeFlow, TheBatchHasSizesOfItsOwn) {
  ParamStore store;
  store.root().create("a", {3, 5}, Init::zeros());
  store.root().create("b", {4}, Init::zeros());
  const DryBatch batch = dry_batch(store, ModelOptions());
  EXPECT_EQ(std::set<int64_t>({batch.rows, batch.source, batch.target}),
            std::set<int64_t>({6, 7, 8}));
}

TEST(OperationTrace, SeveralHearTheSame) {
  const OperationTrace first, second;
  const Var x = Var::parameter(Tensor::zeros({2}));
  add(x, x);
  EXPECT_TRUE(first.calls().empty()) << "no tape";
  {
    const Tape tape;
    add(x, x);
  }
  EXPECT_EQ(first.calls().size(), 1u);
  EXPECT_EQ(second.calls().size(), 1u);
}

}  // namespace
}  // namespace tapestry
