#include "core/kernels/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/kernels/gemm.h"
#include "core/kernels/simd_select.h"
#include "core/parallel.h"
#include "core/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/attention_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/philox_simd-inl.h"
#include "core/kernels/simd-inl.h"

#ifndef TAPESTRY_ATTENTION_ROWS
#define TAPESTRY_ATTENTION_ROWS
namespace tapestry {

// The running softmax of one query row over the key blocks seen so far.
template <class T>
struct RunningSoftmax {
  T max = -std::numeric_limits<T>::infinity();
  T sum = 0;
};

template <class T>
struct AttentionRows {
  // Turns the first `seen` of `cols` scores into exp(score - max) and the others into 0, brings
  // `state` up to date, and returns the factor by which what was accumulated before shrinks. With
  // dropout the weights (not the sum) are multiplied by their factors; `index` is the first one's.
  T (*softmax)(T* scores, int64_t seen, int64_t cols, const Dropout& dropout, uint64_t index,
               RunningSoftmax<T>& state);
  // From scores and d_weights (dO V^T) of one row: p = exp(score - lse) into the weights that dV
  // needs (p with dropout), and ds = p * (dropout d_weights - delta) in place of d_weights.
  void (*softmax_backward)(T* scores, T* d_weights, int64_t seen, int64_t cols,
                           const Dropout& dropout, uint64_t index, T lse, T delta);
  T (*dot)(const T* a, const T* b, int64_t n);
  void (*scale)(T* x, T factor, int64_t n);
};

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

// Weights whose dropout factors are drawn at a time: they stay in L1.
constexpr int64_t kFactorChunk = 256;

template <class T>
T attention_softmax(T* scores, int64_t seen, int64_t cols, const Dropout& dropout, uint64_t index,
                    RunningSoftmax<T>& state) {
  const Tag<T> d;
  auto largest = hn::Set(d, state.max);
  each_vector(d, seen, [&](auto io, int64_t j) HWY_ATTR {
    largest = hn::Max(largest, io.or_else(d, io.load(d, scores + j), largest));
  });
  const T max = max_lanes(d, largest);
  std::fill(scores + seen, scores + cols, T{0});
  if (max == -std::numeric_limits<T>::infinity()) {
    std::fill(scores, scores + seen, T{0});
    return 1;
  }
  const auto shift = hn::Set(d, max);
  auto sums = hn::Zero(d);
  each_vector(d, seen, [&](auto io, int64_t j) HWY_ATTR {
    const auto e = exp_negative(d, hn::Sub(io.load(d, scores + j), shift));
    sums = hn::Add(sums, io.or_else(d, e, hn::Zero(d)));
    io.store(d, e, scores + j);
  });
  const T shrink = state.sum == 0 ? T{0} : std::exp(state.max - max);
  state.sum = state.sum * shrink + sum_lanes(d, sums);
  state.max = max;
  if (dropout.p > 0) {
    const DropoutFactors<T> factors(dropout);
    HWY_ALIGN T memory[kFactorChunk + DropoutFactors<T>::kPadding];
    for (int64_t begin = 0; begin < seen; begin += kFactorChunk) {
      const int64_t n = std::min(kFactorChunk, seen - begin);
      const T* factor = factors.fill(index + static_cast<uint64_t>(begin), n, memory);
      each_vector(d, n, [&](auto io, int64_t j) HWY_ATTR {
        T* const weight = scores + begin + j;
        io.store(d, hn::Mul(io.load(d, weight), io.load(d, factor + j)), weight);
      });
    }
  }
  return shrink;
}

template <class T>
void attention_softmax_backward(T* scores, T* d_weights, int64_t seen, int64_t cols,
                                const Dropout& dropout, uint64_t index, T lse, T delta) {
  const Tag<T> d;
  const auto shift = hn::Set(d, lse), deltas = hn::Set(d, delta);
  std::fill(scores + seen, scores + cols, T{0});
  std::fill(d_weights + seen, d_weights + cols, T{0});
  if (dropout.p <= 0) {
    each_vector(d, seen, [&](auto io, int64_t j) HWY_ATTR {
      const auto p = exp_negative(d, hn::Sub(io.load(d, scores + j), shift));
      const auto ds = hn::Mul(p, hn::Sub(io.load(d, d_weights + j), deltas));
      io.store(d, p, scores + j);
      io.store(d, ds, d_weights + j);
    });
    return;
  }
  const DropoutFactors<T> factors(dropout);
  HWY_ALIGN T memory[kFactorChunk + DropoutFactors<T>::kPadding];
  for (int64_t begin = 0; begin < seen; begin += kFactorChunk) {
    const int64_t n = std::min(kFactorChunk, seen - begin);
    const T* factor = factors.fill(index + static_cast<uint64_t>(begin), n, memory);
    T* const s = scores + begin;
    T* const dw = d_weights + begin;
    each_vector(d, n, [&](auto io, int64_t j) HWY_ATTR {
      const auto f = io.load(d, factor + j);
      const auto p = exp_negative(d, hn::Sub(io.load(d, s + j), shift));
      const auto ds = hn::Mul(p, hn::MulSub(f, io.load(d, dw + j), deltas));
      io.store(d, hn::Mul(p, f), s + j);
      io.store(d, ds, dw + j);
    });
  }
}

template <class T>
T row_dot(const T* a, const T* b, int64_t n) {
  const Tag<T> d;
  auto sums = hn::Zero(d);
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    sums = hn::MulAdd(io.load(d, a + i), io.load(d, b + i), sums);
  });
  return sum_lanes(d, sums);
}

template <class T>
void row_scale(T* x, T factor, int64_t n) {
  const Tag<T> d;
  const auto f = hn::Set(d, factor);
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    io.store(d, hn::Mul(io.load(d, x + i), f), x + i);
  });
}

template <class T>
constexpr AttentionRows<T> kFunctions = {attention_softmax<T>, attention_softmax_backward<T>,
                                         row_dot<T>, row_scale<T>};

const PerType<AttentionRows>* attention_rows() {
  static constexpr PerType<AttentionRows> functions = {kFunctions<float>, kFunctions<double>};
  return &functions;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {

HWY_EXPORT(attention_rows);

template <class T>
const AttentionRows<T>& rows_functions() {
  return HWY_DYNAMIC_DISPATCH(attention_rows)()->of<T>();
}

// A tile of scores stays in L1/L2: 64 x 256 floats are 64 KiB.
constexpr int64_t kQueryBlock = 64;
constexpr int64_t kKeyBlock = 256;

// Head `head` of batch element `b`, from row `row` on.
template <class T>
T* at(const Rows<T>& rows, int64_t b, int64_t row, int64_t head, int64_t head_size) {
  return rows.data + b * rows.batch_stride + row * rows.row_stride + head * head_size;
}

int64_t key_length(const AttentionShape& shape, int64_t b) {
  if (shape.key_lengths == nullptr) return shape.keys;
  return std::clamp<int64_t>(shape.key_lengths[b], 0, shape.keys);
}

// Every mask is a prefix: query `t` sees the keys before this one.
int64_t visible_keys(const AttentionShape& shape, int64_t t, int64_t length) {
  if (!shape.causal) return length;
  return std::clamp<int64_t>(t + shape.keys - shape.queries + 1, 0, length);
}

uint64_t weight_index(const AttentionShape& shape, int64_t b, int64_t head, int64_t t, int64_t j) {
  return static_cast<uint64_t>(((b * shape.heads + head) * shape.queries + t) * shape.keys + j);
}

template <class T>
struct Matrix {
  const T* data;
  int64_t stride;
};

// C = alpha op(A) op(B) + beta C on this thread.
template <class T>
void product(int64_t m, int64_t n, int64_t k, double alpha, Matrix<T> a, bool trans_a, Matrix<T> b,
             bool trans_b, double beta, T* c, int64_t ldc) {
  Gemm<T> g;
  g.m = m, g.n = n, g.k = k;
  g.a = a.data, g.lda = a.stride, g.trans_a = trans_a;
  g.b = b.data, g.ldb = b.stride, g.trans_b = trans_b;
  g.c = c, g.ldc = ldc;
  g.alpha = alpha, g.beta = beta;
  kernels::gemm_tile(Cpu{}, g);
}

template <class T>
void forward_block(const AttentionShape& shape, const AttentionForward<T>& args, int64_t b,
                   int64_t head, int64_t first_query) {
  const AttentionRows<T>& rows = rows_functions<T>();
  const int64_t size = shape.head_size, group = head / (shape.heads / shape.kv_heads);
  const int64_t queries = std::min(kQueryBlock, shape.queries - first_query);
  const int64_t length = key_length(shape, b);
  // The last query of the block sees the most.
  const int64_t keys = visible_keys(shape, first_query + queries - 1, length);
  T* const out = at(args.out, b, first_query, head, size);
  std::array<RunningSoftmax<T>, kQueryBlock> states;
  Scratch<T> scores(queries * std::min(kKeyBlock, std::max<int64_t>(keys, 1)));
  for (int64_t first_key = 0; first_key < keys; first_key += kKeyBlock) {
    const int64_t cols = std::min(kKeyBlock, keys - first_key);
    product<T>(queries, cols, size, shape.scale,
               {at(args.q, b, first_query, head, size), args.q.row_stride}, false,
               {at(args.k, b, first_key, group, size), args.k.row_stride}, true, 0, scores.data(),
               cols);
    for (int64_t i = 0; i < queries; ++i) {
      const int64_t t = first_query + i;
      const int64_t seen =
          std::clamp<int64_t>(visible_keys(shape, t, length) - first_key, 0, cols);
      const T shrink = rows.softmax(scores.data() + i * cols, seen, cols, shape.dropout,
                                    weight_index(shape, b, head, t, first_key), states[i]);
      if (first_key > 0 && shrink != 1) rows.scale(out + i * args.out.row_stride, shrink, size);
    }
    product<T>(queries, size, cols, 1, {scores.data(), cols}, false,
               {at(args.v, b, first_key, group, size), args.v.row_stride}, false,
               first_key > 0 ? 1 : 0, out, args.out.row_stride);
  }
  for (int64_t i = 0; i < queries; ++i) {
    T* const row = out + i * args.out.row_stride;
    const RunningSoftmax<T>& state = states[i];
    if (state.sum == 0) {
      std::fill(row, row + size, T{0});
    } else {
      rows.scale(row, 1 / state.sum, size);
    }
    if (args.log_sum_exp == nullptr) continue;
    args.log_sum_exp[(b * shape.heads + head) * shape.queries + first_query + i] =
        state.sum == 0 ? -std::numeric_limits<T>::infinity() : state.max + std::log(state.sum);
  }
}

// Rows that no query or key reaches get gradient 0, so all of a head's rows start from it when the kernel
// is to set them.
template <class T>
void start_gradient(const Rows<T>& rows, Write write, int64_t b, int64_t count, int64_t head,
                    int64_t size) {
  if (rows.data == nullptr || write == Write::kAdd) return;
  for (int64_t i = 0; i < count; ++i) std::fill_n(at(rows, b, i, head, size), size, T{0});
}

// All gradients of one batch element and key/value head, in a fixed order.
template <class T>
void backward_group(const AttentionShape& shape, const AttentionBackward<T>& args, int64_t b,
                    int64_t group) {
  const AttentionRows<T>& rows = rows_functions<T>();
  const int64_t size = shape.head_size, shared = shape.heads / shape.kv_heads;
  const int64_t length = key_length(shape, b);
  const int64_t query_blocks = (shape.queries + kQueryBlock - 1) / kQueryBlock;
  const int64_t key_blocks = (shape.keys + kKeyBlock - 1) / kKeyBlock;
  start_gradient(args.dk, args.dk_write, b, shape.keys, group, size);
  start_gradient(args.dv, args.dv_write, b, shape.keys, group, size);
  const int64_t tile = std::min(kQueryBlock, shape.queries) * std::min(kKeyBlock, shape.keys);
  Scratch<T> scores(std::max<int64_t>(tile, 1)), d_weights(std::max<int64_t>(tile, 1));
  Scratch<T> delta(std::max<int64_t>(shape.queries, 1));
  for (int64_t head = group * shared; head < (group + 1) * shared; ++head) {
    start_gradient(args.dq, args.dq_write, b, shape.queries, head, size);
    const T* const lse = args.log_sum_exp + (b * shape.heads + head) * shape.queries;
    for (int64_t t = 0; t < shape.queries; ++t) {
      delta[t] = rows.dot(at(args.out, b, t, head, size), at(args.d_out, b, t, head, size), size);
    }
    for (int64_t kb = 0; kb < key_blocks; ++kb) {
      const int64_t first_key = kb * kKeyBlock;
      for (int64_t qb = 0; qb < query_blocks; ++qb) {
        const int64_t first_query = qb * kQueryBlock;
        const int64_t queries = std::min(kQueryBlock, shape.queries - first_query);
        const int64_t cols =
            std::min(kKeyBlock, visible_keys(shape, first_query + queries - 1, length) - first_key);
        if (cols <= 0) continue;
        const Matrix<T> q{at(args.q, b, first_query, head, size), args.q.row_stride};
        const Matrix<T> k{at(args.k, b, first_key, group, size), args.k.row_stride};
        const Matrix<T> v{at(args.v, b, first_key, group, size), args.v.row_stride};
        const Matrix<T> d_out{at(args.d_out, b, first_query, head, size), args.d_out.row_stride};
        const Matrix<T> p{scores.data(), cols}, ds{d_weights.data(), cols};
        product<T>(queries, cols, size, shape.scale, q, false, k, true, 0, scores.data(), cols);
        product<T>(queries, cols, size, 1, d_out, false, v, true, 0, d_weights.data(), cols);
        for (int64_t i = 0; i < queries; ++i) {
          const int64_t t = first_query + i;
          const int64_t seen =
              std::clamp<int64_t>(visible_keys(shape, t, length) - first_key, 0, cols);
          rows.softmax_backward(scores.data() + i * cols, d_weights.data() + i * cols, seen, cols,
                                shape.dropout, weight_index(shape, b, head, t, first_key), lse[t],
                                delta[t]);
        }
        if (args.dv.data != nullptr) {
          product<T>(cols, size, queries, 1, p, true, d_out, false, 1,
                     at(args.dv, b, first_key, group, size), args.dv.row_stride);
        }
        if (args.dq.data != nullptr) {
          product<T>(queries, size, cols, shape.scale, ds, false, k, false, 1,
                     at(args.dq, b, first_query, head, size), args.dq.row_stride);
        }
        if (args.dk.data != nullptr) {
          product<T>(cols, size, queries, shape.scale, ds, true, q, false, 1,
                     at(args.dk, b, first_key, group, size), args.dk.row_stride);
        }
      }
    }
  }
}

}  // namespace

namespace kernels {

template <class T>
void attention(Cpu, const AttentionShape& shape, const AttentionForward<T>& args) {
  const int64_t blocks = (shape.queries + kQueryBlock - 1) / kQueryBlock;
  parallel_for(shape.batch * shape.heads * blocks, [&](int64_t tile) {
    const int64_t block = tile % blocks, head = tile / blocks % shape.heads;
    forward_block(shape, args, tile / blocks / shape.heads, head, block * kQueryBlock);
  });
}

template <class T>
void attention_backward(Cpu, const AttentionShape& shape, const AttentionBackward<T>& args) {
  parallel_for(shape.batch * shape.kv_heads, [&](int64_t tile) {
    backward_group(shape, args, tile / shape.kv_heads, tile % shape.kv_heads);
  });
}

template void attention(Cpu, const AttentionShape&, const AttentionForward<float>&);
template void attention(Cpu, const AttentionShape&, const AttentionForward<double>&);
template void attention_backward(Cpu, const AttentionShape&, const AttentionBackward<float>&);
template void attention_backward(Cpu, const AttentionShape&, const AttentionBackward<double>&);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
