// The update rules, one element at a time. Each functor is built from the numbers of its step and
// called with the parameter p, the transformed gradient g (clipped, no weight decay yet) and a
// pointer to its state values; p and the state are updated in place. Default-constructed ones only
// fill tables. rule_of<T>(step) makes the functor.
//
// Every product that is added is fused explicitly: left to itself, nvcc fuses one or the other of
// two, not the same one in all kernels.
#pragma once

#include <cmath>

#include "core/kernels/optimizer.h"

namespace tapestry {

/// The factor of the gradients. If not `finite`, nothing is updated.
struct GradientScale {
  double value;
  bool finite;
};
TAPESTRY_HOST_DEVICE inline GradientScale gradient_scale(const GradientTransform& transform) {
  if (transform.squared_norm == nullptr) return {transform.scale, true};
  const double norm = std::abs(transform.scale) * std::sqrt(*transform.squared_norm);
  return {transform.scale * norm_clip_factor(norm, transform.max_norm), std::isfinite(norm)};
}

/// What an element draws in an update, from its gradient's bits; rounded_at_random() goes on from
/// it.
TAPESTRY_HOST_DEVICE inline uint32_t rounding_draw(uint32_t gradient, uint32_t update) {
  return gradient * 0x9e3779b1U + update * 0x85ebca77U;
}
/// The bits of a float, rounded to bfloat16 away from 0 with a probability of what is cut off: a
/// hash of the draw and of the bits is added to the lower half, which is then cleared.
TAPESTRY_HOST_DEVICE inline uint32_t rounded_at_random(uint32_t bits, uint32_t draw) {
  const uint32_t x = bits ^ draw;
  return (bits + (((x ^ x >> 16) * 0x7feb352dU) >> 16)) & 0xffff0000U;
}

/// p -= lr * (g + weight_decay * p)
template <class T>
struct SgdRule {
  T lr, weight_decay;
  SgdRule() = default;
  explicit SgdRule(const SgdStep& s) : lr(s.learning_rate), weight_decay(s.weight_decay) {}
  TAPESTRY_HOST_DEVICE void operator()(T& p, T g, T*) const {
    g = std::fma(weight_decay, p, g);
    p = std::fma(-lr, g, p);
  }
};
template <class T>
SgdRule<T> rule_of(const SgdStep& step) {
  return SgdRule<T>(step);
}

/// v = momentum * v + g;  p -= lr * v, or with Nesterov's look-ahead p -= lr * (g + momentum * v)
template <class T>
struct MomentumRule {
  T lr, weight_decay, momentum;
  bool nesterov;
  MomentumRule() = default;
  explicit MomentumRule(const MomentumStep& s)
      : lr(s.learning_rate),
        weight_decay(s.weight_decay),
        momentum(s.momentum),
        nesterov(s.nesterov) {}
  TAPESTRY_HOST_DEVICE void operator()(T& p, T g, T* state) const {
    T& v = state[0];
    g = std::fma(weight_decay, p, g);
    v = std::fma(momentum, v, g);
    p = std::fma(-lr, nesterov ? std::fma(momentum, v, g) : v, p);
  }
};
template <class T>
MomentumRule<T> rule_of(const MomentumStep& step) {
  return MomentumRule<T>(step);
}

/// s += g^2;  p -= lr * g / (sqrt(s) + eps)
template <class T>
struct AdagradRule {
  T lr, weight_decay, eps;
  AdagradRule() = default;
  explicit AdagradRule(const AdagradStep& s)
      : lr(s.learning_rate), weight_decay(s.weight_decay), eps(s.eps) {}
  TAPESTRY_HOST_DEVICE void operator()(T& p, T g, T* state) const {
    T& sum = state[0];
    g = std::fma(weight_decay, p, g);
    sum = std::fma(g, g, sum);
    p -= lr * g / (std::sqrt(sum) + eps);
  }
};
template <class T>
AdagradRule<T> rule_of(const AdagradStep& step) {
  return AdagradRule<T>(step);
}

/// s = alpha * s + (1 - alpha) * g^2;  p -= lr * g / (sqrt(s) + eps)
template <class T>
struct RmspropRule {
  T lr, weight_decay, alpha, one_minus_alpha, eps;
  RmspropRule() = default;
  explicit RmspropRule(const RmspropStep& s)
      : lr(s.learning_rate),
        weight_decay(s.weight_decay),
        alpha(s.alpha),
        one_minus_alpha(1 - s.alpha),
        eps(s.eps) {}
  TAPESTRY_HOST_DEVICE void operator()(T& p, T g, T* state) const {
    T& square = state[0];
    g = std::fma(weight_decay, p, g);
    square = std::fma(alpha, square, one_minus_alpha * (g * g));
    p -= lr * g / (std::sqrt(square) + eps);
  }
};
template <class T>
RmspropRule<T> rule_of(const RmspropStep& step) {
  return RmspropRule<T>(step);
}

/// s = rho * s + (1 - rho) * g^2;  u = g * sqrt(a + eps) / sqrt(s + eps);
/// a = rho * a + (1 - rho) * u^2;  p -= lr * u   (Zeiler 2012: eps inside the roots)
template <class T>
struct AdadeltaRule {
  T lr, weight_decay, rho, one_minus_rho, eps;
  AdadeltaRule() = default;
  explicit AdadeltaRule(const AdadeltaStep& s)
      : lr(s.learning_rate),
        weight_decay(s.weight_decay),
        rho(s.rho),
        one_minus_rho(1 - s.rho),
        eps(s.eps) {}
  TAPESTRY_HOST_DEVICE void operator()(T& p, T g, T* state) const {
    T& square = state[0];
    T& accumulated = state[1];
    g = std::fma(weight_decay, p, g);
    square = std::fma(rho, square, one_minus_rho * (g * g));
    const T update = std::sqrt(accumulated + eps) / std::sqrt(square + eps) * g;
    accumulated = std::fma(rho, accumulated, one_minus_rho * (update * update));
    p = std::fma(-lr, update, p);
  }
};
template <class T>
AdadeltaRule<T> rule_of(const AdadeltaStep& step) {
  return AdadeltaRule<T>(step);
}

/// m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2;
/// p -= lr * (m / bias_correction1) / (sqrt(v / bias_correction2) + eps)   (Kingma & Ba 2015).
/// Decoupled (Loshchilov & Hutter 2019): g is unchanged, and p first shrinks to (1 - lr *
/// weight_decay) * p.
template <class T>
struct AdamRule {
  T beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
  T step_size;     // lr / bias_correction1
  T root_scale;    // 1 / sqrt(bias_correction2)
  T weight_decay;  // of the gradient; 0 when decoupled
  T shrink;        // of the parameter; 1 unless decoupled
  AdamRule() = default;
  explicit AdamRule(const AdamStep& s)
      : beta1(s.beta1),
        one_minus_beta1(1 - s.beta1),
        beta2(s.beta2),
        one_minus_beta2(1 - s.beta2),
        eps(s.eps),
        step_size(s.learning_rate / s.bias_correction1),
        root_scale(1 / std::sqrt(s.bias_correction2)),
        weight_decay(s.decoupled ? 0 : s.weight_decay),
        shrink(s.decoupled ? 1 - s.learning_rate * s.weight_decay : 1) {}
  TAPESTRY_HOST_DEVICE void operator()(T& p, T g, T* state) const {
    T& m = state[0];
    T& v = state[1];
    g = std::fma(weight_decay, p, g);
    m = std::fma(beta1, m, one_minus_beta1 * g);
    v = std::fma(beta2, v, one_minus_beta2 * (g * g));
    p = std::fma(-step_size, m / std::fma(std::sqrt(v), root_scale, eps), shrink * p);
  }
};
template <class T>
AdamRule<T> rule_of(const AdamStep& step) {
  return AdamRule<T>(step);
}

/// v += (1 - momentum) * (g - v);  p = v, or with Nesterov's look-ahead p = g + momentum * (v - g)
template <class T>
struct MuonMomentumRule {
  T momentum, one_minus_momentum;
  bool nesterov;
  MuonMomentumRule() = default;
  explicit MuonMomentumRule(const MuonMomentumStep& s)
      : momentum(s.momentum), one_minus_momentum(1 - s.momentum), nesterov(s.nesterov) {}
  TAPESTRY_HOST_DEVICE void operator()(T& p, T g, T* state) const {
    T& v = state[0];
    v = std::fma(one_minus_momentum, g - v, v);
    p = nesterov ? std::fma(momentum, v - g, g) : v;
  }
};
template <class T>
MuonMomentumRule<T> rule_of(const MuonMomentumStep& step) {
  return MuonMomentumRule<T>(step);
}

/// v += (1 - beta2) * (g - v);  p = 1 / sqrt(max(v, 1e-20))   (Li et al. 2025, NorMuon)
template <class T>
struct MuonRowsRule {
  T one_minus_beta2;
  MuonRowsRule() = default;
  explicit MuonRowsRule(const MuonRowsStep& s) : one_minus_beta2(1 - s.beta2) {}
  TAPESTRY_HOST_DEVICE static constexpr T least() { return T(1e-20); }
  TAPESTRY_HOST_DEVICE void operator()(T& p, T g, T* state) const {
    T& v = state[0];
    v = std::fma(one_minus_beta2, g - v, v);
    p = T(1) / std::sqrt(v > least() ? v : least());
  }
};
template <class T>
MuonRowsRule<T> rule_of(const MuonRowsStep& step) {
  return MuonRowsRule<T>(step);
}

/// p = shrink * p - lr * g; a cautious one shrinks only where g * p >= 0 (Chen et al. 2025)
template <class T>
struct MuonRule {
  T lr, shrink;
  bool cautious;
  MuonRule() = default;
  explicit MuonRule(const MuonStep& s)
      : lr(s.learning_rate), shrink(s.shrink), cautious(s.cautious) {}
  TAPESTRY_HOST_DEVICE void operator()(T& p, T g, T*) const {
    const T kept = cautious && g * p < T(0) ? p : shrink * p;
    p = std::fma(-lr, g, kept);
  }
};
template <class T>
MuonRule<T> rule_of(const MuonStep& step) {
  return MuonRule<T>(step);
}

}  // namespace tapestry
