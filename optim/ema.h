#pragma once

#include <cstdint>

#include "optim/named.h"

namespace tapestry {

struct EmaOptions {
  double decay = 0.999;
  /// The average follows more closely at first: update t uses min(decay, (1 + t) / (10 + t)).
  bool warmup = false;
};

/// An exponential moving average of parameters. It starts at their values at construction.
class Ema {
 public:
  /// In mixed precision it averages the tensor in `masters` (Optimizer::masters()) that has the
  /// parameter's name. Throws Error(kConfig) when decay is not in [0, 1), and like
  /// check_parameters().
  Ema(const EmaOptions& options, NamedVars params, const NamedTensors& masters = {});

  /// average = decay * average + (1 - decay) * parameter. Call it after each applied update.
  /// Throws while the averages are swapped in.
  void update();

  /// Swaps parameters and averages in place: after one call the model evaluates with the averages,
  /// after a second it is as before, bit for bit. EmaScope does both.
  void swap();

  /// "average/<parameter>" for each parameter and "num_updates"; the tensors share storage with
  /// this object. Throws while the averages are swapped in.
  NamedTensors state() const;
  /// Throws and changes nothing if names, shapes or dtypes differ.
  void load_state(const NamedTensors& state);

 private:
  EmaOptions options_;
  NamedVars params_;
  std::vector<Tensor> sources_;  // the averaged tensors: the parameters' values or their masters
  std::vector<Tensor> averages_;
  std::vector<Tensor> trained_;  // the parameters, while the averages are swapped in
  Tensor num_updates_;           // one int32
  bool swapped_ = false;
};

/// The averages are swapped in while this lives.
class EmaScope {
 public:
  explicit EmaScope(Ema& ema) : ema_(ema) { ema_.swap(); }
  ~EmaScope() { ema_.swap(); }
  EmaScope(const EmaScope&) = delete;
  EmaScope& operator=(const EmaScope&) = delete;

 private:
  Ema& ema_;
};

}  // namespace tapestry
