// What the rows of the gradient table for layers and models share; private to nn/gradcheck/.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "nn/gradcheck/models.h"

namespace tapestry::gradchecks {

inline constexpr uint64_t kSeed = 5;

using Cases = std::vector<GradcheckCase>;

/// Makes the inputs and parameters of the cases, all at one place.
class Inputs {
 public:
  explicit Inputs(const GradcheckPlace& place = {}) : place_(place) {}

  Tensor ints(const std::vector<int32_t>& values, const Shape& shape) const {
    return Tensor::from<int32_t>(values, shape, place_.device);
  }
  Tensor lengths(const std::vector<int32_t>& values) const {
    return ints(values, {static_cast<int64_t>(values.size())});
  }
  /// Standard normal; the same `stream` gives the same numbers.
  Var normal(const Shape& shape, uint32_t stream) const {
    Tensor value = Tensor::empty(shape, DType::kFloat64);
    for (int64_t i = 0; i < value.numel(); ++i) {
      value.data<double>()[i] = philox_normal({kSeed, 1, stream}, static_cast<uint64_t>(i));
    }
    return Var::parameter(value.to(place_.dtype).to(place_.device));
  }
  ParamStore store(const LoraOptions& lora = {}) const {
    return ParamStore(kSeed, place_.dtype, place_.device, Precision::kFull, lora);
  }

 private:
  GradcheckPlace place_;
};

/// Moves every parameter by a random number: some errors do not show at 0 and 1, the initial values
/// of biases and norms. Returns the trained ones.
std::vector<Var> disturbed_parameters(const ParamStore& store);

/// A layer or model with its store. The closure of its case keeps both alive.
template <class Model>
struct Built {
  template <class... Arguments>
  explicit Built(const Inputs& in, const Arguments&... arguments)
      : store(in.store()), model(arguments..., store.root()) {}
  ParamStore store;
  Model model;
};

/// The value forward(layer), by `inputs` and the layer's parameters.
template <class Layer, class Options, class F>
GradcheckCase layer_case(const Inputs& in, const std::string& name, const Options& options,
                         std::vector<Var> inputs, F forward) {
  auto built = std::make_shared<Built<Layer>>(in, options);
  for (const Var& parameter : disturbed_parameters(built->store)) inputs.push_back(parameter);
  return {name, inputs, [built, forward] { return forward(built->model); }};
}

/// A smooth activation, so that finite differences meet no kink; with dropout.
ModelOptions small_options();
ModelOptions pre_norm_options();

// The loss of a model on a small batch, by its parameters.
GradcheckCase encoder_decoder_case(const Inputs& in, const std::string& name,
                                   const ModelOptions& options);
GradcheckCase rnn_attention_case(const Inputs& in, const std::string& name,
                                 const ModelOptions& options);
GradcheckCase language_model_case(const Inputs& in, const std::string& name,
                                  const ModelOptions& options, bool causal);
GradcheckCase classifier_case(const Inputs& in, const std::string& name,
                              const ModelOptions& options);
GradcheckCase span_case(const Inputs& in, const std::string& name, const ModelOptions& options);
GradcheckCase tokens_case(const Inputs& in, const std::string& name, const ModelOptions& options);
GradcheckCase embedder_case(const Inputs& in, const std::string& name, const ModelOptions& options);
GradcheckCase vision_transformer_case(const Inputs& in, const std::string& name,
                                      const ModelOptions& options);
GradcheckCase linear_classifier_case(const Inputs& in, const std::string& name,
                                     const ModelOptions& options);

/// Linear layers, norms, feed-forward networks, residuals; attention; layers of a stack.
void add_layers(Cases& cases, const Inputs& in);
void add_attention_layers(Cases& cases, const Inputs& in);
void add_blocks(Cases& cases, const Inputs& in);
/// R-Drop of models that write and of classifiers.
void add_r_drop(Cases& cases, const Inputs& in);
void add_preferences(Cases& cases, const Inputs& in);
void add_alignments(Cases& cases, const Inputs& in);

}  // namespace tapestry::gradchecks
