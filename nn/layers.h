// The small layers that every model is made of. Layers are plain structs: the constructor takes the
// scope that names its parameters, the call operator is const.
#pragma once

#include "autograd/ops.h"
#include "nn/parameters.h"

namespace tapestry {

/// act(x W^T + b), W (out, in), Xavier uniform; the bias starts at 0.
struct Linear {
  struct Options {
    int64_t in = 0;
    int64_t out = 0;
    bool bias = true;
    Activation activation = Activation::kNone;
  };

  Linear(const Options& options, const ParamScope& scope);
  Var operator()(const Var& x) const { return linear(x, weight, bias, activation); }

  Var weight, bias;
  Activation activation;
};

/// Layer or RMS normalisation over the last axis; gamma starts at 1, beta (layer only) at 0.
struct Norm {
  Norm(int64_t size, const NormOptions& options, const ParamScope& scope);
  Var operator()(const Var& x) const { return norm(x, weight, bias, options); }

  Var weight, bias;
  NormOptions options;
};

/// Position-wise feed-forward network: down(act(up(x))) (Vaswani et al. 2017, 3.3).
struct FeedForward {
  struct Options {
    int64_t hidden_size = 0;
    int64_t intermediate_size = 0;
    Activation activation = Activation::kRelu;
    double dropout = 0;  ///< of the activations
  };

  FeedForward(const Options& options, const ParamScope& scope);
  Var operator()(const Var& x) const { return down(tapestry::dropout(up(x), dropout)); }

  Linear up, down;
  double dropout;
};

enum class NormPosition {
  kPost,  ///< norm(x + f(x)), Vaswani et al. 2017
  kPre,   ///< x + f(norm(x)), Xiong et al. 2020
};

/// The residual connection around a sub-layer f, with its norm and the dropout of f's output.
struct Residual {
  struct Options {
    int64_t hidden_size = 0;
    NormPosition position = NormPosition::kPost;
    NormOptions norm;  ///< norm.dropout is the dropout of f's output
  };

  Residual(const Options& options, const ParamScope& scope);

  template <class F>
  Var operator()(const Var& x, F&& f) const {
    if (position == NormPosition::kPost) {
      return residual_norm(f(x), x, norm.weight, norm.bias, norm.options).normed;
    }
    return x + dropout(f(norm(x)), norm.options.dropout);
  }

  Norm norm;
  NormPosition position;
};

/// The sinusoidal table (length, size): row p holds sin(p w_i) in column 2i and cos(p w_i) in
/// column 2i + 1, w_i = 10000^(-2i / size) (Vaswani et al. 2017, 3.5; document 001).
Tensor sinusoidal_positions(int64_t length, int64_t size, DType dtype, Device device = {});

}  // namespace tapestry
