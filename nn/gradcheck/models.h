// Layers and tiny models for the table of gradient checks.
#pragma once

#include <string>
#include <vector>

#include "autograd/gradcheck.h"
#include "nn/models/language_model.h"
#include "nn/models/rnn_attention.h"
#include "nn/models/span_extractor.h"
#include "nn/models/text_embedder.h"
#include "nn/models/token_classifier.h"
#include "nn/models/transformer.h"
#include "nn/models/vision_transformer.h"

namespace tapestry {

/// Cases for every layer, and for tiny models of every kind and norm placement, with dropout.
std::vector<GradcheckCase> model_gradchecks(const GradcheckPlace& place = {});

/// The loss of an encoder-decoder with these options on a small batch, by all its parameters.
GradcheckCase encoder_decoder_gradcheck(const std::string& name, const ModelOptions& options);

/// The loss of a recurrent encoder-decoder with these options, by all of its parameters.
GradcheckCase rnn_attention_gradcheck(const std::string& name, const ModelOptions& options);

/// The loss of a causal or masked language model with these options, by all of its parameters.
GradcheckCase language_model_gradcheck(const std::string& name, const ModelOptions& options,
                                       bool causal);
/// The loss of a sequence classifier, by all of its parameters.
GradcheckCase classifier_gradcheck(const std::string& name, const ModelOptions& options);
/// The loss of a span extractor, by all of its parameters.
GradcheckCase span_extractor_gradcheck(const std::string& name, const ModelOptions& options);
/// The loss of a token classifier, by all of its parameters.
GradcheckCase token_classifier_gradcheck(const std::string& name, const ModelOptions& options);
/// The loss of pairs of texts by their vectors, by all of the embedder's parameters.
GradcheckCase text_embedder_gradcheck(const std::string& name, const ModelOptions& options);
/// The loss of a classifier of images of 4 x 6 pixels, by the images too.
GradcheckCase vision_transformer_gradcheck(const std::string& name, const ModelOptions& options);
GradcheckCase linear_classifier_gradcheck(const std::string& name, const ModelOptions& options);
/// Attention pooling's predictions at three places from five points, by all of them and a learned
/// width.
GradcheckCase attention_pooling_gradcheck(const std::string& name, const ModelOptions& options);

}  // namespace tapestry
