#include "apps/commands/bench/operation.h"
#include "core/base/error.h"
#include "core/kernels/elementwise/activation_functors.h"

namespace tapestry {
namespace {

using Inputs = std::span<const Var>;

// (m, k) times (k, n), `count` times: 2 operations for each product of two numbers, and twice as
// many backward.
void add_matmul(OperationRows& rows, const std::string& name, Shape a, Shape b, double count,
                const MatmulOptions& options = {}) {
  const auto m = static_cast<double>(a[options.trans_a ? -1 : -2]);
  const auto k = static_cast<double>(a[options.trans_a ? -2 : -1]);
  const auto n = static_cast<double>(b[options.trans_b ? -2 : -1]);
  const double read = count * (m * k + k * n), written = count * m * n;
  rows.push_back({name,
                  {a, b},
                  {2 * count * m * k * n, read + written},
                  {4 * count * m * k * n, written + 2 * read},
                  [=](Inputs in) { return matmul(in[0], in[1], options); }});
}

void add_matmuls(OperationRows& rows, const OperationSizes& s) {
  const int64_t m = s.rows(), k = s.hidden, n = s.intermediate;
  add_matmul(rows, "matmul", {m, k}, {k, n}, 1);
  add_matmul(rows, "matmul A^T", {k, m}, {k, n}, 1, {.trans_a = true});
  add_matmul(rows, "matmul B^T", {m, k}, {n, k}, 1, {.trans_b = true});
  add_matmul(rows, "matmul A^T B^T", {k, m}, {n, k}, 1, {.trans_a = true, .trans_b = true});
  const int64_t keys = s.source > 0 ? s.source : s.length;
  add_matmul(rows, "matmul batched", {s.batch, s.heads, s.length, s.head_size},
             {s.batch, s.heads, s.head_size, keys}, static_cast<double>(s.batch * s.heads));
}

// x (N, in), W (out, in), b (out). Backward reads z or y beside dy, where there is an activation.
void add_linear(OperationRows& rows, const OperationSizes& s, int64_t in, int64_t out,
                Activation activation = Activation::kNone) {
  const auto n = static_cast<double>(s.rows()), i = static_cast<double>(in);
  const auto o = static_cast<double>(out);
  const bool plain = activation == Activation::kNone;
  const bool keeps_z = derivative_needs(activation) == functors::Needs::kInput;
  const LinearOptions options{.activation = activation, .precision = s.numbers.precision};
  rows.push_back({plain ? "linear" : concat("linear ", name_of(activation)),
                  {{s.batch, s.length, in}, {out, in}, {out}},
                  {2 * n * i * o, n * i + i * o + (keeps_z ? 2 : 1) * n * o},
                  {4 * n * i * o, 2 * (n * i + i * o) + (plain ? 1 : 2) * n * o},
                  [=](Inputs x) { return linear(x[0], x[1], x[2], options); }});
}

void add_linears(OperationRows& rows, const OperationSizes& s) {
  const int64_t attended = s.heads * s.head_size, shared = s.kv_heads * s.head_size;
  add_linear(rows, s, s.hidden, attended + 2 * shared);
  add_linear(rows, s, attended, s.hidden);
  add_linear(rows, s, s.hidden, s.intermediate, s.activation);
  add_linear(rows, s, s.intermediate, s.hidden);
}

void add_norms(OperationRows& rows, const OperationSizes& s) {
  const Shape x{s.batch, s.length, s.hidden}, row{s.hidden};
  const auto n = static_cast<double>(x.numel());
  const NormOptions rms{.kind = NormKind::kRms};
  const NormOptions drop{.dropout = 0.1}, rms_drop{.kind = NormKind::kRms, .dropout = 0.1};
  rows.push_back({"layer_norm", {x, row, row}, {7 * n, 2 * n}, {10 * n, 3 * n}, [](Inputs in) {
                    return norm(in[0], in[1], in[2]);
                  }});
  rows.push_back({"rms_norm", {x, row}, {4 * n, 2 * n}, {8 * n, 3 * n}, [=](Inputs in) {
                    return norm(in[0], in[1], {}, rms);
                  }});
  // Two more numbers each: the residual and the sum; the gradients of both.
  rows.push_back(
      {"residual layer_norm", {x, x, row, row}, {9 * n, 4 * n}, {14 * n, 4 * n}, [=](Inputs in) {
         return residual_norm(in[0], in[1], in[2], in[3], drop).normed;
       }});
  rows.push_back(
      {"residual rms_norm", {x, x, row}, {6 * n, 4 * n}, {12 * n, 4 * n}, [=](Inputs in) {
         return residual_norm(in[0], in[1], in[2], {}, rms_drop).normed;
       }});
  const DType wide = wider(s.numbers.dtype);
  const Tensor mean = Tensor::zeros(row, wide), variance = Tensor::full(row, 1, wide);
  rows.push_back({"batch_norm", {x, row, row}, {7 * n, 2 * n}, {10 * n, 3 * n}, [=](Inputs in) {
                    return batch_norm(in[0], in[1], in[2], mean, variance);
                  }});
}

// Scale, position and dropout. The gradient of the whole table is written.
void add_embedding(OperationRows& rows, const OperationSizes& s) {
  const Shape table{s.vocab, s.hidden}, positions{s.length, s.hidden};
  const auto n = static_cast<double>(s.rows() * s.hidden);
  const auto t = static_cast<double>(table.numel()), p = static_cast<double>(positions.numel());
  const Tensor ids = random_ids({s.batch, s.length}, s.vocab);
  rows.push_back(
      {"embedding", {table, positions}, {3 * n, 2 * n + p}, {3 * n, n + t + p}, [=](Inputs in) {
         return embedding(ids, in[0], in[1], {.scale = 2, .dropout = 0.1});
       }});
}

// Forward computes the gradients, too, but of linear_log_probabilities; backward scales them.
void add_losses(OperationRows& rows, const OperationSizes& s) {
  const Shape x{s.batch, s.length, s.hidden}, w{s.vocab, s.hidden};
  const Shape logits{s.batch, s.length, s.vocab};
  const auto n = static_cast<double>(logits.numel());
  const double product = 2 * n * static_cast<double>(s.hidden);
  const auto both = static_cast<double>(x.numel() + w.numel());
  const Tensor targets = random_ids({s.batch, s.length}, s.vocab);
  const CrossEntropyOptions options{.label_smoothing = 0.1, .precision = s.numbers.precision};
  rows.push_back({"cross_entropy", {logits}, {7 * n, 2 * n}, {n, 2 * n}, [=](Inputs in) {
                    return cross_entropy(in[0], targets, options).loss;
                  }});
  rows.push_back(
      {"linear_cross_entropy", {x, w}, {3 * product, 2 * both}, {both, 2 * both}, [=](Inputs in) {
         return linear_cross_entropy(in[0], in[1], {}, targets, options).loss;
       }});
  std::vector<int64_t> ends;
  for (int64_t row = 1; row <= s.batch; ++row) ends.push_back(row * s.length);
  rows.push_back({"linear_log_probabilities",
                  {x, w},
                  {product, both},
                  {3 * product, 2 * both},
                  [=](Inputs in) {
                    return linear_log_probabilities(in[0], in[1], {}, targets, ends,
                                                    {.precision = options.precision});
                  }});
  // The teacher's logits are the student's: they are read all the same.
  rows.push_back(
      {"distilled_cross_entropy, temperature 1",
       {logits},
       {14 * n, 3 * n},
       {n, 2 * n},
       [=, classes = s.vocab](Inputs in) {
         const Tensor all = in[0].value().reshape({targets.numel(), classes});
         const auto of_teacher = [all](int64_t begin, int64_t end) {
           return all.slice(begin, end);
         };
         return distilled_cross_entropy(in[0], targets, options, {.logits = of_teacher}).loss;
       }});
}

}  // namespace

void add_products(OperationRows& rows, const OperationSizes& sizes) {
  add_matmuls(rows, sizes);
  add_linears(rows, sizes);
  add_norms(rows, sizes);
  add_embedding(rows, sizes);
  add_losses(rows, sizes);
}

}  // namespace tapestry
