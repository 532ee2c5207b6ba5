#include "core/kernels/attention/rope.h"
#include "core/kernels/cuda/common.cuh"

namespace tapestry {
namespace {

// N cosines or sines, in accesses of 16 bytes where N allows it.
template <int N, class W>
__device__ void load_angles(const W* table, W (&values)[N]) {
  constexpr int kWidth = N < kPack<W> ? N : kPack<W>;
  for (int k = 0; k < N; k += kWidth) {
    const auto pack = *reinterpret_cast<const Pack<W, kWidth>*>(table + k);
    for (int j = 0; j < kWidth; ++j) values[k + j] = pack.v[j];
  }
}

// (a, b) -> (a cos - b sin, b cos + a sin); inverse with -sin. Per turn a thread takes N pairs of a
// head, which lie in two packs of N elements, or N of the columns that are copied: those behind
// what is rotated of each head, then those behind the heads. Neighbouring threads take neighbouring
// units of a row; `copied` is how many of its columns are copied, `copied_of_head` of a head.
template <class T, RopeLayout kLayout, int N>
__global__ void rope_kernel(const RopeShape shape, int64_t copied, int64_t copied_of_head,
                            const T* x, const Wider<T>* table, T* y, Write write) {
  const int64_t half = shape.rotated / 2, turned = shape.heads * shape.head_size;
  const int64_t head_units = half / N, pair_units = shape.heads * head_units;
  const int64_t row_units = pair_units + copied / N, units = shape.rows * row_units;
  const Wider<T> direction = shape.inverse ? -1 : 1;
  for (int64_t i = global_thread(); i < units; i += global_threads()) {
    const int64_t row = i / row_units, unit = i % row_units;
    const T* const from = x + row * shape.width;
    T* const to = y + row * shape.width;
    if (unit >= pair_units) {
      const int64_t column = (unit - pair_units) * N, of_heads = shape.heads * copied_of_head;
      const int64_t place = column >= of_heads ? turned + column - of_heads
                                               : column / copied_of_head * shape.head_size +
                                                     shape.rotated + column % copied_of_head;
      const auto values = *reinterpret_cast<const Pack<T, N>*>(from + place);
      auto& out = *reinterpret_cast<Pack<T, N>*>(to + place);
      Pack<T, N> result = write == Write::kAdd ? out : Pack<T, N>{};
      for (int j = 0; j < N; ++j) deliver(&result.v[j], widen(values.v[j]), write);
      out = result;
      continue;
    }
    const int64_t pair = unit % head_units * N, head = unit / head_units * shape.head_size;
    const int64_t first = head + (kLayout == RopeLayout::kHalf ? pair : 2 * pair);
    const int64_t second = first + (kLayout == RopeLayout::kHalf ? half : N);
    const int64_t position = shape.position(row);
    Wider<T> cosine[N], sine[N];
    load_angles(table + position * shape.rotated + pair, cosine);
    load_angles(table + position * shape.rotated + half + pair, sine);

    struct TwoPacks {
      Pack<T, N> pack[2];
      // Element 0 or 1 of pair j.
      __device__ T& at(int j, int element) {
        if (kLayout == RopeLayout::kHalf) return pack[element].v[j];
        const int place = 2 * j + element;
        return pack[place / N].v[place % N];
      }
    };
    auto* const low = reinterpret_cast<Pack<T, N>*>(to + first);
    auto* const high = reinterpret_cast<Pack<T, N>*>(to + second);
    TwoPacks values{*reinterpret_cast<const Pack<T, N>*>(from + first),
                    *reinterpret_cast<const Pack<T, N>*>(from + second)};
    TwoPacks result{};
    if (write == Write::kAdd) result = {*low, *high};
    for (int j = 0; j < N; ++j) {
      const Wider<T> a = widen(values.at(j, 0)), b = widen(values.at(j, 1));
      const Wider<T> c = cosine[j], s = direction * sine[j];
      deliver(&result.at(j, 0), a * c - b * s, write);
      deliver(&result.at(j, 1), b * c + a * s, write);
    }
    *low = result.pack[0];
    *high = result.pack[1];
  }
}

template <class T, RopeLayout kLayout>
void run(const RopeShape& shape, const T* x, const Wider<T>* table, T* y, Write write) {
  const int64_t turned = shape.heads * shape.rotated;
  const bool in_place = x == y && write == Write::kSet;
  const int64_t copied = in_place ? 0 : shape.width - turned;
  const int64_t copied_of_head = in_place ? 0 : shape.head_size - shape.rotated;
  const bool packed = can_pack<T>(shape.rotated / 2, x, y, table) && can_pack<T>(shape.head_size) &&
                      can_pack<T>(shape.width);
  const int64_t width = packed ? kPack<T> : 1;
  launch(
      {.kernel = "rope", .grid = blocks_for(shape.rows * (turned / (2 * width) + copied / width))},
      packed ? rope_kernel<T, kLayout, kPack<T>> : rope_kernel<T, kLayout, 1>, shape, copied,
      copied_of_head, x, table, y, write);
}

}  // namespace

namespace kernels {

template <class T>
void rope(Cuda, const RopeShape& shape, const T* x, const Wider<T>* table, T* y, Write write) {
  if (shape.layout == RopeLayout::kHalf)
    return run<T, RopeLayout::kHalf>(shape, x, table, y, write);
  run<T, RopeLayout::kInterleaved>(shape, x, table, y, write);
}

template void rope(Cuda, const RopeShape&, const float*, const float*, float*, Write);
template void rope(Cuda, const RopeShape&, const double*, const double*, double*, Write);
template void rope(Cuda, const RopeShape&, const BFloat16*, const float*, BFloat16*, Write);

}  // namespace kernels
}  // namespace tapestry
