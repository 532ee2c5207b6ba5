#include "core/kernels/cross_entropy.h"
#include "core/kernels/elementwise/activation_functors.h"
#include "core/kernels/matmul/gemm.h"
#include "core/kernels/matmul/linear.h"
#include "tests/bench/rows.h"

namespace tapestry::bench {
namespace {

float* data(const Tensor& x) { return x.defined() ? x.data<float>() : nullptr; }

// c (m, n) = op(a) op(b), contraction over k.
Row gemm_row(const std::string& name, int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b) {
  return {name, 2.0 * m * n * k, 4.0 * (m * k + k * n + m * n), [=] {
            const Tensor a = values({m, k}), b = values({k, n}), c = Tensor::empty({m, n});
            return [=] {
              Gemm<float> g;
              g.m = m, g.n = n, g.k = k;
              g.a = data(a), g.lda = trans_a ? m : k, g.trans_a = trans_a;
              g.b = data(b), g.ldb = trans_b ? k : n, g.trans_b = trans_b;
              g.c = data(c), g.ldc = n;
              kernels::gemm(Cpu{}, g);
            };
          }};
}

bool needs_z(Activation activation) {
  return derivative_needs(activation) == functors::Needs::kInput;
}

Row linear_forward_row(const std::string& name, const LinearShape& s) {
  const int64_t outputs = needs_z(s.activation) ? 2 : 1;
  return {name, 2.0 * s.rows * s.in * s.out,
          4.0 * (s.rows * s.in + s.in * s.out + outputs * s.rows * s.out), [=] {
            const Tensor x = values({s.rows, s.in}), w = values({s.out, s.in}), b = values({s.out});
            const Tensor y = Tensor::empty({s.rows, s.out});
            const Tensor z = needs_z(s.activation) ? Tensor::empty_like(y) : Tensor();
            return [=] {
              kernels::linear<float>(Cpu{}, s, {data(x), data(w), data(b), data(z), data(y)});
            };
          }};
}

Row linear_backward_row(const std::string& name, const LinearShape& s) {
  const int64_t inputs = s.activation == Activation::kNone ? 1 : 2;  // dy, and z or y
  return {name, 4.0 * s.rows * s.in * s.out,
          4.0 * (2 * s.rows * s.in + 2 * s.in * s.out + inputs * s.rows * s.out), [=] {
            const Tensor x = values({s.rows, s.in}), w = values({s.out, s.in});
            const Tensor y = values({s.rows, s.out}), dy = values({s.rows, s.out});
            const Tensor dx = Tensor::empty_like(x), dw = Tensor::empty_like(w);
            const Tensor db = Tensor::empty({s.out});
            return [=] {
              kernels::linear_backward<float>(
                  Cpu{}, s,
                  {data(x), data(w), needs_z(s.activation) ? data(y) : nullptr, data(y), data(dy),
                   data(dx), Write::kSet, data(dw), Write::kSet, data(db), Write::kSet});
            };
          }};
}

Row linear_cross_entropy_row(const std::string& name, int64_t rows, int64_t in, int64_t classes) {
  return {name, 6.0 * rows * in * classes, 4.0 * 2 * (rows * in + in * classes), [=] {
            const Tensor x = values({rows, in}), w = values({classes, in});
            const Tensor targets = ids(rows, classes);
            const Tensor dx = Tensor::empty_like(x), dw = Tensor::empty_like(w);
            return [=] {
              LinearCrossEntropy<float> args;
              args.in = in;
              args.x = data(x), args.weight = data(w),
              args.targets.targets = targets.data<int32_t>();
              args.dx = data(dx), args.d_weight = data(dw);
              CrossEntropySums sums;
              kernels::linear_cross_entropy(
                  Cpu{}, {.rows = rows, .classes = classes, .label_smoothing = 0.1}, args, &sums);
            };
          }};
}

}  // namespace

Table product_rows(const ModelShape& m) {
  const auto name = [&](const std::string& kernel) { return kernel + "/" + m.name; };
  const int64_t n = m.rows(), d = m.hidden, f = m.intermediate;
  Table rows{gemm_row(name("gemm/x_wt"), n, f, d, false, true),
             gemm_row(name("gemm/dy_w"), n, d, f, false, false),
             gemm_row(name("gemm/dyt_x"), f, d, n, true, false)};
  for (const Activation activation : kActivations) {
    const bool plain = activation == Activation::kNone;
    const std::string kernel = plain ? "linear" : std::string("linear_") + name_of(activation);
    const LinearShape up{n, d, f, activation};
    rows.push_back(linear_forward_row(name(kernel + "/forward"), up));
    rows.push_back(linear_backward_row(name(kernel + "/backward"), up));
  }
  rows.push_back(linear_cross_entropy_row(name("linear_cross_entropy/both"), n, d, m.vocab));
  return rows;
}

}  // namespace tapestry::bench
