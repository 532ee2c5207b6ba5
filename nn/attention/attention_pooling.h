// Attention pooling by similarity: Nadaraya-Watson regression (Nadaraya 1964, Watson 1964).
#pragma once

#include "autograd/ops.h"
#include "core/base/option_report.h"
#include "nn/layers/parameters.h"

namespace tapestry {

/// The similarity a(q, k) of a query and a key at distance u, measured in widths.
enum class SimilarityKernel {
  kGaussian,      ///< exp(-u^2 / 2)
  kBoxcar,        ///< 1 for u < 1, else 0
  kEpanechnikov,  ///< 1 - u^2 for u < 1, else 0
};

/// The name in a config.
constexpr const char* name_of(SimilarityKernel kernel) {
  switch (kernel) {
    case SimilarityKernel::kGaussian:
      return "gaussian";
    case SimilarityKernel::kBoxcar:
      return "boxcar";
    case SimilarityKernel::kEpanechnikov:
      return "epanechnikov";
  }
  return nullptr;
}

/// f(q) = sum_i a(q, k_i) v_i / sum_j a(q, k_j). A query that sees no key gives 0.
struct AttentionPooling {
  struct Options {
    SimilarityKernel kernel = SimilarityKernel::kGaussian;
    double width = 1;      ///< the initial width if it is learned
    bool learned = false;  ///< the parameter "inverse_width"; its sign does not matter

    /// The width must be positive. A boxcar's cannot be learned: it has no gradient.
    void validate(const OptionReport& report = OptionReport::throwing("attention_pooling")) const;
  };
  /// Throws as Options::validate().
  AttentionPooling(const Options& options, const ParamScope& scope);

  /// The normalised weights of queries (N, d) over keys (M, d): (N, M). Pairs whose mask (N, M) is
  /// not 0 are left out: leave-one-out regression masks the diagonal.
  Var weights(const Var& queries, const Var& keys, const Tensor& mask = {}) const;
  /// values (M, v) -> (N, v).
  Var operator()(const Var& queries, const Var& keys, const Var& values,
                 const Tensor& mask = {}) const {
    return matmul(weights(queries, keys, mask), values);
  }

  SimilarityKernel kernel;
  Var inverse_width;  ///< (1)
};

}  // namespace tapestry
