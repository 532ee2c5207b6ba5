// One thread for each number of a sequence's state: it walks over the rows, and its neighbours read
// the numbers beside its own.
#include "core/kernels/cuda/common.cuh"
#include "core/kernels/elementwise/unary_functors.h"
#include "core/kernels/recurrent/ssru.h"

namespace tapestry {
namespace {

using functors::Sigmoid;

// A thread's sequence, column and rows [begin, end).
struct Walk {
  __device__ Walk(const SsruShape& shape, int64_t place)
      : sequence(place / shape.size), column(place % shape.size) {
    const bool even = shape.starts == nullptr;
    begin = even ? sequence * shape.steps : shape.starts[sequence];
    end = even ? begin + shape.steps : shape.starts[sequence + 1];
  }

  int64_t sequence, column, begin, end;
};

template <class T>
__device__ Wider<T> state_before(const SsruBefore<T>& before, const Walk& walk, int64_t size) {
  if (before.states == nullptr || before.lengths[walk.sequence] < 2) return 0;
  const int64_t last = before.lengths[walk.sequence] - 2;
  const int64_t row = before.rows[walk.sequence * before.width + last];
  return widen(before.states[row * size + walk.column]);
}

// (sequences, size)
template <class T>
__global__ void forward(SsruShape shape, SsruForward<T> args) {
  using W = Wider<T>;
  const int64_t size = shape.size, place = global_thread();
  if (place >= shape.sequences * size) return;
  const Walk walk(shape, place);
  const W bias = args.bias != nullptr ? widen(args.bias[walk.column]) : W(0);
  W c = state_before(args.before, walk, size);
  for (int64_t row = walk.begin; row < walk.end; ++row) {
    const T* const x = args.x + row * 2 * size + walk.column;
    const W f = Sigmoid::f(widen(x[0]) + bias), v = widen(x[size]);
    c = f * (c - v) + v;
    args.out[row * size + walk.column] = narrow<T>(c > 0 ? c : W(0));
    if (args.states != nullptr) args.states[row * size + walk.column] = narrow<T>(c);
  }
}

// (sequences, size)
template <class T>
__global__ void backward(SsruShape shape, SsruBackward<T> args) {
  using W = Wider<T>;
  const int64_t size = shape.size, place = global_thread();
  if (place >= shape.sequences * size) return;
  const Walk walk(shape, place);
  const W bias = args.bias != nullptr ? widen(args.bias[walk.column]) : W(0);
  W carry = 0, gates = 0;
  for (int64_t row = walk.end - 1; row >= walk.begin; --row) {
    const T* const x = args.x + row * 2 * size + walk.column;
    const T* const states = args.states + row * size + walk.column;
    const W f = Sigmoid::f(widen(x[0]) + bias), v = widen(x[size]);
    const W passed = widen(states[0]) > 0 ? widen(args.d_out[row * size + walk.column]) : W(0);
    const W dc = carry + passed;
    const W before = row > walk.begin ? widen(states[-size]) : W(0);
    const W dg = dc * (before - v) * Sigmoid::df(f);
    carry = dc * f;
    gates += dg;
    if (args.dx == nullptr) continue;
    T* const dx = args.dx + row * 2 * size + walk.column;
    deliver(dx, dg, args.dx_write);
    deliver(dx + size, dc - dc * f, args.dx_write);
  }
  if (args.d_bias != nullptr) args.d_bias[place] = narrow<T>(gates);
}

template <class... Params, class... Args>
void launch_for(const char* name, const SsruShape& shape, void (*kernel)(Params...),
                const Args&... args) {
  launch({.kernel = name, .grid = blocks_for(shape.sequences * shape.size, kBlock, INT32_MAX)},
         kernel, shape, args...);
}

}  // namespace

namespace kernels {

template <class T>
void ssru(Cuda, const SsruShape& shape, const SsruForward<T>& args) {
  launch_for("ssru", shape, forward<T>, args);
}

template <class T>
void ssru_backward(Cuda, const SsruShape& shape, const SsruBackward<T>& args) {
  launch_for("ssru_backward", shape, backward<T>, args);
}

#define TAPESTRY_SSRU(T)                                             \
  template void ssru(Cuda, const SsruShape&, const SsruForward<T>&); \
  template void ssru_backward(Cuda, const SsruShape&, const SsruBackward<T>&);
TAPESTRY_SSRU(float)
TAPESTRY_SSRU(double)
TAPESTRY_SSRU(BFloat16)

}  // namespace kernels
}  // namespace tapestry
