// The small layers that every model is made of. Layers are plain structs: the constructor takes the
// scope that names its parameters, the call operator is const.
#pragma once

#include <optional>

#include "autograd/ops.h"
#include "nn/layers/adapter.h"
#include "nn/layers/parameters.h"
#include "nn/layers/rope_frequencies.h"

namespace tapestry {

/// act(x W^T + b), W (out, in); the bias starts at 0. With an adapter its output is added in front
/// of act. A classifier may have a softcap behind it all (autograd/ops.h).
struct Linear {
  struct Options {
    int64_t in = 0;
    int64_t out = 0;
    bool bias = true;
    Activation activation = Activation::kNone;
    MatrixInit init = {};             ///< of W
    std::vector<int64_t> parts = {};  ///< rows of each projection that W packs; empty: it is one
    bool adaptable = true;  ///< false if other code reads the matrix: it never has an adapter
    bool packable = true;   ///< false if other code reads its values
    bool hidden = true;     ///< false at the ends of a model: it reads pixels, or scores classes
  };

  Linear(const Options& options, const ParamScope& scope);
  /// Uses an existing matrix and no bias: a classifier that shares an embedding.
  Linear(const WeightMatrix& weight, Precision precision) : weight(weight), precision(precision) {
    weight.will_multiply();
  }

  Var operator()(const Var& x) const;
  /// The layer as the classifier of a search: NextToken::best() and largest() of hidden states
  /// (R, K), where has_best() and has_largest().
  Tensor best(const Var& x, int64_t count, const std::vector<int32_t>& banned,
              ChosenRows chosen = {}) const {
    return weight.best(x, {bias, softcap, chosen}, count, banned);
  }
  Tensor largest(const Var& x, const std::vector<int32_t>& banned, ChosenRows chosen = {}) const {
    return weight.largest(x, {bias, softcap, chosen}, banned);
  }
  /// The layer with these rows of its matrix and its bias only, for inference. It has no adapter.
  Linear rows(std::span<const int32_t> rows) const;
  bool has_largest() const { return has_best() && weight.has_largest(); }
  bool has_best() const { return weight.packed() && !adapter && activation == Activation::kNone; }
  /// The layer as a classifier: the loss of its logits, which are never stored at once.
  CrossEntropy loss(const Var& x, const Tensor& targets, CrossEntropyOptions options) const {
    options.precision = precision;
    options.softcap = softcap;
    return linear_cross_entropy(weight.factor(x), weight, bias, targets, options);
  }

  /// The log-probabilities of targets under its logits, by groups of rows that end at `ends`.
  Var log_probabilities(const Var& x, const Tensor& targets,
                        const std::vector<int64_t>& ends) const {
    return linear_log_probabilities(weight.factor(x), weight, bias, targets, ends,
                                    {.precision = precision, .softcap = softcap});
  }

  WeightMatrix weight;
  Var bias;
  Activation activation = Activation::kNone;
  Precision precision;  ///< the store's
  double softcap = 0;   ///< 0: none
  std::optional<Adapter> adapter;

 private:
  Var product(const Var& x) const;
};

/// Layer or RMS normalisation over the last axis, or batch normalisation over all others; gamma
/// starts at 1, beta (not of RMS) at 0.
struct Norm {
  struct Options : NormOptions {
    bool bias = true;                      ///< layer and batch norms have a beta
    bool biased_running_variance = false;  ///< of batch norms (BatchNormOptions::biased)
    double running_momentum = 0.1;         ///< see BatchNormOptions::momentum
    bool unit_offset = false;  ///< the weight is stored as gamma - 1 (Gemma), and starts at 0
  };

  Norm(int64_t size, const Options& options, const ParamScope& scope);
  Var operator()(const Var& x) const;
  /// norm(residual + dropout(x)), dropout that of the options.
  Var operator()(const Var& x, const Var& residual) const;

  Var weight, bias;  ///< gamma, or gamma - 1 with unit_offset
  Options options;
  /// Running statistics of a batch norm, else undefined: saved with the parameters, not trained
  /// (Ioffe and Szegedy 2015). Each forward pass under a tape has statistics of its own, so
  /// micro-batches do not equal one big batch.
  Tensor running_mean, running_var;

 private:
  Var gamma() const { return options.unit_offset ? weight + 1. : weight; }
};

/// The function between the two matrices of a feed-forward network. Gated: act(gate(x)) * up(x),
/// with silu it is swiglu, with gelu geglu (Shazeer 2020).
struct HiddenAct {
  HiddenAct(Activation activation = Activation::kRelu, bool gated = false)
      : activation(activation), gated(gated) {}
  bool operator==(const HiddenAct&) const = default;

  Activation activation;
  bool gated;
};

/// "relu", "silu", "swiglu" and so on; null if it has no name.
const char* name_of(const HiddenAct& act);
/// All that have a name, the gated ones last.
std::vector<HiddenAct> hidden_acts();

/// Position-wise feed-forward network: down(act(up(x))) (Vaswani et al. 2017, 3.3). A gated one
/// keeps gate and up in one matrix (2F, D), the gate's rows first.
struct FeedForward {
  struct Options {
    int64_t hidden_size = 0;
    int64_t intermediate_size = 0;
    HiddenAct act = {};
    double dropout = 0;  ///< of the activations
    bool bias = true;
    MatrixInit up_init = {}, down_init = {};
  };

  FeedForward(const Options& options, const ParamScope& scope);
  Var operator()(const Var& x) const;

  HiddenAct act;
  Linear up, down;
  double dropout;
};

enum class NormPosition {
  kPost,      ///< norm(x + f(x)), Vaswani et al. 2017
  kPre,       ///< x + f(norm(x)), Xiong et al. 2020
  kSandwich,  ///< x + norm(f(norm(x))), Ding et al. 2021; Gemma 2 and 3
  kBranch,    ///< x + norm(f(x)), Liu et al. 2022; OLMo 2
  kNone,      ///< x + f(x)
};
constexpr const char* name_of(NormPosition position) {
  switch (position) {
    case NormPosition::kPost:
      return "post";
    case NormPosition::kPre:
      return "pre";
    case NormPosition::kSandwich:
      return "sandwich";
    case NormPosition::kBranch:
      return "branch";
    case NormPosition::kNone:
      return "none";
  }
  return nullptr;
}

/// The residual connection around a sub-layer f, with its norm and the dropout of f's output.
struct Residual {
  struct Options {
    int64_t hidden_size = 0;
    NormPosition position = NormPosition::kPost;
    Norm::Options norm;  ///< norm.dropout is the dropout of f's output
  };

  Residual(const Options& options, const ParamScope& scope);

  template <class F>
  Var operator()(const Var& x, F&& f) const {
    return position == NormPosition::kPost ? (*norm)(f(x), x) : x + branch(x, f);
  }
  /// What is added to x; not with kPost.
  template <class F>
  Var branch(const Var& x, F&& f) const {
    const Var y = f(norm ? (*norm)(x) : x);
    return tapestry::dropout(out_norm ? (*out_norm)(y) : y, dropout);
  }

  NormPosition position;
  double dropout;
  std::optional<Norm> norm;      ///< before f; of kPost, behind the sum
  std::optional<Norm> out_norm;  ///< behind f, "<scope>.out" of kSandwich
};

/// The sinusoidal table (length, size): row p holds sin(p w_i) in column 2i and cos(p w_i) in
/// column 2i + 1, w_i = 10000^(-2i / size) (Vaswani et al. 2017, 3.5).
Tensor sinusoidal_positions(int64_t length, int64_t size, DType dtype, Device device = {});

/// Sinusoids as fairseq has them, and M2M100: row p of (length, size) is that of position p + 2,
/// since 0 and 1 are not places of its texts. The sines of all size / 2 frequencies come first,
/// then the cosines; w_i = 10000^(-i / (size / 2 - 1)). `size` is even and more than 2.
Tensor fairseq_positions(int64_t length, int64_t size, DType dtype, Device device = {});

/// The table of rope() (length, size): row p holds cos(p w_i), then sin(p w_i), i from 0 to
/// size / 2 - 1, size the rotated part of the head's (Su et al. 2021), each times the attention
/// factor.
Tensor rope_table(int64_t length, int64_t size, const RopeFrequencies& w, DType dtype,
                  Device device = {});

}  // namespace tapestry
