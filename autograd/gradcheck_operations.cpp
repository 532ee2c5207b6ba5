#include <cmath>

#include "autograd/gradcheck_cases.h"
#include "autograd/ops.h"
#include "autograd/recompute.h"
#include "core/kernels/elementwise/activation_functors.h"

namespace tapestry {
namespace {

void add_arithmetic(Cases& cases, OperandDraws& in) {
  const Var a = in.draw({3, 4, 5}), b = in.draw({3, 4, 5}), row = in.draw({5});
  const Var column = in.draw({4, 1}), positive = in.draw({3, 1, 5}, 0.5, 2.0);
  cases.push_back({"add", {a, b}, [=] { return a + b; }});
  cases.push_back({"add broadcast row", {a, row}, [=] { return a + row; }});
  cases.push_back({"add broadcast both", {row, column}, [=] { return row + column; }});
  cases.push_back({"sub", {a, column}, [=] { return a - column; }});
  cases.push_back({"mul", {a, b}, [=] { return a * b; }});
  cases.push_back({"mul broadcast", {a, column}, [=] { return a * column; }});
  cases.push_back({"mul with itself", {a}, [=] { return a * a; }});
  cases.push_back({"div", {a, positive}, [=] { return a / positive; }});
  cases.push_back({"div broadcast scalar", {row, positive}, [=] { return sum(row) / positive; }});
  cases.push_back({"affine", {a}, [=] { return affine(a, -2.5, 0.5); }});
  cases.push_back({"used three times", {a, row}, [=] { return a * row + (a - 2.0 * row) * a; }});
  const Var frozen = in.draw({4, 5});
  frozen.set_requires_grad(false);
  cases.push_back({"frozen operand", {a, frozen}, [=] { return a * frozen + frozen; }});
}

void add_activations(Cases& cases, OperandDraws& in) {
  const Var x = in.draw({3, 33}, -3, 3), positive = in.draw({3, 33}, 0.3, 3);
  for (const Activation f : kActivations) {
    const std::span<const double> kinks = kinks_of(f);
    const Var z = in.draw_off(kinks, 0.05, {3, 33}, -4, 4);
    cases.push_back({name_of(f), {z}, [=] { return activate(f, z); }});
    const Var pairs = in.draw_off(kinks, 0.05, {2, 3, 34}, -4, 4);
    cases.push_back({concat("glu ", name_of(f)), {pairs}, [=] { return glu(f, pairs); }});
    // The products are at most 0.24, so that the biases decide on which side of a kink z lies.
    const Var a = in.draw({2, 3, 6}, -0.2, 0.2), w = in.draw({9, 6}, -0.2, 0.2);
    const Var bias = in.draw_off(kinks, 0.3, {9}, -4, 4);
    cases.push_back({concat("linear ", name_of(f)), {a, w, bias}, [=] {
                       return linear(a, w, bias, {.activation = f});
                     }});
  }
  cases.push_back({"tanh", {x}, [=] { return tanh(x); }});
  cases.push_back({"softcap", {x}, [=] { return softcap(x, 0.7); }});
  cases.push_back({"sigmoid", {x}, [=] { return sigmoid(x); }});
  cases.push_back({"exp", {x}, [=] { return exp(x); }});
  cases.push_back({"log", {positive}, [=] { return log(positive); }});
  cases.push_back({"sqrt", {positive}, [=] { return sqrt(positive); }});
  cases.push_back({"softmax", {x}, [=] { return softmax(x); }});
  cases.push_back({"log_softmax", {x}, [=] { return log_softmax(x); }});
  const Tensor mask = in.ints({1, 0, 0, 1, 1, 0}, {2, 3});
  const Var batch = in.draw({2, 3, 4}), square = in.draw({4, 2, 3});
  cases.push_back({"masked_fill leading", {batch}, [=] { return masked_fill(batch, mask, 7); }});
  cases.push_back({"masked_fill trailing", {square}, [=] {
                     return softmax(masked_fill(square, mask, -INFINITY));
                   }});
  cases.push_back({"dropout", {x}, [=] { return dropout(x, 0.4) * x; }});
}

void add_shapes(Cases& cases, OperandDraws& in) {
  const Var x = in.draw({2, 3, 4, 5}), a = in.draw({2, 3, 4}), b = in.draw({2, 2, 4});
  cases.push_back({"reshape", {x}, [=] { return reshape(x, {6, 20}) * reshape(x, {6, 20}); }});
  cases.push_back({"permute 0213", {x}, [=] { return permute(x, {0, 2, 1, 3}); }});
  cases.push_back({"permute 3120", {x}, [=] { return permute(x, {3, 1, 2, 0}); }});
  cases.push_back({"concat middle", {a, b}, [=] { return concat({a, b, a}, 1); }});
  cases.push_back({"concat last", {a}, [=] { return concat({a, 2.0 * a}, -1); }});
  cases.push_back({"slice", {x}, [=] { return slice(x, 1, 1, 3); }});
  cases.push_back({"slice twice", {a}, [=] { return slice(a, 2, 0, 3) * slice(a, 2, 1, 4); }});
  cases.push_back({"sum", {a}, [=] { return sum(a * a); }});
  cases.push_back({"mean", {a}, [=] { return mean(a * a); }});
  cases.push_back({"sum axis 1", {x}, [=] { return sum(x, 1); }});
  cases.push_back({"mean axis -1", {x}, [=] { return mean(x * x, -1); }});
}

void add_products(Cases& cases, OperandDraws& in) {
  const Var a = in.draw({5, 7}), b = in.draw({7, 4}), at = in.draw({7, 5}), bt = in.draw({4, 7});
  const Var ba = in.draw({2, 3, 5, 7}), bb = in.draw({2, 3, 7, 4}), bat = in.draw({3, 7, 5});
  cases.push_back({"matmul", {a, b}, [=] { return matmul(a, b); }});
  cases.push_back({"matmul A^T", {at, b}, [=] { return matmul(at, b, {.trans_a = true}); }});
  cases.push_back({"matmul B^T", {a, bt}, [=] { return matmul(a, bt, {.trans_b = true}); }});
  cases.push_back({"matmul A^T B^T", {at, bt}, [=] {
                     return matmul(at, bt, {.trans_a = true, .trans_b = true});
                   }});
  cases.push_back({"matmul batched", {ba, bb}, [=] { return matmul(ba, bb); }});
  cases.push_back({"matmul shared B", {ba, b}, [=] { return matmul(ba, b); }});
  cases.push_back(
      {"matmul shared B, A^T", {bat, b}, [=] { return matmul(bat, b, {.trans_a = true}); }});
  const Var x = in.draw({2, 3, 6}), w = in.draw({5, 6}), bias = in.draw({5});
  cases.push_back({"linear", {x, w, bias}, [=] { return linear(x, w, bias); }});
  cases.push_back({"linear no bias", {x, w}, [=] { return linear(x, w); }});
  cases.push_back({"linear of x and x", {a}, [=] { return linear(a, a); }});
}

void add_norms(Cases& cases, OperandDraws& in) {
  const Var x = in.draw({2, 3, 9}), r = in.draw({2, 3, 9}), g = in.draw({9}, 0.5, 1.5);
  const Var b = in.draw({9});
  const NormOptions rms{.kind = NormKind::kRms}, drop{.dropout = 0.3};
  cases.push_back({"layer_norm", {x, g, b}, [=] { return norm(x, g, b); }});
  cases.push_back({"rms_norm", {x, g}, [=] { return norm(x, g, {}, rms); }});
  cases.push_back({"residual layer_norm", {x, r, g, b}, [=] {
                     return residual_norm(x, r, g, b, drop).normed;
                   }});
  cases.push_back({"residual layer_norm, both outputs", {x, r, g, b}, [=] {
                     const auto [y, s] = residual_norm(x, r, g, b, drop);
                     return y * s;
                   }});
  cases.push_back({"residual layer_norm, sum only", {x, r, g, b}, [=] {
                     return residual_norm(x, r, g, b, drop).sum;
                   }});
  cases.push_back(
      {"residual rms_norm", {x, r, g}, [=] { return residual_norm(x, x * r, g, {}, rms).normed; }});
  cases.push_back({"residual layer_norm of x and x", {x, g}, [=] {
                     return residual_norm(x, x, g, g, drop).normed;
                   }});
  const Tensor running_mean = in.draw_constant({9}), running_variance = in.draw_constant({9}, 1, 2);
  cases.push_back({"batch_norm", {x, g, b}, [=] {
                     return batch_norm(x, g, b, running_mean, running_variance);
                   }});
  cases.push_back({"batch_norm of x times x, no beta", {x, g}, [=] {
                     return batch_norm(x * x, g, {}, running_mean, running_variance) * x;
                   }});
  const Tensor ids = in.ints({1, 4, 1, 0, 4, 4}, {2, 3});
  const Var table = in.draw({6, 5}), positions = in.draw({5, 5});
  cases.push_back({"embedding", {table, positions}, [=] {
                     return embedding(ids, table, positions,
                                      {.scale = 2, .dropout = 0.2, .position_offset = 1});
                   }});
  cases.push_back({"embedding used twice", {table}, [=] {
                     return embedding(ids, table) * embedding(ids, table);
                   }});
  cases.push_back(
      {"embedding, its own positions", {table}, [=] { return embedding(ids, table, table); }});
}

void add_recurrence(Cases& cases, OperandDraws& in) {
  const Tensor lengths = in.ints({3, 0, 2}, {3});
  const Var scores = in.draw({3, 2, 4}, -3, 3);
  cases.push_back({"masked_softmax", {scores}, [=] { return masked_softmax(scores, lengths); }});
  const Var xg = in.draw({3, 15}), hg = in.draw({3, 15}), h = in.draw({3, 5});
  cases.push_back({"gru_step", {xg, hg, h}, [=] { return gru_step(xg, hg, h); }});
  cases.push_back({"gru_step, gates used twice", {xg, h}, [=] { return gru_step(xg, xg, h) * h; }});
  const Var one = in.draw({4, 3, 9}), two = in.draw({4, 3, 18}), w = in.draw({18, 3});
  const Var b = in.draw({18}), w1 = in.draw({9, 3}), b1 = in.draw({9});
  const Var start = in.draw({3, 6}), start1 = in.draw({3, 3});
  cases.push_back({"gru", {one, w1, b1}, [=] { return gru(one, w1, b1); }});
  cases.push_back({"gru, initial", {one, w1, b1, start1}, [=] {
                     return gru(one, w1, b1, {.initial = start1});
                   }});
  cases.push_back({"gru, both directions, lengths", {two, w, b}, [=] {
                     return gru(two, w, b, {.lengths = lengths});
                   }});
  cases.push_back({"gru, both directions, lengths, initial", {two, w, b, start}, [=] {
                     const Var y = gru(two, w, b, {.lengths = lengths, .initial = start});
                     return y * gru(two, w, b);
                   }});
  const Var sx = in.draw({2, 3, 10}), sb = in.draw({5});
  cases.push_back({"ssru", {sx, sb}, [=] { return ssru(sx, sb).out; }});
  cases.push_back({"ssru twice", {sx}, [=] { return ssru(sx).out * ssru(2. * sx).out; }});
  const Var q = in.draw({3, 2, 7}), k = in.draw({3, 4, 7}), values = in.draw({3, 4, 5});
  const Var v = in.draw({7}), q1 = in.draw({3, 7});
  const auto both = [&](const std::string& name, std::vector<Var> inputs, auto call) {
    cases.push_back({"additive_attention" + name, inputs, [=] {
                       return call([](auto&&... x) { return additive_attention(x...).out; });
                     }});
    cases.push_back(
        {"additive_attention_reference" + name, inputs,
         [=] { return call([](auto&&... x) { return additive_attention_reference(x...).out; }); }});
  };
  both("", {q1, k, values, v}, [=](auto f) { return f(q1, k, values, v, Tensor()); });
  both(", queries, lengths", {q, k, values, v},
       [=](auto f) { return f(q, k, values, v, lengths); });
  both(", keys are values", {q, k, v},
       [=](auto f) { return f(q, k, k, v, lengths) * f(2.0 * q, k, k, v, Tensor()); });
  cases.push_back({"additive_attention_reference weights", {q1, k, v}, [=] {
                     return additive_attention_reference(q1, k, values, v, lengths).weights;
                   }});
}

void add_losses(Cases& cases, OperandDraws& in) {
  const Var logits = in.draw({2, 3, 7}, -3, 3), x = in.draw({2, 3, 4}), w = in.draw({7, 4});
  const Var b = in.draw({7});
  const Tensor targets = in.ints({3, 0, -1, 6, 6, -1}, {2, 3});
  const CrossEntropyOptions smooth{.label_smoothing = 0.1};
  CrossEntropyOptions weighted = smooth;
  weighted.weights = Tensor::full({2, 3}, 0.5, DType::kFloat32);
  weighted.weights.data<float>()[1] = 3;
  cases.push_back({"cross_entropy", {logits}, [=] { return cross_entropy(logits, targets).loss; }});
  cases.push_back({"cross_entropy smoothed", {logits}, [=] {
                     return 3.0 * cross_entropy(logits, targets, smooth).loss;
                   }});
  cases.push_back({"cross_entropy weighted", {logits}, [=] {
                     return cross_entropy(logits, targets, weighted).loss;
                   }});
  cases.push_back({"linear_cross_entropy weighted", {x, w, b}, [=] {
                     return linear_cross_entropy(x, w, b, targets, weighted).loss;
                   }});
  cases.push_back({"linear_cross_entropy", {x, w, b}, [=] {
                     return linear_cross_entropy(x, w, b, targets, smooth).loss;
                   }});
  CrossEntropyOptions capped = weighted;
  capped.softcap = 1.5;
  cases.push_back({"linear_cross_entropy capped", {x, w, b}, [=] {
                     return linear_cross_entropy(x, w, b, targets, capped).loss;
                   }});
  cases.push_back({"linear_cross_entropy scaled", {x, w}, [=] {
                     return 0.5 * linear_cross_entropy(x, w, {}, targets, smooth).loss + sum(x * x);
                   }});
  const Tensor factors = in.draw({3}, -2, 2).value();
  cases.push_back({"linear_log_probabilities", {x, w, b}, [=] {
                     const Var sums = linear_log_probabilities(x, w, b, targets, {1, 4, 6}, capped);
                     return sum(sums * Var(factors.to(sums.dtype())));
                   }});
  const Tensor of_teacher = in.draw({6, 7}, -3, 3).value();
  for (const double temperature : {1., 2.5}) {
    const Distillation teacher{
        .weight = 0.7, .temperature = temperature, .logits = [=](int64_t begin, int64_t end) {
          return of_teacher.slice(begin, end);
        }};
    cases.push_back({concat("distilled_cross_entropy, temperature ", temperature), {logits}, [=] {
                       return distilled_cross_entropy(logits, targets, weighted, teacher).loss;
                     }});
  }
}

}  // namespace

std::vector<GradcheckCase> operation_gradchecks(const GradcheckPlace& place) {
  Cases cases;
  OperandDraws in(place);
  add_arithmetic(cases, in);
  add_activations(cases, in);
  add_shapes(cases, in);
  add_products(cases, in);
  add_norms(cases, in);
  add_attention_cases(cases, in);
  add_attention_mask_cases(cases, in);
  add_losses(cases, in);
  add_recurrence(cases, in);
  const Var x = in.draw({3, 4}), w = in.draw({4, 4});
  cases.push_back({"recompute", {x, w}, [=] {
                     const Var h = gelu(x);
                     const auto f = [=] { return h * dropout(linear(h, w), 0.3); };
                     return recompute(f) + x * recompute(f);
                   }});
  return cases;
}

}  // namespace tapestry
