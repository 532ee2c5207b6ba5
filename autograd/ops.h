// The differentiable vocabulary. Every function computes a value and, while a tape is alive and an
// input needs a gradient, records its backward. Shapes in comments: B batch, S source, T target,
// D model, H heads, G key/value heads, K head size, F feed-forward, V vocabulary, N rows.
// All throw Error with the operation's name and the actual shapes when the inputs do not fit.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/sequences.h"
#include "autograd/tape.h"
#include "autograd/var.h"
#include "core/kernels/attention/rope.h"
#include "core/kernels/elementwise/fake_quantize.h"
#include "core/kernels/elementwise/unary.h"
#include "core/kernels/frozen/frozen_matrix.h"
#include "core/kernels/matmul/linear.h"
#include "core/kernels/norm.h"

namespace tapestry {

// ---- Arithmetic (ops_arithmetic.cpp); operands broadcast as in NumPy.
Var add(const Var& a, const Var& b);
Var sub(const Var& a, const Var& b);
Var mul(const Var& a, const Var& b);
Var div(const Var& a, const Var& b);
/// alpha * x + beta
Var affine(const Var& x, double alpha, double beta);

inline Var operator+(const Var& a, const Var& b) { return add(a, b); }
inline Var operator-(const Var& a, const Var& b) { return sub(a, b); }
inline Var operator*(const Var& a, const Var& b) { return mul(a, b); }
inline Var operator/(const Var& a, const Var& b) { return div(a, b); }
inline Var operator*(double alpha, const Var& x) { return affine(x, alpha, 0); }
inline Var operator+(const Var& x, double beta) { return affine(x, 1, beta); }
inline Var operator-(const Var& x) { return affine(x, -1, 0); }

// ---- Element-wise functions (ops_activation.cpp)
Var unary(Unary f, const Var& x);
Var activate(Activation f, const Var& x);
inline Var relu(const Var& x) { return activate(Activation::kRelu, x); }
inline Var gelu(const Var& x) { return activate(Activation::kGelu, x); }
inline Var relu2(const Var& x) { return activate(Activation::kRelu2, x); }
inline Var gelu_tanh(const Var& x) { return activate(Activation::kGeluTanh, x); }
inline Var silu(const Var& x) { return activate(Activation::kSilu, x); }
inline Var tanh(const Var& x) { return unary(Unary::kTanh, x); }
inline Var sigmoid(const Var& x) { return unary(Unary::kSigmoid, x); }
inline Var exp(const Var& x) { return unary(Unary::kExp, x); }
inline Var log(const Var& x) { return unary(Unary::kLog, x); }
inline Var sqrt(const Var& x) { return unary(Unary::kSqrt, x); }

/// cap * tanh(x / cap), never beyond the cap > 0 (Bello et al. 2017; Gemma 2).
inline Var softcap(const Var& x, double cap) { return cap * tanh((1 / cap) * x); }

/// f(a) * b for x = [a | b] split in the middle of the last axis: (..., 2F) -> (..., F); swiglu
/// with silu (Shazeer 2020).
Var glu(Activation f, const Var& x);

/// Over the last axis; a row of only -inf gives zeros.
Var softmax(const Var& x);
Var log_softmax(const Var& x);
/// x with `value` where the mask is not 0. The mask (int32) covers x's leading axes, its trailing
/// axes, or both: its shape must equal x's after broadcasting over leading or trailing axes.
Var masked_fill(const Var& x, const Tensor& mask, double value);
/// x in another floating type. The gradient is rounded to x's.
Var convert(const Var& x, DType dtype);
/// Inverted dropout; the identity when p is 0 or no tape is alive.
Var dropout(const Var& x, double p);

// ---- Shapes and reductions (ops_shape.cpp)
Var reshape(const Var& x, const Shape& shape);
/// Axis i of the result is axis order[i] of x.
Var permute(const Var& x, const std::vector<int>& order);
Var concat(const std::vector<Var>& parts, int axis);
/// Elements [begin, end) of `axis`.
Var slice(const Var& x, int axis, int64_t begin, int64_t end);
/// Over all elements (a scalar), or over one axis, which disappears.
Var sum(const Var& x);
Var mean(const Var& x);
Var sum(const Var& x, int axis);
Var mean(const Var& x, int axis);

// ---- Products (ops_matmul.cpp)
struct MatmulOptions {
  bool trans_a = false;
  bool trans_b = false;
};
/// op(a) (..., m, k) times op(b) (..., k, n), batched over equal leading axes; a matrix b (rank 2)
/// is used for every batch of a.
Var matmul(const Var& a, const Var& b, const MatmulOptions& options = {});
struct LinearOptions {
  Activation activation = Activation::kNone;
  Precision precision = Precision::kFull;  ///< of float32 products, forward and backward
};
/// The matrix W (N, K) of a product: a value, or a frozen one, which has no gradient and multiplies
/// in host memory, rounded to the type of x.
struct Weight {
  Weight() = default;
  // NOLINTBEGIN: values and matrices convert on purpose
  Weight(Var value) : value(std::move(value)) {}
  Weight(Tensor value) : value(std::move(value)) {}
  Weight(const FrozenMatrix& frozen) : value(frozen.words()), frozen(frozen) {}
  // NOLINTEND

  Shape shape() const {  // (N, K)
    return frozen ? Shape{frozen->rows(), frozen->cols()} : value.shape();
  }
  /// As kernels take it: one of the two is null.
  template <class T>
  const T* numbers() const {
    return frozen || !value.defined() ? nullptr : value.value().data<T>();
  }
  const FrozenMatrix* frozen_or_null() const { return frozen ? &*frozen : nullptr; }

  Var value;  ///< of a frozen one its words
  std::optional<FrozenMatrix> frozen = {};
};
/// act(x W^T + bias): x (..., in), W (out, in), bias (out) or undefined -> (..., out).
Var linear(const Var& x, const Weight& weight, const Var& bias = {},
           const LinearOptions& options = {});
/// Each row of x as packed products round it. The gradient goes through as if nothing were rounded
/// (the straight-through estimator; Bengio et al. 2013).
Var fake_quantize(const Var& x, Rounding rounding);

// ---- Norms and embedding (ops_norm.cpp)
struct NormOptions {
  NormKind kind = NormKind::kLayer;
  double eps = 1e-5;
  double dropout = 0;  ///< of the sub-layer output, before the residual addition
};
/// norm(x) * gamma + beta over the last axis (Ba et al. 2016; RMS: Zhang and Sennrich 2019); x
/// (..., D), gamma (D), beta (D) or undefined.
Var norm(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options = {});

struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;  ///< of the running statistics
  bool biased = false;    ///< the running variance: sums over N rows are divided by N, not N - 1
};
/// norm(x) * gamma + beta of each feature over all other axes (Ioffe and Szegedy 2015): x (..., D),
/// gamma (D), beta (D) or undefined, running_mean and running_variance (D). While a tape is alive
/// it uses the mean and biased variance of x, and updates running = (1 - momentum) * running +
/// momentum * (statistic of x, its variance unbiased unless `biased`; one row has no unbiased one).
/// Without a tape it uses the running statistics. Every row counts, padding too.
Var batch_norm(const Var& x, const Var& gamma, const Var& beta, const Tensor& running_mean,
               const Tensor& running_variance, const BatchNormOptions& options = {});

struct ResidualNorm {
  Var normed;  ///< norm(sum): the output of a post-norm block
  Var sum;     ///< residual + dropout(x): the output of a pre-norm block
};
/// The residual addition, the dropout before it and the norm after it in one pass.
ResidualNorm residual_norm(const Var& x, const Var& residual, const Var& gamma, const Var& beta,
                           const NormOptions& options = {});

struct EmbeddingOptions {
  double scale = 1;
  double dropout = 0;
  int64_t position_offset = 0;  ///< position of the first column of ids
  /// (B) int32 or undefined: the position of each row's first column; position_offset is then the
  /// largest of them, and no gradient flows.
  Tensor position_offsets = {};
  /// (B, T) int32 or undefined: the position of each token, in place of the offsets. Each must be a
  /// row of the table of positions; checked in host memory.
  Tensor positions = {};
};
/// dropout(scale * table[ids] + positions): ids (B, T) int32, table (V, D), positions
/// (>= offset + T, D) or undefined -> (B, T, D).
Var embedding(const Tensor& ids, const Var& table, const Var& positions = {},
              const EmbeddingOptions& options = {});

// ---- Attention (ops_rope.cpp, ops_attention.cpp, attention_reference.cpp)
struct RopeOptions {
  int64_t heads = 1;      ///< to rotate; the columns behind them are copied
  int64_t head_size = 0;  ///< K, of which R may be fewer; 0: R
  int64_t position_offset = 0;
  Tensor position_offsets = {};  ///< as in EmbeddingOptions
  Tensor positions = {};         ///< as in EmbeddingOptions
  RopeLayout layout = RopeLayout::kHalf;
};
/// Rotary positions (Su et al. 2021): x (B, T, W) holds `heads` heads of size K, then other
/// columns; table (positions, R) holds R/2 cosines and R/2 sines of each position. The first R
/// elements of a head are rotated.
Var rope(const Var& x, const Tensor& table, const RopeOptions& options);

/// Query t stands at key t + (S - T), the last query at the last key; the distance of key j from it
/// is d = j - (t + S - T). A key that any mask hides is hidden.
struct AttentionOptions {
  int64_t heads = 1;
  int64_t kv_heads = 0;     ///< G; 0: as many as heads
  bool causal = false;      ///< query t sees keys with d <= 0
  Tensor key_lengths = {};  ///< (B) int32 or undefined: keys at or after the length are masked
  double dropout = 0;       ///< of the attention weights
  double scale = 0;         ///< of the scores; 0: 1 / sqrt(K)
  double softcap = 0;       ///< of the scaled scores, in front of masks and biases; 0: none
  /// Kv, the size of a head's values, if a packed qkv does not determine it; 0: K.
  int64_t value_size = 0;
  /// (B, S) int32 or undefined, for a step of decoding: T is 1, k and v are the rows of a cache,
  /// (1, N, width), and key j of b is row key_rows[b][j]. b has the first key_lengths[b] of them,
  /// and its query stands at the last. No gradient flows then.
  Tensor key_rows = {};
  /// Query t sees keys with |d| < window (Beltagy et al. 2020); 0: all. The cost is linear in S.
  int64_t window = 0;
  /// (B) int32 or undefined: under a causal mask all queries see the keys before prefix_lengths[b],
  /// too, as far as the window lets them (prefix language model, Raffel et al. 2020, 3.2.1).
  Tensor prefix_lengths = {};
  /// (T, S), (B, T, S) or (B, H, T, S), B and H may be 1; or undefined. int32, as PyTorch's boolean
  /// and Hugging Face's masks: a query sees a key where it is not 0. Of the type of q: added to the
  /// scaled scores, so that -inf hides a key. It gets no gradient and is read in place.
  Tensor mask = {};
  /// Sequences end to end, or undefined: q, k and v are (1, N, ...), and each sequence is attended
  /// as if it were a batch element by itself. Then there are no key_lengths and no mask, and
  /// prefix_lengths has a number for each sequence.
  Sequences sequences = {};
  /// (H, 2R - 1) or undefined: a bias of the scores by distance, differentiable. Head h adds
  /// relative_bias[h][clamp(d, 1 - R, R - 1) + R - 1] to the scaled score (Shaw et al. 2018; a
  /// constant table gives the slopes of Press et al. 2022).
  Var relative_bias = {};
};
/// Fused multi-head attention (Vaswani et al. 2017) with memory linear in S (Dao et al. 2022).
/// q (B, T, H*K), k (B, S, G*K) and v (B, S, G*Kv) -> (B, T, H*Kv). A query that sees no key gives
/// 0 and gradient 0.
Var attention(const Var& q, const Var& k, const Var& v, const AttentionOptions& options);
/// The same on packed projections: qkv (B, T, (H + G) * K + G*Kv) ...
Var attention(const Var& qkv, const AttentionOptions& options);
/// ... and q (B, T, H*K) with kv (B, S, G * (K + Kv)), keys first.
Var attention(const Var& q, const Var& kv, const AttentionOptions& options);

struct AttentionWeights {
  Var out;      ///< (B, T, H*Kv)
  Var weights;  ///< (B, H, T, S), after softmax, before dropout
  // Of attention_reference() with scores, each (B, H, T, S):
  Var products = {};  ///< q k^T, before scaling
  Var scores = {};    ///< before softmax: scaled, with all that is added, -inf where hidden
};
/// The same attention composed of matmul and softmax, as its formula reads (Vaswani et al. 2017,
/// 3.2.1). For tests, readers and attention maps: it stores B x H x T x S weights.
AttentionWeights attention_reference(const Var& q, const Var& k, const Var& v,
                                     const AttentionOptions& options, bool with_scores = false);

/// softmax(scores) over the first lengths[b] of the last axis, 0 after them: scores (B, ..., S) of
/// any scoring function, lengths (B) int32. A row without a valid key gives 0 and gradient 0.
Var masked_softmax(const Var& scores, const Tensor& lengths);

// ---- Recurrence and additive attention (ops_recurrent.cpp)
/// One step of a gated recurrent unit (Cho et al. 2014; PyTorch's gates r, z, n): x_gates = W_x x +
/// b_x and h_gates = W_h h + b_h, both (B, 3D), h (B, D) -> the next state (B, D):
/// n = tanh(x_n + r * h_n), h' = (1 - z) * n + z * h.
Var gru_step(const Var& x_gates, const Var& h_gates, const Var& h);

struct GruOptions {
  Tensor lengths = {};  ///< (B) int32 or undefined: at and after the length a row keeps its state
  Var initial = {};     ///< (B, N*D), or undefined: zeros
};
/// A whole layer of N = 1 or 2 directions: x_gates (T, B, N*3D), time first, is the product of all
/// steps with the input matrices; weight (N*3D, D) and bias (N*3D) are those of the state. -> the
/// states (T, B, N*D). The second direction runs from each row's last real step to its first.
/// Behind the length its states are the initial state.
Var gru(const Var& x_gates, const Var& weight, const Var& bias, const GruOptions& options = {});

struct SsruOptions {
  /// As AttentionOptions::sequences: x is (1, N, 2D), and each sequence begins with c_0 = 0.
  Sequences sequences = {};
  bool keeps_states = false;  ///< SsruResult::states is wanted, tape or not
  /// (1, N, D), or undefined, for a step of decoding: the states of earlier tokens. Sequence b goes
  /// on from row key_rows[b][key_lengths[b] - 2], and from zeros if its key_lengths[b] is 1. Both
  /// are as in AttentionOptions and count the token that is fed. No gradient flows then.
  Tensor states = {};
  Tensor key_rows = {};     ///< (B, S) int32
  Tensor key_lengths = {};  ///< (B) int32
};
struct SsruResult {
  Var out;        ///< (B, T, D): relu(c)
  Tensor states;  ///< (B, T, D): c of each token; undefined unless it is kept
};
/// The Simpler Simple Recurrent Unit (Kim et al. 2019, 3.1), without its products: x (B, T, 2D) is
/// W_f x and W x side by side, bias (D) is b_f or undefined. f_t = sigmoid(W_f x_t + b_f),
/// c_t = f_t * c_{t-1} + (1 - f_t) * (W x_t), c_0 = 0. (ops_ssru.cpp)
SsruResult ssru(const Var& x, const Var& bias = {}, const SsruOptions& options = {});

/// Additive attention (Bahdanau et al. 2015, A.1.2) of projected queries and keys: scores v .
/// tanh(query + key_j), masked softmax, weighted sum of the values. query (B, A) or (B, T, A), keys
/// (B, S, A), values (B, S, E), v (A), lengths (B) int32 or undefined -> out (B, E) or (B, T, E);
/// its `weights` (B, S) or (B, T, S) are constants. A query that sees no key gives 0. With
/// `memories` (R) int32 the query is (R, A) and row r reads batch element memories[r] of the others
/// (no gradient flows then).
AttentionWeights additive_attention(const Var& query, const Var& keys, const Var& values,
                                    const Var& v, const Tensor& lengths = {},
                                    const Tensor& memories = {});
/// The same composed of the operations above; it stores B x T x S x A numbers, and its weights are
/// differentiable.
AttentionWeights additive_attention_reference(const Var& query, const Var& keys, const Var& values,
                                              const Var& v, const Tensor& lengths = {});

// ---- Losses (ops_loss.cpp)
struct CrossEntropyOptions {
  double label_smoothing = 0;
  int32_t ignore_index = -1;
  /// The weight of each row, float32 in host memory, positive; undefined: each is 1. A row of
  /// weight 2 counts as if it stood there twice.
  Tensor weights = {};
  /// The divisor of the summed loss; 0: the sum of the weights of the rows that are not ignored. An
  /// accumulated update passes that of all its micro-batches, so that its gradient equals that of
  /// one big batch.
  double normalizer = 0;
  /// Precision of the fused classifier's float32 products, forward and backward.
  Precision precision = Precision::kFull;
  double softcap = 0;  ///< of the fused classifier's logits; 0: none
};
struct CrossEntropy {
  Var loss;            ///< scalar: smoothed loss summed over real tokens / normalizer
  int64_t tokens = 0;  ///< rows whose target is not ignored
  /// Sums over real tokens, each times its weight, (3) float64 on the loss's device: the smoothed
  /// loss, the true negative log-likelihood, and how often the most probable class is the target.
  /// Of a distilled loss a fourth: the divergence from the teacher. With guided alignment a fifth
  /// (nn/attention/guided_alignment.h), behind a fourth in any case.
  Tensor sums;

  // Each reads one entry of `sums`; on a GPU it waits for the stream.
  double loss_sum() const { return sums.slice(0, 1).item(); }
  double nll_sum() const { return sums.slice(1, 2).item(); }
  double correct() const { return sums.slice(2, 3).item(); }
  double divergence() const { return sums.slice(3, 4).item(); }
};
/// logits (..., V), targets (...) int32 on the same device or in host memory. Targets in host
/// memory are checked without waiting for the GPU.
CrossEntropy cross_entropy(const Var& logits, const Tensor& targets,
                           const CrossEntropyOptions& options = {});
/// cross_entropy(linear(x, weight, bias), targets) by chunks of rows: x (..., D), weight (V, D),
/// bias (V) or undefined. The logits of the whole batch are never stored.
CrossEntropy linear_cross_entropy(const Var& x, const Weight& weight, const Var& bias,
                                  const Tensor& targets, const CrossEntropyOptions& options = {});

/// The log-probabilities of the targets under softmax(linear(x, weight, bias)), added up by groups:
/// those of rows [ends[g - 1], ends[g]) are one. x (..., D), targets (...) -> (G) float32, or
/// float64 of such an x. Of `options` it takes ignore_index, precision and softcap. No logits are
/// kept: backward computes them again, by chunks.
Var linear_log_probabilities(const Var& x, const Weight& weight, const Var& bias,
                             const Tensor& targets, const std::vector<int64_t>& ends,
                             const CrossEntropyOptions& options = {});

/// Another model whose predictions are learnt, too.
struct Distillation {
  double weight = 0.5;     ///< in (0, 1]: of the divergence; the cross-entropy's is 1 - weight
  double temperature = 1;  ///< divides both models' logits
  /// The teacher's logits of rows [begin, end): (end - begin, V) of any floating type, on the
  /// device of the student's. Called without a tape.
  std::function<Tensor(int64_t begin, int64_t end)> logits = {};
};
/// Knowledge distillation (Hinton et al. 2015; of each target token, Kim and Rush 2016): with
/// weight a and temperature T the loss is (1 - a) * cross_entropy(z, targets) + a * T^2 /
/// normalizer
/// * the sum over real rows of KL(softmax(t / T) || softmax(z / T)), times the rows' weights. It
/// stores z and its gradient; of t there is a chunk of rows at a time.
CrossEntropy distilled_cross_entropy(const Var& logits, const Tensor& targets,
                                     const CrossEntropyOptions& options,
                                     const Distillation& teacher);

}  // namespace tapestry
