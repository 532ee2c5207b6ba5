// One set of threads for the whole process. Only the shape decides how work is cut into tiles, and
// a tile computes the same on any thread, so results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace tapestry {

/// Sets the number of threads that run tiles, the caller's included; 0 means all cores.
/// Do not call it while a parallel_for runs. Throws Error(kRuntime) if the system cannot start
/// them.
void set_num_threads(int threads);
int num_threads();

namespace internal {
using TileFunction = void (*)(void* context, int64_t tile);
void run_tiles(int64_t tiles, TileFunction function, void* context);
}  // namespace internal

/// Calls f(tile) once for each tile in [0, tiles), on all threads, and returns when all calls have
/// returned. A nested call runs only on the calling thread; so does a call while another thread's
/// parallel_for runs. The first exception of f is rethrown here; tiles that have not begun by then
/// are skipped.
template <class F>
void parallel_for(int64_t tiles, F&& f) {
  using Function = std::remove_reference_t<F>;
  internal::run_tiles(
      tiles, [](void* context, int64_t tile) { (*static_cast<Function*>(context))(tile); },
      const_cast<void*>(static_cast<const void*>(&f)));
}

/// Cuts [0, total) into tiles of `grain` > 0 and calls f(begin, end) for each.
template <class F>
void parallel_ranges(int64_t total, int64_t grain, F&& f) {
  const int64_t tiles = (total + grain - 1) / grain;
  parallel_for(tiles, [&](int64_t tile) {
    const int64_t begin = tile * grain;
    f(begin, begin + grain < total ? begin + grain : total);
  });
}

}  // namespace tapestry
