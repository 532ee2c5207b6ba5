// The models' forward, loss, gradients and cached decoding against PyTorch (tests/fixtures/
// encoder_decoder*.py, rnn_attention.py, language_models.py and vision_transformer.py).
#include "nn/models/language_model.h"
#include "nn/models/rnn_attention.h"
#include "nn/models/transformer.h"
#include "nn/models/vision_transformer.h"
#include "tests/nn/models/models.h"
#include "tests/nn/pytorch_fixture.h"

namespace tapestry {
namespace {

using test::distance;
using test::distance_of_tokens;
using test::Json;
using test::options_of;

// ---- Encoder-decoder Transformer

Vocabulary vocabulary_of(const Json& o) {
  return {.source_size = o.value("source_vocab", o.at("vocab").get<int64_t>()),
          .target_size = o.at("vocab"),
          .shared = o.value("shared", true),
          .no_target = o.at("pad_id")};
}

// A model of source and target.
template <class Model>
class PyTorchTranslation : public test::PyTorchFixture {
 protected:
  PyTorchTranslation() { load_parameters(); }

  void expect_forward() {
    const Var memory = model_.encode(batch_.source, batch_.source_lengths);
    const Var hidden = model_.decode(batch_.target_in, memory, batch_.source_lengths);
    EXPECT_LT(distance_of_tokens(memory.value(), doubles_of("memory"), batch_.source_lengths),
              1e-10);
    EXPECT_LT(distance(model_.logits(hidden).value(), doubles_of("logits")), 1e-10);
  }

  void expect_loss_and_gradients() {
    Tape tape;
    const CrossEntropy loss = model_.loss(batch_, loss_options_);
    EXPECT_NEAR(loss.loss.value().item(), fixture_.at("loss").get<double>(), 1e-12);
    EXPECT_NEAR(loss.nll_sum() / loss.tokens, fixture_.at("nll").get<double>(), 1e-12);
    tape.backward(loss.loss);
    expect_gradients();
  }

  // Logits of cached decoding are those that PyTorch gives under teacher forcing.
  void expect_cached_decoding() {
    const int64_t count = batch_.target_in.shape()[0], steps = batch_.target_in.shape()[1];
    const Var wanted = doubles_of("logits");
    typename Model::State state = test::started(model_, batch_.source, batch_.source_lengths);
    for (int64_t t = 0; t < steps; ++t) {
      const Tensor column = test::columns(batch_.target_in, t, t + 1).reshape({count});
      const Tensor logits = model_.step(column, state);
      EXPECT_LT(distance(logits, slice(wanted, 1, t, t + 1).value().reshape(logits.shape())), 1e-10)
          << "step " << t;
    }
  }

  const Model model_{options_of(options_), vocabulary_of(options_), store_.root()};
  const EncoderDecoder::Batch batch_{ints_of("source"), ints_of("source_lengths"),
                                     ints_of("target_in"), ints_of("target_out")};
};

using PyTorchEncoderDecoder = PyTorchTranslation<EncoderDecoder>;
TEST_P(PyTorchEncoderDecoder, Forward) { expect_forward(); }
TEST_P(PyTorchEncoderDecoder, LossAndAllGradients) { expect_loss_and_gradients(); }
TEST_P(PyTorchEncoderDecoder, CachedDecoding) { expect_cached_decoding(); }

INSTANTIATE_TEST_SUITE_P(Fixtures, PyTorchEncoderDecoder,
                         ::testing::Values("encoder_decoder_post", "encoder_decoder_pre",
                                           "encoder_decoder_grouped"),
                         [](const auto& info) { return std::string(info.param); });

// ---- Recurrent encoder-decoder

using PyTorchRnnAttention = PyTorchTranslation<RnnAttention>;
TEST_P(PyTorchRnnAttention, Forward) { expect_forward(); }
TEST_P(PyTorchRnnAttention, LossAndAllGradients) { expect_loss_and_gradients(); }
TEST_P(PyTorchRnnAttention, CachedDecoding) { expect_cached_decoding(); }

INSTANTIATE_TEST_SUITE_P(Fixtures, PyTorchRnnAttention,
                         ::testing::Values("rnn_attention_tied", "rnn_attention_untied"),
                         [](const auto& info) { return std::string(info.param); });

// ---- Language models

class PyTorchLanguageModel : public test::PyTorchFixture {
 protected:
  PyTorchLanguageModel() {
    load_parameters();
    // A causal model needs no lengths.
    if (model_.trunk.stack.causal) return;
    batch_.lengths = lengths_;
    batch_.segments = ints_of("segments");
  }

  void expect_loss_and_gradients() {
    Tape tape;
    const CrossEntropy loss = model_.loss(batch_, loss_options_);
    EXPECT_NEAR(loss.loss.value().item(), fixture_.at("loss").get<double>(), 1e-12);
    EXPECT_NEAR(loss.nll_sum() / loss.tokens, fixture_.at("nll").get<double>(), 1e-12);
    tape.backward(loss.loss);
    expect_gradients();
  }

  const LanguageModel model_{options_of(options_),
                             {.size = options_.at("vocab"), .no_target = options_.at("pad_id")},
                             options_.at("causal"),
                             store_.root()};
  LanguageModel::Batch batch_{ints_of("ids"), ints_of("targets")};
  const Tensor lengths_ = ints_of("lengths");
};

TEST_P(PyTorchLanguageModel, Forward) {
  const Var trunk = model_.trunk(batch_.ids, batch_.lengths, batch_.segments);
  EXPECT_LT(distance_of_tokens(trunk.value(), doubles_of("trunk"), batch_.lengths), 1e-10);
  const Var hidden = model_.hidden(batch_.ids, batch_.lengths, batch_.segments);
  EXPECT_LT(distance_of_tokens(model_.logits(hidden).value(), doubles_of("logits"), batch_.lengths),
            1e-10);
}

TEST_P(PyTorchLanguageModel, LossAndAllGradients) { expect_loss_and_gradients(); }

// A causal model may get the lengths, but does not need them: no real token sees the padding.
TEST_P(PyTorchLanguageModel, LossAndAllGradientsWithLengths) {
  batch_.lengths = lengths_;
  expect_loss_and_gradients();
}

// Each split of the tokens into those of a prompt and steps.
TEST_P(PyTorchLanguageModel, CachedDecoding) {
  if (!model_.trunk.stack.causal) {
    EXPECT_EQ(test::error_of([&] { test::started(model_, batch_.ids, 2); }),
              "[trunk] only a causal model can be fed step by step.");
    return;
  }
  const int64_t length = batch_.ids.shape()[1];
  const Var wanted = doubles_of("logits");
  for (int64_t first = 0; first < length; ++first) {
    LanguageModel::State state = test::started(model_, batch_.ids, first);
    for (int64_t t = first; t < length; ++t) {
      const Tensor logits = test::step_of(model_, batch_.ids, t, state);
      EXPECT_LT(distance(logits, slice(wanted, 1, t, t + 1).value().reshape(logits.shape())), 1e-10)
          << "token " << t << " after " << first << " at first";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, PyTorchLanguageModel,
                         ::testing::Values("language_model_gpt2", "language_model_llama",
                                           "language_model_bert"),
                         [](const auto& info) { return std::string(info.param); });

// ---- Vision Transformers

class PyTorchVisionTransformer : public test::PyTorchFixture {
 protected:
  PyTorchVisionTransformer() { load_parameters(); }

  static ModelOptions model_options(const Json& o) {
    ModelOptions options = options_of(o);
    options.patch_size = o.at("patch_size");
    options.pooled_head = o.at("pooled_head");
    return options;
  }

  const VisionTransformer model_{model_options(options_),
                                 {.height = options_.at("height"),
                                  .width = options_.at("width"),
                                  .channels = options_.at("channels"),
                                  .classes = options_.at("classes")},
                                 store_.root()};
  const Tensor images_ = doubles_of("images");
};

TEST_P(PyTorchVisionTransformer, Forward) {
  EXPECT_LT(distance(model_.hidden(images_).value(), doubles_of("hidden")), 1e-10);
  EXPECT_LT(distance(model_(images_).value(), doubles_of("logits")), 1e-10);
}

TEST_P(PyTorchVisionTransformer, LossAndAllGradients) {
  Tape tape;
  const CrossEntropy loss = cross_entropy(model_(images_), ints_of("labels"), loss_options_);
  EXPECT_NEAR(loss.loss.value().item(), fixture_.at("loss").get<double>(), 1e-12);
  EXPECT_NEAR(loss.nll_sum() / loss.tokens, fixture_.at("nll").get<double>(), 1e-12);
  tape.backward(loss.loss);
  expect_gradients();
}

INSTANTIATE_TEST_SUITE_P(Fixtures, PyTorchVisionTransformer,
                         ::testing::Values("vision_transformer_mlp", "vision_transformer_linear"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tapestry
