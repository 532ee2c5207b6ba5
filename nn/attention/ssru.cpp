#include "nn/attention/ssru.h"

namespace tapestry {
namespace {

void check_context(const AttentionContext& context) {
  check(!context.mask.defined() && !context.prefix_lengths.defined() &&
            !context.relative_bias.defined(),
        "ssru", "a recurrence knows no masks, prefixes and relative positions.");
}

}  // namespace

Ssru::Ssru(const Options& options, const ParamScope& scope)
    : gates_and_values({.in = options.hidden_size,
                        .out = 2 * options.hidden_size,
                        .bias = false,
                        .init = options.init,
                        .parts = {options.hidden_size, options.hidden_size}},
                       scope / "gates_and_values"),
      gate_bias(options.bias ? scope.create("gate_bias", {options.hidden_size}, Init::zeros())
                             : Var()) {}

Var Ssru::operator()(const Var& x, const Tensor& /*lengths*/, bool causal,
                     const AttentionContext& context) const {
  check(causal, "ssru", "a recurrence is causal; expected a decoder.");
  check_context(context);
  return ssru(gates_and_values(x), gate_bias, {.sequences = context.sequences}).out;
}

Var Ssru::step(const Var& x, KeyValueCache& cache, const DecodingStep& step,
               const AttentionContext& context) const {
  check_context(context);
  SsruOptions options{.keeps_states = true};
  if (!step.reads_prompts()) {
    options.states = cache.kv;
    options.key_rows = step.key_rows, options.key_lengths = step.lengths;
  }
  const SsruResult result = ssru(gates_and_values(x), gate_bias, options);
  cache.write(result.states, 0, result.states.shape()[2], step);
  return result.out;
}

}  // namespace tapestry
