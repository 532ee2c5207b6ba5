#include <algorithm>
#include <vector>

#include "core/kernels/cuda/cross_entropy_rows.cuh"
#include "core/kernels/embedding.h"
#include "core/kernels/gemm.h"
#include "core/kernels/linear.h"

namespace tapestry {
namespace {

// The number of rows per chunk. At least 1024: fewer would not fill a GPU. A multiple of 16, so
// that every chunk is aligned like the first one.
int64_t rows_of_chunk(int64_t rows, int64_t row_bytes, int64_t chunk_bytes) {
  const int64_t fitting = chunk_bytes / (row_bytes > 0 ? row_bytes : 1);
  const int64_t most = fitting > 1024 ? fitting : 1024;
  if (rows <= most) return rows > 0 ? rows : 1;
  const int64_t chunks = (rows + most - 1) / most;
  return ((rows + chunks - 1) / chunks + 15) / 16 * 16;
}

// Some rows of the problem. Rows of logits, later overwritten by their gradients dz, are `stride`
// apart; `weight` and `d_weight` have `stride` rows, zeros from row `classes` on.
template <class T>
struct Chunk {
  int64_t rows;
  const T* x;
  const T* weight;
  T* logits;
  int64_t stride;
  T *dx, *d_weight;
};

// z = x W^T, 0 beyond the classes
template <class T>
Gemm<T> logits_of(const CrossEntropyShape& shape, const LinearCrossEntropy<T>& args,
                  const Chunk<T>& chunk) {
  Gemm<T> g;
  g.m = chunk.rows, g.n = chunk.stride, g.k = args.in, g.precision = shape.precision;
  g.a = chunk.x, g.lda = args.in;
  g.b = chunk.weight, g.ldb = args.in, g.trans_b = true;
  g.c = chunk.logits, g.ldc = chunk.stride;
  return g;
}

// dx = dz W
template <class T>
Gemm<T> input_gradient(const CrossEntropyShape& shape, const LinearCrossEntropy<T>& args,
                       const Chunk<T>& chunk) {
  Gemm<T> g;
  g.m = chunk.rows, g.n = args.in, g.k = chunk.stride, g.precision = shape.precision;
  g.a = chunk.logits, g.lda = chunk.stride;
  g.b = chunk.weight, g.ldb = args.in;
  g.c = chunk.dx, g.ldc = args.in;
  return g;
}

// dW (=|+=) dz^T x
template <class T>
Gemm<T> weight_gradient(const CrossEntropyShape& shape, const LinearCrossEntropy<T>& args,
                        const Chunk<T>& chunk, Write write) {
  Gemm<T> g;
  g.m = chunk.stride, g.n = args.in, g.k = chunk.rows, g.precision = shape.precision;
  g.a = chunk.logits, g.lda = chunk.stride, g.trans_a = true;
  g.b = chunk.x, g.ldb = args.in;
  g.c = chunk.d_weight, g.ldc = args.in, g.beta = write == Write::kAdd ? 1 : 0;
  return g;
}

// The weight and its gradient with `padded` rows: where they have fewer, a copy of the weight with
// zeros below, and a gradient to be copied.
template <class T>
class PaddedWeight {
 public:
  PaddedWeight(const LinearCrossEntropy<T>& args, int64_t rows, int64_t padded)
      : args_(args),
        bytes_(rows * args.in * int64_t{sizeof(T)}),
        is_copied_(padded > rows),
        weight_(is_copied_ ? padded * args.in : 0),
        gradient_(is_copied_ && args.d_weight != nullptr ? padded * args.in : 0) {
    if (!is_copied_) return;
    cuda::copy(weight_.data(), args.weight, bytes_);
    cuda::fill_zero(weight_.data() + rows * args.in,
                    (padded - rows) * args.in * int64_t{sizeof(T)});
  }
  const T* data() { return is_copied_ ? weight_.data() : args_.weight; }
  T* gradient() { return is_copied_ ? gradient_.data() : args_.d_weight; }
  void deliver_gradient() {
    if (is_copied_ && args_.d_weight != nullptr) {
      cuda::copy(args_.d_weight, gradient_.data(), bytes_);
    }
  }

 private:
  const LinearCrossEntropy<T>& args_;
  int64_t bytes_;
  bool is_copied_;
  DeviceScratch<T> weight_, gradient_;
};

// Computes all rows, including ignored ones.
template <class T>
void all_rows(const CrossEntropyShape& shape, const LinearCrossEntropy<T>& args,
              CrossEntropySums* sums) {
  // Without a bias, the stride of a row of logits is a multiple of 128 bytes, whatever the number
  // of classes, and the products compute whole rows: for odd addresses and sizes (50257 classes)
  // cuBLASLt has only slow algorithms, eight times as slow on an H200.
  constexpr int64_t kRowStep = 128 / static_cast<int64_t>(sizeof(T));
  const int64_t stride =
      args.bias == nullptr ? (shape.classes + kRowStep - 1) / kRowStep * kRowStep : shape.classes;
  const int64_t most =
      rows_of_chunk(shape.rows, stride * static_cast<int64_t>(sizeof(T)), args.chunk_bytes);
  const bool gradients = args.dx != nullptr;
  PaddedWeight<T> weight(args, shape.classes, stride);
  DeviceScratch<T> logits(most * stride);
  DeviceScratch<RowLoss> losses(shape.rows);
  // At least one round: without rows it sets the gradients of weight and bias to 0.
  for (int64_t first = 0; first == 0 || first < shape.rows; first += most) {
    const int64_t left = shape.rows - first;
    const Chunk<T> chunk{left < most ? left : most,
                         args.x + first * args.in,
                         weight.data(),
                         logits.data(),
                         stride,
                         gradients ? args.dx + first * args.in : nullptr,
                         weight.gradient()};
    const LinearShape classifier{chunk.rows, args.in, shape.classes, Activation::kNone,
                                 shape.precision};
    if (args.bias != nullptr) {
      kernels::linear<T>(Cuda{}, classifier,
                         {chunk.x, args.weight, args.bias, nullptr, logits.data()});
    } else {
      kernels::gemm(Cuda{}, logits_of(shape, args, chunk));
    }
    CrossEntropyShape part = shape;
    part.rows = chunk.rows;
    cross_entropy_rows(part, CrossEntropyRows<T>{.logits = logits.data(),
                                                 .stride = stride,
                                                 .targets = args.targets.from(first),
                                                 .grad_scale = args.grad_scale,
                                                 .losses = losses.data() + first,
                                                 .dlogits = gradients ? logits.data() : nullptr});
    if (!gradients) continue;
    const Write write = first == 0 ? Write::kSet : Write::kAdd;
    if (args.bias != nullptr) {
      LinearBackward<T> backward{};
      backward.x = chunk.x, backward.weight = args.weight, backward.dy = logits.data();
      backward.dx = chunk.dx, backward.dx_write = Write::kSet;
      backward.d_weight = args.d_weight, backward.d_bias = args.d_bias;
      backward.d_weight_write = backward.d_bias_write = write;
      kernels::linear_backward(Cuda{}, classifier, backward);
    } else {
      if (args.d_weight != nullptr) {
        kernels::gemm(Cuda{}, weight_gradient(shape, args, chunk, write));
      }
      kernels::gemm(Cuda{}, input_gradient(shape, args, chunk));
    }
  }
  if (gradients) weight.deliver_gradient();
  sum_rows(losses.data(), shape.rows, sums);
}

// The rows that are not ignored, in order, then at least one ignored row up to a multiple of kStep.
struct Selection {
  // Few different row counts, so that batches share products and graphs.
  static constexpr int64_t kStep = 128;
  static int64_t rows_for(int64_t real) { return (real / kStep + 1) * kStep; }

  Selection(const RowTargets& all, int64_t count, int32_t ignore_index, int64_t real)
      : places(static_cast<size_t>(count), static_cast<int32_t>(real)) {
    rows.reserve(static_cast<size_t>(rows_for(real)));
    targets.reserve(rows.capacity());
    for (int64_t r = 0; r < count; ++r) {
      if (all.targets[r] == ignore_index) continue;
      places[static_cast<size_t>(r)] = static_cast<int32_t>(rows.size());
      rows.push_back(static_cast<int32_t>(r));
      targets.push_back(all.targets[r]);
      if (all.weights != nullptr) weights.push_back(all.weights[r]);
    }
    rows.resize(static_cast<size_t>(rows_for(real)));
    targets.resize(rows.size(), ignore_index);
    if (all.weights != nullptr) weights.resize(rows.size(), 1);
  }

  std::vector<int32_t> rows;     // of x
  std::vector<int32_t> targets;  // theirs
  std::vector<float> weights;    // of the same rows, or empty
  std::vector<int32_t> places;   // where `rows` has each row of x (ignored: any ignored one)
};

template <class E>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<E>& values) : values_(std::ssize(values)) {
    if (values.empty()) return;
    cuda::upload(values_.data(), values.data(), std::ssize(values) * int64_t{sizeof(E)});
  }
  const E* data() { return values_.data(); }

 private:
  DeviceScratch<E> values_;
};

// to[i] = from[ids[i]], rows of `cols` elements.
template <class T>
void take_rows(const T* from, int64_t from_rows, int64_t cols, const std::vector<int32_t>& ids,
               T* to) {
  OnDevice on_device(ids);
  const EmbeddingShape shape{.rows = std::ssize(ids), .cols = cols, .vocab = from_rows};
  kernels::embedding<T>(Cuda{}, shape, on_device.data(), from, nullptr, Dropout{}, to);
}

template <class T>
void selected_rows(const CrossEntropyShape& shape, const LinearCrossEntropy<T>& args,
                   const Selection& selection, CrossEntropySums* sums) {
  const int64_t count = std::ssize(selection.rows);
  OnDevice targets(selection.targets);
  OnDevice weights(selection.weights);
  DeviceScratch<T> x(count * args.in), dx(args.dx != nullptr ? count * args.in : 0);
  take_rows(args.x, shape.rows, args.in, selection.rows, x.data());
  CrossEntropyShape part = shape;
  part.rows = count;
  LinearCrossEntropy<T> selected = args;
  selected.x = x.data();
  selected.targets = {targets.data(), selection.weights.empty() ? nullptr : weights.data()};
  if (args.dx != nullptr) selected.dx = dx.data();
  all_rows(part, selected, sums);
  if (args.dx != nullptr) take_rows(dx.data(), count, args.in, selection.places, args.dx);
}

}  // namespace

namespace kernels {

template <class T>
void linear_cross_entropy(Cuda, const CrossEntropyShape& shape, const LinearCrossEntropy<T>& args,
                          CrossEntropySums* sums) {
  if (args.host_targets.targets != nullptr) {
    const int32_t *const all = args.host_targets.targets, *const end = all + shape.rows;
    const int64_t real = shape.rows - std::count(all, end, shape.ignore_index);
    if (8 * Selection::rows_for(real) <= 7 * shape.rows) {
      const Selection selection(args.host_targets, shape.rows, shape.ignore_index, real);
      return selected_rows(shape, args, selection, sums);
    }
  }
  all_rows(shape, args, sums);
}

template void linear_cross_entropy(Cuda, const CrossEntropyShape&, const LinearCrossEntropy<float>&,
                                   CrossEntropySums*);
template void linear_cross_entropy(Cuda, const CrossEntropyShape&,
                                   const LinearCrossEntropy<double>&, CrossEntropySums*);
template void linear_cross_entropy(Cuda, const CrossEntropyShape&,
                                   const LinearCrossEntropy<BFloat16>&, CrossEntropySums*);

}  // namespace kernels
}  // namespace tapestry
