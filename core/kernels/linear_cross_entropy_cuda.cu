#include "core/kernels/cross_entropy_rows.cuh"
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

}  // namespace

namespace kernels {

template <class T>
void linear_cross_entropy(Cuda, const CrossEntropyShape& shape, const LinearCrossEntropy<T>& args,
                          CrossEntropySums* sums) {
  const int64_t chunk =
      rows_of_chunk(shape.rows, shape.classes * static_cast<int64_t>(sizeof(T)), args.chunk_bytes);
  const bool gradients = args.dx != nullptr;
  DeviceScratch<T> logits(chunk * shape.classes);
  DeviceScratch<RowLoss> losses(shape.rows);
  // One turn at least: without rows the gradients of weight and bias are 0.
  for (int64_t first = 0; first == 0 || first < shape.rows; first += chunk) {
    CrossEntropyShape part = shape;
    part.rows = shape.rows - first < chunk ? shape.rows - first : chunk;
    const LinearShape classifier{part.rows, args.in, shape.classes};
    const T* const x = args.x + first * args.in;
    linear<T>(Cuda{}, classifier, {x, args.weight, args.bias, nullptr, logits.data()});
    cross_entropy_rows(part, CrossEntropyRows<T>{.logits = logits.data(),
                                                 .stride = shape.classes,
                                                 .targets = args.targets + first,
                                                 .grad_scale = args.grad_scale,
                                                 .losses = losses.data() + first,
                                                 .dlogits = gradients ? logits.data() : nullptr});
    if (!gradients) continue;
    LinearBackward<T> backward{};
    backward.x = x, backward.weight = args.weight, backward.dy = logits.data();
    backward.dx = args.dx + first * args.in, backward.dx_write = Write::kSet;
    backward.d_weight = args.d_weight, backward.d_bias = args.d_bias;
    backward.d_weight_write = backward.d_bias_write = first == 0 ? Write::kSet : Write::kAdd;
    linear_backward(Cuda{}, classifier, backward);
  }
  cuda::fill_zero(sums, sizeof(CrossEntropySums));
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
