#include <algorithm>
#include <cmath>

#include "core/kernels/attention/attention.h"
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

}  // namespace

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
