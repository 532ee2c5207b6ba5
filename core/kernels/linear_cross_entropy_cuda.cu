#include "core/kernels/cross_entropy_rows.cuh"
#include "core/kernels/gemm.h"
#include "core/kernels/linear.h"

namespace tapestry {
namespace {

// Rows whose logits are stored at a time. At least 1024: below, the products would not fill a GPU.
// A multiple of 16, so that every chunk begins at an address as good as the first one's.
int64_t rows_of_chunk(int64_t rows, int64_t row_bytes, int64_t chunk_bytes) {
  const int64_t fitting = chunk_bytes / (row_bytes > 0 ? row_bytes : 1);
  const int64_t most = fitting > 1024 ? fitting : 1024;
  if (rows <= most) return rows > 0 ? rows : 1;
  const int64_t chunks = (rows + most - 1) / most;
  return ((rows + chunks - 1) / chunks + 15) / 16 * 16;
}

// Some rows of the problem. Their logits, and soon the gradients dz of these, are `stride` apart.
template <class T>
struct Chunk {
  int64_t rows;
  const T* x;
  T* logits;
  int64_t stride;
  T* dx;
};

// z = x W^T
template <class T>
Gemm<T> logits_of(const LinearCrossEntropy<T>& args, const Chunk<T>& chunk, int64_t classes) {
  Gemm<T> g;
  g.m = chunk.rows, g.n = classes, g.k = args.in;
  g.a = chunk.x, g.lda = args.in;
  g.b = args.weight, g.ldb = args.in, g.trans_b = true;
  g.c = chunk.logits, g.ldc = chunk.stride;
  return g;
}

// dx = dz W
template <class T>
Gemm<T> input_gradient(const LinearCrossEntropy<T>& args, const Chunk<T>& chunk, int64_t classes) {
  Gemm<T> g;
  g.m = chunk.rows, g.n = args.in, g.k = classes;
  g.a = chunk.logits, g.lda = chunk.stride;
  g.b = args.weight, g.ldb = args.in;
  g.c = chunk.dx, g.ldc = args.in;
  return g;
}

// dW (=|+=) dz^T x
template <class T>
Gemm<T> weight_gradient(const LinearCrossEntropy<T>& args, const Chunk<T>& chunk, int64_t classes,
                        Write write) {
  Gemm<T> g;
  g.m = classes, g.n = args.in, g.k = chunk.rows;
  g.a = chunk.logits, g.lda = chunk.stride, g.trans_a = true;
  g.b = chunk.x, g.ldb = args.in;
  g.c = args.d_weight, g.ldc = args.in, g.beta = write == Write::kAdd ? 1 : 0;
  return g;
}

}  // namespace

namespace kernels {

template <class T>
void linear_cross_entropy(Cuda, const CrossEntropyShape& shape, const LinearCrossEntropy<T>& args,
                          CrossEntropySums* sums) {
  // Without a bias, rows of logits begin 128 bytes apart or a multiple of it, whatever the number
  // of classes: at odd addresses (50257 classes) cuBLASLt has slow algorithms alone.
  constexpr int64_t kRowStep = 128 / static_cast<int64_t>(sizeof(T));
  const int64_t stride =
      args.bias == nullptr ? (shape.classes + kRowStep - 1) / kRowStep * kRowStep : shape.classes;
  const int64_t most =
      rows_of_chunk(shape.rows, stride * static_cast<int64_t>(sizeof(T)), args.chunk_bytes);
  const bool gradients = args.dx != nullptr;
  DeviceScratch<T> logits(most * stride);
  DeviceScratch<RowLoss> losses(shape.rows);
  // One turn at least: without rows the gradients of weight and bias are 0.
  for (int64_t first = 0; first == 0 || first < shape.rows; first += most) {
    const int64_t left = shape.rows - first;
    const Chunk<T> chunk{left < most ? left : most, args.x + first * args.in, logits.data(), stride,
                         gradients ? args.dx + first * args.in : nullptr};
    const LinearShape classifier{chunk.rows, args.in, shape.classes};
    if (args.bias != nullptr) {
      linear<T>(Cuda{}, classifier, {chunk.x, args.weight, args.bias, nullptr, logits.data()});
    } else {
      gemm(Cuda{}, logits_of(args, chunk, shape.classes));
    }
    CrossEntropyShape part = shape;
    part.rows = chunk.rows;
    cross_entropy_rows(part, CrossEntropyRows<T>{.logits = logits.data(),
                                                 .stride = stride,
                                                 .targets = args.targets + first,
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
      linear_backward(Cuda{}, classifier, backward);
    } else {
      gemm(Cuda{}, weight_gradient(args, chunk, shape.classes, write));
      gemm(Cuda{}, input_gradient(args, chunk, shape.classes));
    }
  }
  sum_rows(losses.data(), shape.rows, sums);
}

template void linear_cross_entropy(Cuda, const CrossEntropyShape&, const LinearCrossEntropy<float>&,
                                   CrossEntropySums*);
template void linear_cross_entropy(Cuda, const CrossEntropyShape&,
                                   const LinearCrossEntropy<double>&, CrossEntropySums*);
template void linear_cross_entropy(Cuda, const CrossEntropyShape&,
                                   const LinearCrossEntropy<BFloat16>&, CrossEntropySums*);

}  // namespace kernels
}  // namespace tapestry
