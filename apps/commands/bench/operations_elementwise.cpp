#include "apps/commands/bench/operation.h"
#include "core/base/error.h"

namespace tapestry {
namespace {

using Inputs = std::span<const Var>;

// n numbers of each operand, that all have one shape.
void add_arithmetic(OperationRows& rows, const OperationSizes& s) {
  const Shape x{s.batch, s.length, s.hidden}, row{s.hidden};
  const auto n = static_cast<double>(x.numel());
  rows.push_back({"add", {x, x}, {n, 3 * n}, {}, [](Inputs in) { return in[0] + in[1]; }});
  rows.push_back(
      {"add broadcast row", {x, row}, {n, 2 * n}, {n, n}, [](Inputs in) { return in[0] + in[1]; }});
  rows.push_back({"sub", {x, x}, {n, 3 * n}, {n, 2 * n}, [](Inputs in) { return in[0] - in[1]; }});
  rows.push_back(
      {"mul", {x, x}, {n, 3 * n}, {2 * n, 5 * n}, [](Inputs in) { return in[0] * in[1]; }});
  rows.push_back(
      {"div", {x, x}, {n, 3 * n}, {4 * n, 5 * n}, [](Inputs in) { return in[0] / in[1]; }, 0.5});
  rows.push_back({"affine", {x}, {2 * n, 2 * n}, {n, 2 * n}, [](Inputs in) {
                    return affine(in[0], -2.5, 0.5);
                  }});
  const Tensor mask = random_ids({s.batch, s.length}, 2);
  rows.push_back({"masked_fill leading", {x}, {n, 2 * n}, {n, 2 * n}, [=](Inputs in) {
                    return masked_fill(in[0], mask, 7);
                  }});
  rows.push_back(
      {"dropout", {x}, {n, 2 * n}, {n, 2 * n}, [](Inputs in) { return dropout(in[0], 0.1); }});
}

// A function and its derivative count as one operation each.
void add_functions(OperationRows& rows, const OperationSizes& s) {
  const Shape x{s.batch, s.length, s.intermediate};
  const Shape pairs{s.batch, s.length, 2 * s.intermediate};
  const auto n = static_cast<double>(x.numel());
  for (const Activation f : kActivations) {
    if (f == Activation::kNone) continue;
    rows.push_back({name_of(f), {x}, {n, 2 * n}, {2 * n, 3 * n}, [=](Inputs in) {
                      return activate(f, in[0]);
                    }});
    rows.push_back(
        {concat("glu ", name_of(f)), {pairs}, {2 * n, 3 * n}, {5 * n, 5 * n}, [=](Inputs in) {
           return glu(f, in[0]);
         }});
  }
  const std::pair<const char*, Unary> functions[] = {{"tanh", Unary::kTanh},
                                                     {"sigmoid", Unary::kSigmoid},
                                                     {"exp", Unary::kExp},
                                                     {"log", Unary::kLog},
                                                     {"sqrt", Unary::kSqrt}};
  for (const auto& [name, f] : functions) {
    rows.push_back({name,
                    {x},
                    {n, 2 * n},
                    {2 * n, 3 * n},
                    [f = f](Inputs in) { return unary(f, in[0]); },
                    0.25});
  }
}

// Largest, difference, exp, sum and quotient.
void add_softmax(OperationRows& rows, const OperationSizes& s) {
  const Shape scores{s.batch, s.heads, s.length, s.source > 0 ? s.source : s.length};
  const Shape logits{s.batch, s.length, s.vocab};
  const auto n = static_cast<double>(scores.numel()), v = static_cast<double>(logits.numel());
  rows.push_back({"softmax", {scores}, {5 * n, 2 * n}, {4 * n, 3 * n}, [](Inputs in) {
                    return softmax(in[0]);
                  }});
  rows.push_back({"log_softmax", {logits}, {5 * v, 2 * v}, {4 * v, 3 * v}, [](Inputs in) {
                    return log_softmax(in[0]);
                  }});
  const Tensor lengths = Tensor::full({s.batch}, static_cast<double>(scores.cols()), DType::kInt32);
  rows.push_back({"masked_softmax", {scores}, {5 * n, 2 * n}, {4 * n, 3 * n}, [=](Inputs in) {
                    return masked_softmax(in[0], lengths);
                  }});
}

// A gradient that is only copied or repeated has no operations.
void add_shapes(OperationRows& rows, const OperationSizes& s) {
  const Shape x{s.batch, s.length, s.hidden}, heads{s.batch, s.length, s.heads, s.head_size};
  const auto n = static_cast<double>(x.numel()), h = static_cast<double>(heads.numel());
  rows.push_back({"permute 0213", {heads}, {0, 2 * h}, {0, 2 * h}, [](Inputs in) {
                    return permute(in[0], {0, 2, 1, 3});
                  }});
  rows.push_back({"permute 3120", {heads}, {0, 2 * h}, {0, 2 * h}, [](Inputs in) {
                    return permute(in[0], {3, 1, 2, 0});
                  }});
  for (const int axis : {1, 2}) {
    rows.push_back({axis == 1 ? "concat middle" : "concat last",
                    {x, x},
                    {0, 4 * n},
                    {0, 4 * n},
                    [=](Inputs in) {
                      return concat({in[0], in[1]}, axis);
                    }});
  }
  const Shape wide{s.batch, s.length, 2 * s.hidden};
  rows.push_back({"slice", {wide}, {0, 2 * n}, {0, 3 * n}, [=](Inputs in) {
                    return slice(in[0], 2, 0, in[0].shape().cols() / 2);
                  }});
  rows.push_back({"sum", {x}, {n, n}, {0, n}, [](Inputs in) { return sum(in[0]); }});
  rows.push_back({"mean", {x}, {n, n}, {0, n}, [](Inputs in) { return mean(in[0]); }});
  rows.push_back({"sum axis 1", {x}, {n, n}, {0, n}, [](Inputs in) { return sum(in[0], 1); }});
  rows.push_back({"mean axis -1", {x}, {n, n}, {0, n}, [](Inputs in) { return mean(in[0], -1); }});
}

}  // namespace

void add_elementwise(OperationRows& rows, const OperationSizes& sizes) {
  add_arithmetic(rows, sizes);
  add_functions(rows, sizes);
  add_softmax(rows, sizes);
  add_shapes(rows, sizes);
}

}  // namespace tapestry
