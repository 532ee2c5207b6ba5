#include "nn/gradcheck/models.h"

#include "core/kernels/elementwise/activation_functors.h"
#include "nn/attention/attention_pooling.h"
#include "nn/gradcheck/cases.h"

namespace tapestry {
namespace {

using namespace gradchecks;

constexpr LanguageModel::Vocabulary kWords{.size = 11, .no_target = 0};

// The loss of a model, by its parameters.
template <class Model, class Loss>
GradcheckCase loss_case(const std::string& name, const ModelOptions& options,
                        std::shared_ptr<Built<Model>> built, Loss loss) {
  GradcheckCase result{name, disturbed_parameters(built->store),
                       [built, loss] { return loss(built->model); }};
  // Finite differences across the kink of relu are wrong, not the gradient.
  if (!kinks_of(options.hidden_act.activation).empty()) result.tolerance = 1e-4;
  return result;
}

constexpr Vocabulary kPairVocabulary{.source_size = 11, .target_size = 11};

EncoderDecoder::Batch pairs_of(const Inputs& in) {
  return {in.ints({4, 7, 5, 3, 9, 3, 0, 0}, {2, 4}), in.lengths({4, 2}),
          in.ints({2, 6, 8, 2, 10, 0}, {2, 3}), in.ints({6, 8, 3, 10, 3, 0}, {2, 3})};
}

// EncoderDecoder or RnnAttention.
template <class Model>
GradcheckCase translation_case(const Inputs& in, const std::string& name,
                               const ModelOptions& options) {
  return loss_case(name, options, std::make_shared<Built<Model>>(in, options, kPairVocabulary),
                   [batch = pairs_of(in)](const Model& model) {
                     return model.loss(batch, {.label_smoothing = 0.1}).loss;
                   });
}

template <class Model>
GradcheckCase image_case(const Inputs& in, const std::string& name, const ModelOptions& options) {
  const ImageClasses data{.height = 4, .width = 6, .channels = 3, .classes = 3};
  const Var images = in.normal({2, data.height, data.width, data.channels}, 9);
  const Tensor labels = in.ints({2, 0}, {2});
  GradcheckCase result =
      loss_case(name, options, std::make_shared<Built<Model>>(in, options, data),
                [=](const Model& model) { return cross_entropy(model(images), labels).loss; });
  result.inputs.push_back(images);
  return result;
}

}  // namespace

namespace gradchecks {

GradcheckCase encoder_decoder_case(const Inputs& in, const std::string& name,
                                   const ModelOptions& options) {
  return translation_case<EncoderDecoder>(in, name, options);
}

GradcheckCase rnn_attention_case(const Inputs& in, const std::string& name,
                                 const ModelOptions& options) {
  GradcheckCase result = translation_case<RnnAttention>(in, name, options);
  result.tolerance = GradcheckCase().tolerance;  // hidden_act is not used: there is no kink
  return result;
}

GradcheckCase language_model_case(const Inputs& in, const std::string& name,
                                  const ModelOptions& options, bool causal) {
  LanguageModel::Batch batch{in.ints({4, 7, 5, 9, 10, 6, 3, 0}, {2, 4}),
                             in.ints({7, 5, 9, 3, 6, 3, 0, 0}, {2, 4}), in.lengths({4, 3})};
  if (!causal) batch.targets = in.ints({0, 8, 0, 9, 0, 7, 0, 0}, {2, 4});
  if (options.type_vocab_size > 1) {
    batch.segments = in.ints({0, 0, 1, 1, 0, 1, 1, 0}, {2, 4});
  }
  return loss_case(name, options,
                   std::make_shared<Built<LanguageModel>>(in, options, kWords, causal),
                   [batch](const LanguageModel& model) { return model.loss(batch, {}).loss; });
}

GradcheckCase classifier_case(const Inputs& in, const std::string& name,
                              const ModelOptions& options) {
  const Tensor ids = in.ints({4, 7, 5, 9, 10, 6, 3, 0}, {2, 4});
  const Tensor lengths = in.lengths({4, 3}), labels = in.ints({2, 0}, {2});
  return loss_case(name, options,
                   std::make_shared<Built<SequenceClassifier>>(in, options, kWords, int64_t{3}),
                   [=](const SequenceClassifier& model) {
                     return cross_entropy(model(ids, lengths), labels).loss;
                   });
}

GradcheckCase span_case(const Inputs& in, const std::string& name, const ModelOptions& options) {
  const Tensor ids = in.ints({4, 7, 5, 9, 10, 6, 3, 0}, {2, 4});
  const Tensor lengths = in.lengths({4, 3}).to(Device{});
  const Tensor labels = in.ints({1, 0, 3, 2}, {2, 2}).to(Device{});
  Tensor segments;
  if (options.type_vocab_size > 1) segments = in.ints({0, 0, 1, 1, 0, 1, 1, 0}, {2, 4});
  return loss_case(
      name, options, std::make_shared<Built<SpanExtractor>>(in, options, kWords),
      [=](const SpanExtractor& model) {
        return model.loss(ids, lengths, segments, labels, {.label_smoothing = 0.1}).loss;
      });
}

GradcheckCase tokens_case(const Inputs& in, const std::string& name, const ModelOptions& options) {
  const Tensor ids = in.ints({4, 7, 5, 9, 10, 6, 3, 0}, {2, 4}), lengths = in.lengths({4, 3});
  const Tensor labels = in.ints({-1, 2, 0, 1, 1, -1, 2, -1}, {2, 4}).to(Device{});
  return loss_case(name, options,
                   std::make_shared<Built<TokenClassifier>>(in, options, kWords, int64_t{3}),
                   [=](const TokenClassifier& model) {
                     return model.loss(model.hidden(ids, lengths), labels, {}).loss;
                   });
}

GradcheckCase embedder_case(const Inputs& in, const std::string& name,
                            const ModelOptions& options) {
  const Tensor ids = in.ints({4, 7, 5, 9, 10, 6, 3, 0, 8, 2, 0, 0}, {3, 4});
  const Tensor others = in.ints({6, 2, 0, 5, 5, 10, 6, 2, 0}, {3, 3});
  const Tensor lengths = in.lengths({4, 3, 2}).to(Device{});
  const Tensor other_lengths = in.lengths({2, 3, 2}).to(Device{});
  return loss_case(
      name, options, std::make_shared<Built<TextEmbedder>>(in, options, kWords),
      [=](const TextEmbedder& model) {
        const Var sources = model(ids, lengths), targets = model(others, other_lengths);
        // The sources are choices, too, as hard negatives are.
        const Var choices = concat({targets, sources}, 0);
        const Var found =
            contrastive_loss(sources, choices, {.sources = {}, .targets = {0, 1, 0, 2, 1, 3}},
                             {.temperature = 0.5, .both_directions = true}, {})
                .loss;
        return found + ranking_loss(sources, targets, {0.5, 2, 0.5}, 0.5, {}).loss;
      });
}

GradcheckCase vision_transformer_case(const Inputs& in, const std::string& name,
                                      const ModelOptions& options) {
  return image_case<VisionTransformer>(in, name, options);
}

GradcheckCase linear_classifier_case(const Inputs& in, const std::string& name,
                                     const ModelOptions& options) {
  return image_case<LinearClassifier>(in, name, options);
}

}  // namespace gradchecks

GradcheckCase encoder_decoder_gradcheck(const std::string& name, const ModelOptions& options) {
  return encoder_decoder_case(Inputs(), name, options);
}

GradcheckCase rnn_attention_gradcheck(const std::string& name, const ModelOptions& options) {
  return rnn_attention_case(Inputs(), name, options);
}

GradcheckCase language_model_gradcheck(const std::string& name, const ModelOptions& options,
                                       bool causal) {
  return language_model_case(Inputs(), name, options, causal);
}

GradcheckCase classifier_gradcheck(const std::string& name, const ModelOptions& options) {
  return classifier_case(Inputs(), name, options);
}

GradcheckCase span_extractor_gradcheck(const std::string& name, const ModelOptions& options) {
  return span_case(Inputs(), name, options);
}

GradcheckCase token_classifier_gradcheck(const std::string& name, const ModelOptions& options) {
  return tokens_case(Inputs(), name, options);
}

GradcheckCase text_embedder_gradcheck(const std::string& name, const ModelOptions& options) {
  return embedder_case(Inputs(), name, options);
}

GradcheckCase vision_transformer_gradcheck(const std::string& name, const ModelOptions& options) {
  return vision_transformer_case(Inputs(), name, options);
}

GradcheckCase linear_classifier_gradcheck(const std::string& name, const ModelOptions& options) {
  return linear_classifier_case(Inputs(), name, options);
}

GradcheckCase attention_pooling_gradcheck(const std::string& name, const ModelOptions& options) {
  const Inputs in;
  const Var queries = in.normal({3, 1}, 4), keys = in.normal({5, 1}, 5);
  const Var values = in.normal({5, 1}, 6);
  // A width at which every point counts, whatever the config's data are like.
  AttentionPooling::Options pooling = options.pooling;
  pooling.width = 2.5;
  return layer_case<AttentionPooling>(
      in, name, pooling, {queries, keys, values},
      [=](const AttentionPooling& f) { return f(queries, keys, values); });
}

}  // namespace tapestry
