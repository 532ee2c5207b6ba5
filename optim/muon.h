// Muon: momentum whose matrices are made orthogonal (Jordan et al. 2024), with the rates by shape
// of torch.optim.Muon, NorMuon's rows and cautious weight decay. It is for the matrices between
// the layers of a model; what else a model learns has AdamW beside it (optim/optimizer.h).
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/enumerators.h"
#include "core/base/option_report.h"
#include "core/tensor.h"

namespace tapestry {

struct GradientTransform;

/// The polynomials a x + b x^3 + c x^5 that bring all singular values near 1.
enum class NewtonSchulz {
  kQuintic,       ///< 3.4445, -4.775, 2.0315 in each step: fast, ends between 0.7 and 1.2
  kPolarExpress,  ///< another one in each step, the best of five (Amsel et al. 2025): nearer to 1
};

constexpr const char* name_of(NewtonSchulz polynomials) {
  switch (polynomials) {
    case NewtonSchulz::kQuintic:
      return "quintic";
    case NewtonSchulz::kPolarExpress:
      return "polar_express";
  }
  return nullptr;
}
inline constexpr auto kNewtonSchulz = enumerators<NewtonSchulz>();

/// What a rate is multiplied by for a matrix (rows, cols).
enum class RateByShape {
  kOriginal,           ///< sqrt(max(1, rows / cols))
  kMatchRmsAdamW,      ///< 0.2 sqrt(max(rows, cols)): steps as large as AdamW's (Liu et al. 2025)
  kSpectralUnclamped,  ///< sqrt(rows / cols)
};

constexpr const char* name_of(RateByShape rule) {
  switch (rule) {
    case RateByShape::kOriginal:
      return "original";
    case RateByShape::kMatchRmsAdamW:
      return "match_rms_adamw";
    case RateByShape::kSpectralUnclamped:
      return "spectral_unclamped";
  }
  return nullptr;
}
inline constexpr auto kRatesByShape = enumerators<RateByShape>();

/// Names and values are torch.optim.Muon's, where it has them.
struct MuonOptions {
  bool nesterov = true;
  int64_t ns_steps = 5;
  NewtonSchulz ns_coefficients = NewtonSchulz::kQuintic;
  RateByShape adjust_lr_fn = RateByShape::kOriginal;
  /// Weight decay only where the step, too, goes towards 0 (Chen et al. 2025).
  bool cautious_weight_decay = false;
  /// Above 0 each row of an orthogonal matrix is divided by the root of an average of its mean
  /// square, which has this decay, and the whole keeps its norm (NorMuon, Li et al. 2025).
  double normuon_beta2 = 0;
  bool scales_rows() const { return normuon_beta2 > 0; }

  /// More steps cost time for nothing.
  static constexpr int64_t kMostSteps = 99;
  void validate(const OptionReport& report) const;
};

double rate_factor(RateByShape rule, int64_t rows, int64_t cols);

/// Floating-point operations of the products that make a matrix orthogonal, 2 a multiply-add, as
/// if all of a symmetric one were computed.
double orthogonal_flops(int64_t rows, int64_t cols, const MuonOptions& options);

/// A matrix of an update: a parameter, or rows of it.
struct MuonMatrix {
  Tensor param = {};         ///< (rows, cols)
  Tensor master = {};        ///< of a bfloat16 one, else undefined
  Tensor gradient = {};      ///< of the parameter's type or the wider one
  Tensor momentum = {};      ///< of the wider type
  Tensor row_squares = {};   ///< (rows), of the wider type; of NorMuon, else undefined
  double learning_rate = 0;  ///< before it is adjusted to the shape
  double weight_decay = 0;
};

/// One update of all of them: nothing changes where a gradient is not finite. Products are computed
/// in the type of the parameters (torch.optim.Muon's in bfloat16 always); all else in the wider
/// one. The bits do not depend on the number of threads, or on which matrices an update has.
void muon_step(const std::vector<MuonMatrix>& matrices, double momentum, const MuonOptions& options,
               const GradientTransform& transform);

/// The orthogonal matrix that muon_step() takes in the place of `matrix` (rows, cols).
Tensor orthogonalized(const Tensor& matrix, const MuonOptions& options);

}  // namespace tapestry
