// Layers and tiny models for the table of gradient checks.
#pragma once

#include <string>
#include <vector>

#include "autograd/gradcheck.h"
#include "nn/transformer.h"

namespace tapestry {

/// Every layer, and tiny encoder-decoders of both norm placements; dropout is on.
std::vector<GradcheckCase> model_gradchecks();

/// The loss of an encoder-decoder with these options on a small batch, by all of its parameters.
GradcheckCase encoder_decoder_gradcheck(const std::string& name, const ModelOptions& options);

}  // namespace tapestry
