#include "core/kernels/cuda/tensor_table.cuh"
#include "core/kernels/sum_squares.h"

namespace tapestry {
namespace {

template <class T, int N>
__device__ double pack_squares(const T* x) {
  const auto values = *reinterpret_cast<const Pack<T, N>*>(x);
  double sum = 0;
  for (const T v : values.v) {
    const double wide = static_cast<double>(widen(v));
    sum += wide * wide;
  }
  return sum;
}

// partial[chunk] = the sum of the squares of a chunk. One block per chunk.
template <class T>
__global__ void sum_squares_chunks(const __grid_constant__ TensorTable<ElementSpan<T>> table,
                                   double* partial) {
  const TensorChunk chunk(table);
  const T* const x = table.entries[chunk.entry].x;
  double sum = 0;
  if (reinterpret_cast<uintptr_t>(x) % 16 == 0) {
    chunk.each_pack<kPack<T>>([&](int64_t i) { sum += pack_squares<T, kPack<T>>(x + i); });
    chunk.each_left<kPack<T>>([&](int64_t i) { sum += pack_squares<T, 1>(x + i); });
  } else {
    chunk.each_pack<1>([&](int64_t i) { sum += pack_squares<T, 1>(x + i); });
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// sums[chunk] of one array. One block per chunk.
template <class T>
__global__ void square_chunks(const T* x, int64_t n, double* sums) {
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kernels::kSquaresChunk;
  const int64_t end = begin + kernels::kSquaresChunk < n ? begin + kernels::kSquaresChunk : n;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) sum += pack_squares<T, 1>(x + i);
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

constexpr int kSumThreads = 1024;

// *result = the sum of n numbers. One block.
__global__ void __launch_bounds__(kSumThreads)
    add_up(const double* partial, int64_t n, double* result) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *result = sum;
}

}  // namespace

namespace kernels {

template <class T>
void sum_squares(Cuda, std::span<const ElementSpan<T>> tensors, double* result) {
  using Entry = ElementSpan<T>;
  int64_t chunks = 0;
  for (const Entry& tensor : tensors) chunks += (tensor.n + kTensorChunk - 1) / kTensorChunk;
  DeviceScratch<double> partial(chunks);
  double* next = partial.data();
  for_each_table<Entry>(
      tensors, [](const Entry& tensor) { return tensor; },
      [&](const TensorTable<Entry>& table) {
        launch({.kernel = "sum_squares", .grid = static_cast<unsigned>(table.chunks())},
               sum_squares_chunks<T>, table, next);
        next += table.chunks();
      });
  add_chunks(Cuda{}, partial.data(), chunks, result);
}

template <class T>
void chunk_squares(Cuda, const T* x, int64_t n, double* sums) {
  const auto chunks = static_cast<unsigned>((n + kSquaresChunk - 1) / kSquaresChunk);
  if (chunks == 0) return;
  launch({.kernel = "sum_squares", .grid = chunks}, square_chunks<T>, x, n, sums);
}

void add_chunks(Cuda, const double* sums, int64_t count, double* result) {
  launch({.kernel = "sum_squares", .grid = 1, .block = kSumThreads}, add_up, sums, count, result);
}

template void sum_squares(Cuda, std::span<const ElementSpan<float>>, double*);
template void sum_squares(Cuda, std::span<const ElementSpan<double>>, double*);
template void sum_squares(Cuda, std::span<const ElementSpan<BFloat16>>, double*);
template void chunk_squares(Cuda, const float*, int64_t, double*);
template void chunk_squares(Cuda, const double*, int64_t, double*);

}  // namespace kernels
}  // namespace tapestry
