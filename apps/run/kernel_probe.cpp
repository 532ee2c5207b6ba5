#include "apps/run/kernel_probe.h"

#include "apps/run/start.h"
#include "core/base/philox.h"
#include "nn/models/language_model.h"
#include "optim/optimizer.h"

namespace tapestry {
namespace {

// Odd sizes: vectors and tiles have remainders everywhere.
constexpr int64_t kVocab = 301, kRows = 5, kLength = 37;

ModelOptions probe_options() {
  ModelOptions options;
  options.hidden_size = 66;
  options.intermediate_size = 199;
  options.num_attention_heads = 3;
  options.num_hidden_layers = 2;
  options.hidden_act.activation = Activation::kGelu;
  return options;
}

Tensor probe_ids(uint32_t stream) {
  const Tensor ids = Tensor::empty({kRows, kLength}, DType::kInt32);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    ids.data<int32_t>()[i] = static_cast<int32_t>(
        1 + philox_below({1, 0, stream}, static_cast<uint64_t>(i), kVocab - 1));
  }
  return ids;
}

}  // namespace

std::string kernel_probe(const Numbers& numbers) {
  ParamStore store(/*seed=*/1, numbers.dtype, Device{}, numbers.precision);
  const LanguageModel model(probe_options(), {.size = kVocab}, /*causal=*/true, store.root());
  Optimizer optimizer(optimizer_defaults(OptimizerType::kAdamW), store.named());
  for (uint32_t step = 0; step < 2; ++step) {
    Tape tape({.seed = 1, .step = step, .stream = 0});
    const CrossEntropy result =
        model.loss({probe_ids(2 * step), probe_ids(2 * step + 1)}, {.label_smoothing = 0.1});
    tape.backward(result.loss);
    optimizer.step(1e-2, {.max_grad_norm = 1});
    optimizer.zero_grad();
  }
  return checksum_of(store);
}

}  // namespace tapestry
