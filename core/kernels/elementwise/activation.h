// The activations of layers and their names. Their maths is in activation_functors.h; linear.h,
// glu.h and unary.h apply them.
#pragma once

#include "core/base/enumerators.h"

namespace tapestry {

enum class Activation {
  kNone,      ///< x
  kRelu,      ///< max(x, 0); f'(0) = 0
  kGelu,      ///< x * Phi(x), exact
  kGeluTanh,  ///< 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  kSilu,      ///< x * sigmoid(x)
  kRelu2,     ///< max(x, 0)^2 (So et al. 2021)
};

struct ActivationNames {
  const char* name;   ///< null: no activation
  const char* gated;  ///< the name of f(a) * b (Shazeer 2020); null if it has none
};

constexpr ActivationNames names_of(Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return {"none", nullptr};
    case Activation::kRelu:
      return {"relu", nullptr};
    case Activation::kGelu:
      return {"gelu", "geglu"};
    case Activation::kGeluTanh:
      return {"gelu_tanh", "geglu_tanh"};
    case Activation::kSilu:
      return {"silu", "swiglu"};
    case Activation::kRelu2:
      return {"relu2", nullptr};
  }
  return {nullptr, nullptr};
}
constexpr const char* name_of(Activation activation) { return names_of(activation).name; }

inline constexpr auto kActivations = enumerators<Activation>();

}  // namespace tapestry
