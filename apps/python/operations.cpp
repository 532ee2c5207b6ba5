// The differentiable vocabulary (autograd/ops.h) as tapestry.ops.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "apps/python/calls.h"
#include "apps/python/tensors.h"
#include "autograd/ops.h"

namespace tapestry::python {
namespace {

using nb::literals::operator""_a;
using WithoutGil = nb::call_guard<nb::gil_scoped_release>;
using MaybeVar = std::optional<Var>;

Var or_undefined(const MaybeVar& var) { return var.value_or(Var()); }
Tensor tensor_or_undefined(const MaybeVar& var) { return var ? var->value() : Tensor(); }

Activation activation_named(const std::string& name) {
  for (const Activation one : {Activation::kNone, Activation::kRelu, Activation::kGelu,
                               Activation::kGeluTanh, Activation::kSilu, Activation::kRelu2}) {
    if (name == names_of(one).name) return one;
  }
  fail(ErrorKind::kConfig, "[ops] activation must be none, relu, gelu, gelu_tanh, silu or relu2, ",
       "got '", name, "'.");
}

NormOptions norm_options(const std::string& kind, double eps, double dropout) {
  if (kind != "layer" && kind != "rms") {
    fail(ErrorKind::kConfig, "[norm] kind must be layer or rms, got '", kind, "'.");
  }
  return {
      .kind = kind == "layer" ? NormKind::kLayer : NormKind::kRms, .eps = eps, .dropout = dropout};
}

std::pair<Var, int64_t> loss_and_tokens(const CrossEntropy& result) {
  return {result.loss, result.tokens};
}

void bind_elementwise(nb::module_& ops) {
  constexpr std::tuple<const char*, Var (*)(const Var&, const Var&), const char*> kPairs[] = {
      {"add", &add, "a + b; the operands broadcast as in NumPy."},
      {"sub", &sub, "a - b; the operands broadcast as in NumPy."},
      {"mul", &mul, "a * b; the operands broadcast as in NumPy."},
      {"div", &div, "a / b; the operands broadcast as in NumPy."}};
  for (const auto& [name, function, meaning] : kPairs) {
    ops.def(name, function, "a"_a, "b"_a, WithoutGil(), meaning);
  }
  ops.def("affine", &affine, "x"_a, "alpha"_a, "beta"_a, WithoutGil(), "alpha * x + beta");
  constexpr std::tuple<const char*, Var (*)(const Var&), const char*> kFunctions[] = {
      {"relu", [](const Var& x) { return relu(x); }, "max(x, 0)"},
      {"relu2", [](const Var& x) { return relu2(x); }, "max(x, 0)^2 (So et al. 2021)"},
      {"gelu", [](const Var& x) { return gelu(x); }, "x * Phi(x), exact"},
      {"gelu_tanh", [](const Var& x) { return gelu_tanh(x); }, "GELU by tanh"},
      {"silu", [](const Var& x) { return silu(x); }, "x * sigmoid(x)"},
      {"tanh", [](const Var& x) { return tanh(x); }, ""},
      {"sigmoid", [](const Var& x) { return sigmoid(x); }, ""},
      {"exp", [](const Var& x) { return exp(x); }, ""},
      {"log", [](const Var& x) { return log(x); }, ""},
      {"sqrt", [](const Var& x) { return sqrt(x); }, ""},
      {"softmax", [](const Var& x) { return softmax(x); },
       "Over the last axis; a row of only -inf gives zeros."},
      {"log_softmax", [](const Var& x) { return log_softmax(x); }, "Over the last axis."}};
  for (const auto& [name, function, meaning] : kFunctions) {
    ops.def(name, function, "x"_a, WithoutGil(), meaning);
  }
  ops.def("softcap", &softcap, "x"_a, "cap"_a, WithoutGil(), "cap * tanh(x / cap)");
  ops.def(
      "glu",
      [](const std::string& activation, const Var& x) {
        return glu(activation_named(activation), x);
      },
      "activation"_a, "x"_a, WithoutGil(),
      "f(a) * b for x = [a | b] split in the middle of the last axis: (..., 2F) -> (..., F); "
      "swiglu "
      "with silu (Shazeer 2020).");
  ops.def(
      "masked_fill",
      [](const Var& x, const Var& mask, double value) {
        return masked_fill(x, mask.value(), value);
      },
      "x"_a, "mask"_a, "value"_a, WithoutGil(),
      "x with `value` where the mask (int32) is not 0. It covers x's leading axes, its trailing "
      "axes, or both.");
  ops.def("dropout", &dropout, "x"_a, "p"_a, WithoutGil(),
          "Inverted dropout; the identity when p is 0 or no tape records.");
}

void bind_shapes(nb::module_& ops) {
  ops.def(
      "reshape",
      [](const Var& x, const std::vector<int64_t>& shape) { return reshape(x, shape_of(shape)); },
      "x"_a, "shape"_a, WithoutGil());
  ops.def("permute", &permute, "x"_a, "order"_a, WithoutGil(),
          "Axis i of the result is axis order[i] of x.");
  ops.def(
      "concat",
      [](const std::vector<Var>& parts, int axis) { return tapestry::concat(parts, axis); },
      "parts"_a, "axis"_a, WithoutGil());
  ops.def("slice", &slice, "x"_a, "axis"_a, "begin"_a, "end"_a, WithoutGil(),
          "Elements [begin, end) of the axis.");
  ops.def(
      "sum", [](const Var& x, std::optional<int> axis) { return axis ? sum(x, *axis) : sum(x); },
      "x"_a, "axis"_a = nb::none(), WithoutGil(),
      "Over all elements (a scalar), or over one axis, which disappears.");
  ops.def(
      "mean", [](const Var& x, std::optional<int> axis) { return axis ? mean(x, *axis) : mean(x); },
      "x"_a, "axis"_a = nb::none(), WithoutGil(),
      "Over all elements (a scalar), or over one axis, which disappears.");
}

void bind_products(nb::module_& ops) {
  ops.def(
      "matmul",
      [](const Var& a, const Var& b, bool trans_a, bool trans_b) {
        return matmul(a, b, {.trans_a = trans_a, .trans_b = trans_b});
      },
      "a"_a, "b"_a, nb::kw_only(), "trans_a"_a = false, "trans_b"_a = false, WithoutGil(),
      "op(a) (..., m, k) times op(b) (..., k, n), batched over equal leading axes; a matrix b is "
      "used for every batch of a.");
  ops.def(
      "linear",
      [](const Var& x, const Var& weight, const MaybeVar& bias, const std::string& activation) {
        return linear(x, weight, or_undefined(bias), {.activation = activation_named(activation)});
      },
      "x"_a, "weight"_a, "bias"_a = nb::none(), nb::kw_only(), "activation"_a = "none",
      WithoutGil(),
      "act(x W^T + bias) in one pass: x (..., in), weight (out, in), bias (out) -> (..., out).");
  ops.def(
      "embedding",
      [](const Var& ids, const Var& table, const MaybeVar& positions, double scale,
         double dropout) {
        return embedding(ids.value(), table, or_undefined(positions),
                         {.scale = scale, .dropout = dropout});
      },
      "ids"_a, "table"_a, "positions"_a = nb::none(), nb::kw_only(), "scale"_a = 1.0,
      "dropout"_a = 0.0, WithoutGil(),
      "dropout(scale * table[ids] + positions): ids (B, T) int32, table (V, D), positions (T or "
      "more, D) -> (B, T, D).");
  ops.def(
      "norm",
      [](const Var& x, const Var& gamma, const MaybeVar& beta, const std::string& kind,
         double eps) { return norm(x, gamma, or_undefined(beta), norm_options(kind, eps, 0)); },
      "x"_a, "gamma"_a, "beta"_a = nb::none(), nb::kw_only(), "kind"_a = "layer", "eps"_a = 1e-5,
      WithoutGil(), "norm(x) * gamma + beta over the last axis: x (..., D), gamma and beta (D).");
  ops.def(
      "residual_norm",
      [](const Var& x, const Var& residual, const Var& gamma, const MaybeVar& beta,
         const std::string& kind, double eps, double dropout) {
        const ResidualNorm both =
            residual_norm(x, residual, gamma, or_undefined(beta), norm_options(kind, eps, dropout));
        return std::pair(both.normed, both.sum);
      },
      "x"_a, "residual"_a, "gamma"_a, "beta"_a = nb::none(), nb::kw_only(), "kind"_a = "layer",
      "eps"_a = 1e-5, "dropout"_a = 0.0, WithoutGil(),
      "s = residual + dropout(x) and its norm in one pass: (norm(s), s).");
  ops.def(
      "batch_norm",
      [](const Var& x, const Var& gamma, const MaybeVar& beta, const Tensor& running_mean,
         const Tensor& running_variance, double eps, double momentum) {
        return batch_norm(x, gamma, or_undefined(beta), running_mean, running_variance,
                          {.eps = eps, .momentum = momentum});
      },
      "x"_a, "gamma"_a, "beta"_a.none(), "running_mean"_a, "running_variance"_a, nb::kw_only(),
      "eps"_a = 1e-5, "momentum"_a = 0.1, WithoutGil(),
      "Of each feature over all other axes: x (..., D). While a tape records it uses the batch's "
      "statistics and updates the running ones.");
}

void bind_attention(nb::module_& ops) {
  ops.def(
      "attention",
      [](const Var& q, const Var& k, const Var& v, int64_t heads, int64_t kv_heads, bool causal,
         const MaybeVar& key_lengths, const MaybeVar& mask, int64_t window, double dropout,
         double scale, double softcap, const MaybeVar& relative_bias) {
        return attention(q, k, v,
                         {.heads = heads,
                          .kv_heads = kv_heads,
                          .causal = causal,
                          .key_lengths = tensor_or_undefined(key_lengths),
                          .dropout = dropout,
                          .scale = scale,
                          .softcap = softcap,
                          .window = window,
                          .mask = tensor_or_undefined(mask),
                          .relative_bias = or_undefined(relative_bias)});
      },
      "q"_a, "k"_a, "v"_a, nb::kw_only(), "heads"_a = 1, "kv_heads"_a = 0, "causal"_a = false,
      "key_lengths"_a = nb::none(), "mask"_a = nb::none(), "window"_a = 0, "dropout"_a = 0.0,
      "scale"_a = 0.0, "softcap"_a = 0.0, "relative_bias"_a = nb::none(), WithoutGil(),
      "Fused multi-head attention with memory linear in S: q (B, T, H*K), k (B, S, G*K), v (B, S, "
      "G*Kv) -> (B, T, H*Kv).\n\n"
      "kv_heads: G, 0 as many as heads. key_lengths (B) int32. mask (T, S), (B, T, S) or (B, H, T, "
      "S): int32, a query sees a key where it is not 0; or of q's type, added to the scores. "
      "window: |distance| < window. scale: 0 for 1 / sqrt(K). relative_bias (H, 2R - 1). A query "
      "that sees no key gives 0.");
  ops.def(
      "masked_softmax",
      [](const Var& scores, const Var& lengths) { return masked_softmax(scores, lengths.value()); },
      "scores"_a, "lengths"_a, WithoutGil(),
      "softmax(scores) over the first lengths[b] of the last axis, 0 after them: scores (B, ..., "
      "S), lengths (B) int32.");
  ops.def(
      "rope",
      [](const Var& x, const Var& table, int64_t heads, int64_t head_size, int64_t position_offset,
         bool interleaved) {
        return rope(x, table.value(),
                    {.heads = heads,
                     .head_size = head_size,
                     .position_offset = position_offset,
                     .layout = interleaved ? RopeLayout::kInterleaved : RopeLayout::kHalf});
      },
      "x"_a, "table"_a, nb::kw_only(), "heads"_a = 1, "head_size"_a = 0, "position_offset"_a = 0,
      "interleaved"_a = false, WithoutGil(),
      "Rotary positions (Su et al. 2021): x (B, T, W) holds `heads` heads, then columns that are "
      "copied; table (positions, R) holds R/2 cosines and R/2 sines of each position.");
  ops.def(
      "additive_attention",
      [](const Var& query, const Var& keys, const Var& values, const Var& v,
         const MaybeVar& lengths) {
        const AttentionWeights result =
            additive_attention(query, keys, values, v, tensor_or_undefined(lengths));
        return std::pair(result.out, result.weights);
      },
      "query"_a, "keys"_a, "values"_a, "v"_a, "lengths"_a = nb::none(), WithoutGil(),
      "Bahdanau's: query (B, A) or (B, T, A), keys (B, S, A), values (B, S, E), v (A), lengths (B) "
      "-> out (B, E) or (B, T, E), and its weights, which are constants.");
}

void bind_recurrence(nb::module_& ops) {
  ops.def("gru_step", &gru_step, "x_gates"_a, "h_gates"_a, "h"_a, WithoutGil(),
          "One step of a gated recurrent unit: x_gates and h_gates (B, 3D), h (B, D) -> (B, D).");
  ops.def(
      "gru",
      [](const Var& x_gates, const Var& weight, const Var& bias, const MaybeVar& lengths,
         const MaybeVar& initial) {
        return gru(x_gates, weight, bias,
                   {.lengths = tensor_or_undefined(lengths), .initial = or_undefined(initial)});
      },
      "x_gates"_a, "weight"_a, "bias"_a, "lengths"_a = nb::none(), "initial"_a = nb::none(),
      WithoutGil(),
      "A layer of N = 1 or 2 directions: x_gates (T, B, N*3D), time first, weight (N*3D, D), bias "
      "(N*3D), lengths (B) int32 -> the states (T, B, N*D).");
  ops.def(
      "ssru", [](const Var& x, const MaybeVar& bias) { return ssru(x, or_undefined(bias)).out; },
      "x"_a, "bias"_a = nb::none(), WithoutGil(),
      "The Simpler Simple Recurrent Unit (Kim et al. 2019): x (B, T, 2D), bias (D) -> (B, T, D).");
}

void bind_losses(nb::module_& ops) {
  ops.def(
      "cross_entropy",
      [](const Var& logits, const Var& targets, double label_smoothing, int32_t ignore_index,
         double normalizer) {
        return loss_and_tokens(cross_entropy(logits, targets.value(),
                                             {.label_smoothing = label_smoothing,
                                              .ignore_index = ignore_index,
                                              .normalizer = normalizer}));
      },
      "logits"_a, "targets"_a, nb::kw_only(), "label_smoothing"_a = 0.0, "ignore_index"_a = -1,
      "normalizer"_a = 0.0, WithoutGil(),
      "logits (..., V), targets (...) int32 -> the loss, a scalar, and the number of targets that "
      "are not ignored, by which it is divided unless there is a normalizer.");
  ops.def(
      "linear_cross_entropy",
      [](const Var& x, const Var& weight, const MaybeVar& bias, const Var& targets,
         double label_smoothing, int32_t ignore_index, double normalizer) {
        return loss_and_tokens(linear_cross_entropy(x, weight, or_undefined(bias), targets.value(),
                                                    {.label_smoothing = label_smoothing,
                                                     .ignore_index = ignore_index,
                                                     .normalizer = normalizer}));
      },
      "x"_a, "weight"_a, "bias"_a.none(), "targets"_a, nb::kw_only(), "label_smoothing"_a = 0.0,
      "ignore_index"_a = -1, "normalizer"_a = 0.0, WithoutGil(),
      "cross_entropy(linear(x, weight, bias), targets) by chunks of rows: x (..., D), weight (V, "
      "D), bias (V). The logits of the whole batch are never stored.");
}

}  // namespace

void bind_operations(nb::module_& module) {
  nb::module_ ops = module.def_submodule(
      "ops",
      "The differentiable operations. In shapes: B batch, S source, T target, D model, H heads, G "
      "key/value heads, K head size, F feed-forward, V vocabulary. Each records its backward while "
      "a Tape records and an input needs a gradient.");
  bind_elementwise(ops);
  bind_shapes(ops);
  bind_products(ops);
  bind_attention(ops);
  bind_recurrence(ops);
  bind_losses(ops);
}

}  // namespace tapestry::python
