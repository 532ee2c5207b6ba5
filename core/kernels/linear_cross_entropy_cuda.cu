#include "core/kernels/cross_entropy.h"
#include "core/kernels/cuda_common.cuh"
#include "core/kernels/linear.h"

namespace tapestry {
namespace {

// Of a row's block. A thread has at least four packs of its row, where there are so many: the sums
// among threads cost as much as some packs.
constexpr int64_t kMostThreads = 512, kLeastPacks = 4;

// What a thread, then a block, knows of a row of logits v.
template <class T>
struct RowStats {
  T max = -INFINITY;
  T sum = 0;        // of e^(v - shift())
  T total = 0;      // of v
  bool led = true;  // the target's logit is the largest, and the first of its size

  // Not -inf: where all are -inf the sum is 0, and not that of e^(inf - inf).
  __device__ T shift() const { return max == -INFINITY ? T(0) : max; }
};

template <class T, int N>
__device__ RowStats<Wider<T>> stats_of_thread(const Pack<T, N>* row, int64_t packs, int32_t target,
                                              Wider<T> target_logit) {
  RowStats<Wider<T>> stats;
  for (int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
    const Pack<T, N> values = row[p];
    const Wider<T> before = stats.shift();
    for (const T& v : values.v) stats.max = MaxOf()(stats.max, widen(v));
    const Wider<T> shift = stats.shift();
    // Where nothing was summed before, `before` may be far from `shift`.
    if (stats.sum != 0 && shift != before) stats.sum *= std::exp(before - shift);
    for (int j = 0; j < N; ++j) {
      const Wider<T> v = widen(values.v[j]);
      const int64_t column = p * N + j;
      stats.sum += std::exp(v - shift);
      stats.total += v;
      stats.led = stats.led && !(v > target_logit) && !(v == target_logit && column < target);
    }
  }
  return stats;
}

// A row (packs * N) of logits a block: sums[row] = its loss, and, where gradients are wanted, the
// logits become grad_scale * dz. The row is read twice; the second time mostly from the caches.
template <class T, int N>
__global__ void loss_rows(CrossEntropyShape shape, T* logits, const int32_t* targets,
                          double grad_scale, bool gradients, CrossEntropySums* sums,
                          int64_t packs) {
  const int64_t r = blockIdx.x;
  auto* const row = reinterpret_cast<Pack<T, N>*>(logits + r * shape.classes);
  const int32_t target = targets[r];
  if (target == shape.ignore_index) {
    if (threadIdx.x == 0) sums[r] = {};
    for (int64_t p = threadIdx.x; gradients && p < packs; p += blockDim.x) row[p] = {};
    return;
  }
  const Wider<T> target_logit = widen(logits[r * shape.classes + target]);
  const RowStats<Wider<T>> mine = stats_of_thread<T, N>(row, packs, target, target_logit);
  RowStats<Wider<T>> all;
  all.max = block_reduce(mine.max, MaxOf(), static_cast<Wider<T>>(-INFINITY));
  const Wider<T> shift = all.shift();
  // Among threads and beyond in double.
  const Wider<T> scaled = mine.sum != 0 ? mine.sum * std::exp(mine.shift() - shift) : Wider<T>(0);
  const double sum = block_sum(static_cast<double>(scaled));
  const double total =
      shape.label_smoothing != 0 ? block_sum(static_cast<double>(mine.total)) : 0;
  const bool led = block_reduce(mine.led ? 0 : 1, MaxOf(), 0) == 0;
  if (threadIdx.x == 0) {
    const double log_sum_exp = static_cast<double>(all.max) + std::log(sum);
    CrossEntropySums result;
    result.nll = log_sum_exp - static_cast<double>(target_logit);
    result.loss = result.nll;
    // Not with a factor of 0: a class that is masked by -inf makes the mean infinite.
    if (shape.label_smoothing != 0) {
      const double uniform = log_sum_exp - total / static_cast<double>(shape.classes);
      result.loss += shape.label_smoothing * (uniform - result.nll);
    }
    result.correct = led && !std::isnan(sum);
    sums[r] = result;
  }
  if (!gradients) return;
  const auto factor = static_cast<Wider<T>>(grad_scale / sum);
  const auto spread = static_cast<Wider<T>>(grad_scale * shape.label_smoothing /
                                            static_cast<double>(shape.classes));
  const auto hit = static_cast<Wider<T>>(grad_scale * (1 - shape.label_smoothing));
  for (int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
    Pack<T, N> values = row[p];
    for (int j = 0; j < N; ++j) {
      const Wider<T> dz = std::exp(widen(values.v[j]) - shift) * factor - spread;
      values.v[j] = narrow<T>(p * N + j == target ? dz - hit : dz);
    }
    row[p] = values;
  }
}

template <class T>
void losses_of_rows(const CrossEntropyShape& shape, T* logits, const int32_t* targets,
                    double grad_scale, bool gradients, CrossEntropySums* sums) {
  const bool packed = can_pack<T>(shape.classes, logits);
  const int64_t packs = packed ? shape.classes / kPack<T> : shape.classes;
  constexpr int64_t kWarpPacks = kWarp * kLeastPacks, kMostWarps = kMostThreads / kWarp;
  const int64_t warps = (packs + kWarpPacks - 1) / kWarpPacks;
  launch({.kernel = "linear_cross_entropy",
          .grid = dim3(static_cast<unsigned>(shape.rows)),
          .block = dim3(kWarp * static_cast<unsigned>(warps < kMostWarps ? warps : kMostWarps))},
         packed ? loss_rows<T, kPack<T>> : loss_rows<T, 1>, shape, logits, targets, grad_scale,
         gradients, sums, packs);
}

// total = the sum of `count` rows, by one block: a thread takes every kBlock-th row.
__global__ void add_rows(const CrossEntropySums* rows, int64_t count, CrossEntropySums* total) {
  CrossEntropySums sums;
  for (int64_t r = threadIdx.x; r < count; r += blockDim.x) {
    sums.loss += rows[r].loss;
    sums.nll += rows[r].nll;
    sums.correct += rows[r].correct;
  }
  sums.loss = block_sum(sums.loss);
  sums.nll = block_sum(sums.nll);
  sums.correct = block_sum(sums.correct);
  if (threadIdx.x == 0) *total = sums;
}

// Rows whose logits are stored at a time. At least 1024: below, the products would not fill a GPU. A
// multiple of 16, so that every chunk begins at an address as good as the first one's.
int64_t rows_of_chunk(int64_t rows, int64_t row_bytes, int64_t chunk_bytes) {
  const int64_t fitting = chunk_bytes / (row_bytes > 0 ? row_bytes : 1);
  const int64_t most = fitting > 1024 ? fitting : 1024;
  if (rows <= most) return rows > 0 ? rows : 1;
  const int64_t chunks = (rows + most - 1) / most;
  return ((rows + chunks - 1) / chunks + 15) / 16 * 16;
}

}  // namespace

namespace kernels {

template <class T>
CrossEntropySums linear_cross_entropy(Cuda, const CrossEntropyShape& shape,
                                      const LinearCrossEntropy<T>& args) {
  const int64_t chunk = rows_of_chunk(
      shape.rows, shape.classes * static_cast<int64_t>(sizeof(T)), args.chunk_bytes);
  const bool gradients = args.dx != nullptr;
  DeviceScratch<T> logits(chunk * shape.classes);
  DeviceScratch<CrossEntropySums> sums(shape.rows + 1);
  // One turn at least: without rows the gradients of weight and bias are 0.
  for (int64_t first = 0; first == 0 || first < shape.rows; first += chunk) {
    CrossEntropyShape part = shape;
    part.rows = shape.rows - first < chunk ? shape.rows - first : chunk;
    const LinearShape classifier{part.rows, args.in, shape.classes};
    const T* const x = args.x + first * args.in;
    linear<T>(Cuda{}, classifier, {x, args.weight, args.bias, nullptr, logits.data()});
    losses_of_rows(part, logits.data(), args.targets + first, args.grad_scale, gradients,
                   sums.data() + first);
    if (!gradients) continue;
    LinearBackward<T> backward{};
    backward.x = x, backward.weight = args.weight, backward.dy = logits.data();
    backward.dx = args.dx + first * args.in, backward.dx_write = Write::kSet;
    backward.d_weight = args.d_weight, backward.d_bias = args.d_bias;
    backward.d_weight_write = backward.d_bias_write = first == 0 ? Write::kSet : Write::kAdd;
    linear_backward(Cuda{}, classifier, backward);
  }
  CrossEntropySums* const total = sums.data() + shape.rows;
  launch({.kernel = "linear_cross_entropy", .grid = 1}, add_rows, sums.data(), shape.rows, total);
  CrossEntropySums result;
  cuda::download(&result, total, sizeof(result));
  return result;
}

template CrossEntropySums linear_cross_entropy(Cuda, const CrossEntropyShape&,
                                               const LinearCrossEntropy<float>&);
template CrossEntropySums linear_cross_entropy(Cuda, const CrossEntropyShape&,
                                               const LinearCrossEntropy<double>&);
template CrossEntropySums linear_cross_entropy(Cuda, const CrossEntropyShape&,
                                               const LinearCrossEntropy<BFloat16>&);

}  // namespace kernels
}  // namespace tapestry
