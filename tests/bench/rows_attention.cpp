#include <algorithm>
#include <cmath>

#include "core/kernels/attention/additive_attention.h"
#include "core/kernels/attention/attention.h"
#include "core/kernels/attention/rope.h"
#include "core/kernels/recurrent/gru.h"
#include "core/kernels/recurrent/ssru.h"
#include "tests/bench/rows.h"

namespace tapestry::bench {
namespace {

float* data(const Tensor& x) { return x.data<float>(); }

// Self-attention on a packed projection (B, T, 3D).
struct SelfAttention {
  SelfAttention(int64_t batch, int64_t length, int64_t hidden, int64_t heads, bool causal,
                int64_t window = 0) {
    shape.batch = batch;
    shape.queries = shape.keys = length;
    shape.heads = shape.kv_heads = heads;
    shape.head_size = shape.value_size = hidden / heads;
    shape.scale = 1 / std::sqrt(double(shape.head_size));
    shape.causal = causal;
    shape.window = window;
  }

  int64_t hidden() const { return shape.heads * shape.head_size; }
  double cells() const { return double(shape.batch) * shape.queries * hidden(); }
  /// Of one of its matrix products: a causal mask leaves half, a causal window so many keys.
  double product() const {
    const double seen = shape.window > 0 ? double(std::min(shape.window, shape.keys))
                                         : double(shape.keys) * (shape.causal ? 0.5 : 1);
    return 2 * cells() * seen;
  }
  Tensor packed() const { return values({shape.batch, shape.queries, 3 * hidden()}); }
  Tensor plain() const { return values({shape.batch, shape.queries, hidden()}); }
  Tensor row_values() const { return values({shape.batch, shape.heads, shape.queries}); }

  /// Columns of a tensor (B, T, width).
  static Rows<float> columns(const Tensor& x, int64_t first) {
    const int64_t width = x.shape()[2];
    return {data(x) + first, width, width * x.shape()[1]};
  }
  static Rows<const float> constant(const Tensor& x, int64_t first) {
    const auto [pointer, row, batch] = columns(x, first);
    return {pointer, row, batch};
  }
  void forward(const Tensor& qkv, const Tensor& out, const Tensor& lse) const {
    const int64_t d = hidden();
    kernels::attention<float>(
        Cpu{}, shape,
        {constant(qkv, 0), constant(qkv, d), constant(qkv, 2 * d), columns(out, 0), data(lse)});
  }

  AttentionShape shape;
};

Row attention_forward_row(const std::string& name, const SelfAttention& f) {
  return {name, 2 * f.product(), 4 * 4 * f.cells(), [=] {
            const Tensor qkv = f.packed(), out = f.plain(), lse = f.row_values();
            return [=] { f.forward(qkv, out, lse); };
          }};
}

// Five products: the scores again, and the gradients of the weights, v, q and k.
Row attention_backward_row(const std::string& name, const SelfAttention& f) {
  return {name, 5 * f.product(), 4 * 8 * f.cells(), [=] {
            const Tensor qkv = f.packed(), d_qkv = f.packed(), out = f.plain(), d_out = f.plain();
            const Tensor lse = f.row_values();
            f.forward(qkv, out, lse);
            return [=] {
              const int64_t d = f.hidden();
              AttentionBackward<float> args;
              args.q = f.constant(qkv, 0), args.k = f.constant(qkv, d);
              args.v = f.constant(qkv, 2 * d);
              args.out = f.constant(out, 0), args.d_out = f.constant(d_out, 0);
              args.log_sum_exp = data(lse);
              args.dq = f.columns(d_qkv, 0), args.dk = f.columns(d_qkv, d);
              args.dv = f.columns(d_qkv, 2 * d);
              args.dq_write = args.dk_write = args.dv_write = Write::kSet;
              kernels::attention_backward(Cpu{}, f.shape, args);
            };
          }};
}

Row rope_row(const std::string& name, const ModelShape& m) {
  const int64_t n = m.rows(), d = m.hidden;
  return {name, 3.0 * n * d, 4.0 * 2 * n * d, [=] {
            const RopeShape shape{.rows = n,
                                  .width = d,
                                  .heads = m.heads,
                                  .head_size = d / m.heads,
                                  .rotated = d / m.heads,
                                  .length = m.length};
            const Tensor x = values({n, d}), y = Tensor::empty_like(x);
            const Tensor table = values({m.length, d / m.heads});
            return [=] {
              kernels::rope<float>(Cpu{}, shape, data(x), data(table), data(y), Write::kSet);
            };
          }};
}

AdditiveAttentionShape additive_shape(const ModelShape& m) {
  return {m.batch, m.length, m.length, m.hidden, m.hidden};
}

// A cell is a query, a key and a column: q + k, tanh, times v, add; then the weighted sum.
Row additive_forward_row(const std::string& name, const ModelShape& m) {
  const double pairs = double(m.rows()) * m.length;
  return {name, pairs * m.hidden * 6, 4 * (4.0 * m.rows() * m.hidden + pairs), [=] {
            const Tensor q = values({m.rows(), m.hidden}), k = values({m.rows(), m.hidden});
            const Tensor v = values({m.hidden}), x = values({m.rows(), m.hidden});
            const Tensor out = values({m.rows(), m.hidden});
            const Tensor weights = values({m.rows(), m.length});
            return [=] {
              kernels::additive_attention<float>(
                  Cpu{}, additive_shape(m),
                  {data(q), data(k), data(x), data(v), data(out), data(weights)});
            };
          }};
}

// Per cell: dw (2) and d_values (2), tanh again (2), its slope (2), and three sums (2 each).
Row additive_backward_row(const std::string& name, const ModelShape& m) {
  const double pairs = double(m.rows()) * m.length;
  return {
      name, pairs * m.hidden * 14, 4 * (7.0 * m.rows() * m.hidden + pairs), [=] {
        const Tensor q = values({m.rows(), m.hidden}), k = values({m.rows(), m.hidden});
        const Tensor v = values({m.hidden}), x = values({m.rows(), m.hidden});
        const Tensor d_out = values({m.rows(), m.hidden});
        const Tensor weights = Tensor::full({m.rows(), m.length}, 1.0 / double(m.length));
        const Tensor dq = values({m.rows(), m.hidden}), dk = values({m.rows(), m.hidden});
        const Tensor dx = values({m.rows(), m.hidden}), dv = values({m.hidden});
        return [=] {
          kernels::additive_attention_backward<float>(
              Cpu{}, additive_shape(m),
              {data(q), data(k), data(x), data(v), data(weights), data(d_out), data(dq),
               Write::kSet, data(dk), Write::kSet, data(dx), Write::kSet, data(dv), Write::kSet});
        };
      }};
}

// One step of B rows.
Row gru_forward_row(const std::string& name, int64_t batch, int64_t d) {
  return {name, 11.0 * batch * d, 4.0 * 12 * batch * d, [=] {
            const Tensor x = values({batch, 3 * d}), gates = values({batch, 3 * d});
            const Tensor h = values({batch, d}), out = values({batch, d});
            const Tensor saved = values({batch, 4 * d});
            return [=] {
              GruForward<float> args;
              args.x_gates = {data(x), 3 * d}, args.h_gates = {data(gates), 3 * d};
              args.h = {data(h), d}, args.out = {data(out), d}, args.saved = data(saved);
              kernels::gru_step(Cpu{}, {.rows = batch, .size = d}, args);
            };
          }};
}

Row gru_backward_row(const std::string& name, int64_t batch, int64_t d) {
  return {name, 15.0 * batch * d, 4.0 * 13 * batch * d, [=] {
            const Tensor saved = values({batch, 4 * d}), h = values({batch, d});
            const Tensor d_out = values({batch, d}), dh = values({batch, d});
            const Tensor dx = values({batch, 3 * d}), d_gates = values({batch, 3 * d});
            return [=] {
              GruBackward<float> args;
              args.saved = data(saved);
              args.h = {data(h), d}, args.d_out = {data(d_out), d}, args.dh = {data(dh), d};
              args.dx_gates = {data(dx), 3 * d}, args.dh_gates = {data(d_gates), 3 * d};
              kernels::gru_step_backward(Cpu{}, {.rows = batch, .size = d}, args);
            };
          }};
}

// A whole batch.
Row ssru_forward_row(const std::string& name, const ModelShape& m) {
  const int64_t n = m.rows(), d = m.hidden;
  return {name, 12.0 * n * d, 4.0 * 4 * n * d, [=] {
            const Tensor x = values({n, 2 * d}), bias = values({d});
            const Tensor states = values({n, d}), out = values({n, d});
            return [=] {
              kernels::ssru(Cpu{}, {.sequences = m.batch, .steps = m.length, .size = d},
                            SsruForward<float>{data(x), data(bias), {}, data(states), data(out)});
            };
          }};
}

Row ssru_backward_row(const std::string& name, const ModelShape& m) {
  const int64_t n = m.rows(), d = m.hidden;
  return {name, 22.0 * n * d, 4.0 * 6 * n * d, [=] {
            const Tensor x = values({n, 2 * d}), bias = values({d}), dx = values({n, 2 * d});
            const Tensor states = values({n, d}), d_out = values({n, d});
            const Tensor d_bias = values({m.batch, d});
            return [=] {
              kernels::ssru_backward(
                  Cpu{}, {.sequences = m.batch, .steps = m.length, .size = d},
                  SsruBackward<float>{data(x), data(bias), data(states), data(d_out), data(dx),
                                      Write::kSet, data(d_bias)});
            };
          }};
}

}  // namespace

Table attention_rows(const ModelShape& m) {
  const auto name = [&](const std::string& kernel) { return kernel + "/" + m.name; };
  const SelfAttention self(m.batch, m.length, m.hidden, m.heads, m.causal);
  return {attention_forward_row(name("attention/forward"), self),
          attention_backward_row(name("attention/backward"), self),
          rope_row(name("rope/forward"), m),
          additive_forward_row(name("additive_attention/forward"), m),
          additive_backward_row(name("additive_attention/backward"), m),
          gru_forward_row(name("gru_step/forward"), m.batch, m.hidden),
          gru_backward_row(name("gru_step/backward"), m.batch, m.hidden),
          ssru_forward_row(name("ssru/forward"), m),
          ssru_backward_row(name("ssru/backward"), m)};
}

Table attention_length_rows() {
  Table rows;
  constexpr int64_t kTokens = 16384;
  for (int64_t length = 512; length <= kTokens; length *= 2) {
    const SelfAttention self(kTokens / length, length, 256, 4, /*causal=*/true);
    const std::string name = "/length_" + std::to_string(length);
    rows.push_back(attention_forward_row("attention/forward" + name, self));
    rows.push_back(attention_backward_row("attention/backward" + name, self));
    const SelfAttention windowed(kTokens / length, length, 256, 4, /*causal=*/true, 256);
    rows.push_back(attention_forward_row("attention_window_256/forward" + name, windowed));
    rows.push_back(attention_backward_row("attention_window_256/backward" + name, windowed));
  }
  return rows;
}

}  // namespace tapestry::bench
