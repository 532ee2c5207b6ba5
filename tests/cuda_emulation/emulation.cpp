#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdlib>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cuda_runtime.h"
#include "fibers.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace tapestry {
alignas(1024) unsigned char dynamic_shared_bytes[228 * 1024];
}

namespace cuda_emulation {
namespace {

constexpr int kWarpSize = 32;
constexpr size_t kStackBytes = 128 * 1024;

// Threads wait here; the last one to arrive releases all.
struct Barrier {
  int members = 0, arrived = 0;
  unsigned generation = 0;

  void open_if_complete() {
    if (members > 0 && arrived == members) arrived = 0, ++generation;
  }
};

struct Warp {
  Barrier barrier;
  alignas(16) unsigned char slots[2][kWarpSize * 16];
};

// Waits at its end for the next block. Switching by _longjmp makes no system call, swapcontext two.
struct Fiber {
  jmp_buf resume;
  uint3 index;
  bool done = false;
};

class Block {
 public:
  void run(const dim3& size, const std::function<void()>& body) {
    const size_t threads = static_cast<size_t>(size.x) * size.y * size.z;
    body_ = &body;
    warps_.assign((threads + kWarpSize - 1) / kWarpSize, Warp{});
    all_ = Barrier{static_cast<int>(threads)};
    for (Barrier& barrier : groups_) barrier = Barrier{};
    for (size_t i = 0; i < threads; ++i) start(i, size);
    start_async();
    for (size_t left = threads; left > 0;) {
      const size_t before = progress_;
      const unsigned late = late_warpgroups();
      for (current_ = 0; current_ < threads; ++current_) {
        if (fibers_[current_].done || (late >> current_ / 128 & 1) != 0) continue;
        threadIdx = fibers_[current_].index;
        resume();
        if (failure_ != nullptr) abandon();
        if (fibers_[current_].done) --left, ++progress_;
        deliver_perhaps();
      }
      if (progress_ == before && late == 0 && !deliver_one()) {
        fail("emulated threads wait for each other: a barrier is not reached by all");
        abandon();
      }
    }
    for (const Barrier& barrier : groups_) {
      if (barrier.arrived > 0) fail("emulated threads have arrived at a barrier that nobody left");
    }
    finish_async();
    if (failure_ != nullptr) abandon();
  }

  void wait(Barrier& barrier) {
    const unsigned generation = barrier.generation;
    ++barrier.arrived;
    ++progress_;
    barrier.open_if_complete();
    while (barrier.generation == generation) give_way();
  }

  void block_barrier() { wait(all_); }
  void warp_barrier() { wait(warp().barrier); }
  // Of a barrier that any `members` threads share.
  void group_barrier(int number, int members, bool waits) {
    Barrier& barrier = groups_[number];
    if (barrier.arrived == 0) barrier.members = members;
    if (barrier.members != members) throw std::logic_error("two sizes of one named barrier");
    if (waits) return wait(barrier);
    ++barrier.arrived;
    ++progress_;
    barrier.open_if_complete();
  }
  void note_progress() { ++progress_; }
  int thread() const { return static_cast<int>(current_); }
  // The kernel ends at the next chance.
  void fail(std::exception_ptr failure) {
    if (failure_ == nullptr) failure_ = std::move(failure);
  }
  void fail(const char* why) { fail(std::make_exception_ptr(std::logic_error(why))); }
  // From the current thread to the scheduler, and back in its turn.
  void give_way() {
    if (_setjmp(fibers_[current_].resume) == 0) _longjmp(scheduler_, 1);
  }

  int lane() const { return static_cast<int>(current_ % kWarpSize); }
  unsigned char* slots() { return warp().slots[warp().barrier.generation % 2]; }

 private:
  static void entry();

  Warp& warp() { return warps_[current_ / kWarpSize]; }

  void start(size_t i, const dim3& size) {
    if (i == fibers_.size()) add_fiber();
    Fiber& fiber = fibers_[i];
    fiber.done = false;
    fiber.index = {static_cast<unsigned>(i % size.x), static_cast<unsigned>(i / size.x % size.y),
                   static_cast<unsigned>(i / size.x / size.y)};
    ++warps_[i / kWarpSize].barrier.members;
  }

  void add_fiber() {
    current_ = fibers_.size();
    fibers_.emplace_back();
    ucontext_t context;
    getcontext(&context);
    context.uc_stack = {stack(current_), 0, kStackBytes};
    makecontext(&context, &Block::entry, 0);
    if (_setjmp(scheduler_) == 0) setcontext(&context);
  }

  // From the scheduler to the current thread.
  void resume() {
    if (_setjmp(scheduler_) == 0) _longjmp(fibers_[current_].resume, 1);
  }
  // Threads that have not come to their end are not continued; the next block has others.
  [[noreturn]] void abandon() {
    fibers_.clear();
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  // Threads no longer wait for one that has ended.
  void leave() {
    fibers_[current_].done = true;
    for (Barrier* barrier : {&warp().barrier, &all_}) {
      --barrier->members;
      barrier->open_if_complete();
    }
  }

  void* stack(size_t i) {
    while (stacks_.size() <= i) {
      void* memory =
          mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) throw std::bad_alloc();
      stacks_.push_back(memory);
    }
    return stacks_[i];
  }

  const std::function<void()>* body_ = nullptr;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::vector<void*> stacks_;
  Barrier all_, groups_[16];
  std::exception_ptr failure_;
  jmp_buf scheduler_;
  size_t current_ = 0, progress_ = 0;
};

Block& block() {
  static auto* instance = new Block;
  return *instance;
}

void Block::entry() {
  Block& block = cuda_emulation::block();
  for (;;) {
    block.give_way();
    try {
      (*block.body_)();
      end_of_thread();
    } catch (...) {
      block.fail(std::current_exception());
    }
    block.leave();
  }
}

}  // namespace

cudaError_t run(const cudaLaunchConfig_t& config, const std::function<void()>& body) {
  const dim3 &grid = config.gridDim, &size = config.blockDim;
  if (size.x * size.y * size.z > 1024 || size.x * size.y * size.z == 0 || grid.x == 0 ||
      grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 || size.z > 64 ||
      config.dynamicSmemBytes > sizeof(tapestry::dynamic_shared_bytes)) {
    return cudaErrorInvalidValue;
  }
  // One device for all threads.
  static std::mutex device;
  const std::lock_guard lock(device);
  gridDim = grid;
  blockDim = size;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        // Shared memory is uninitialised: fill it with a value that is no use.
        std::memset(tapestry::dynamic_shared_bytes, 0x7f, config.dynamicSmemBytes);
        block().run(size, body);
      }
    }
  }
  return cudaSuccess;
}

void block_barrier() { block().block_barrier(); }
void warp_barrier() { block().warp_barrier(); }
int lane() { return block().lane(); }
unsigned char* warp_slots() { return block().slots(); }
int thread() { return block().thread(); }
void give_way() { block().give_way(); }
void note_progress() { block().note_progress(); }
void group_barrier(int number, int members, bool waits) {
  block().group_barrier(number, members, waits);
}

}  // namespace cuda_emulation

cudaError_t cudaMalloc(void** block, size_t bytes) {
  if (posix_memalign(block, 512, bytes) != 0) return cudaErrorMemoryAllocation;
  std::memset(*block, 0x7f, bytes);  // as good as NaN
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = size_t{80} << 30;
  return cudaSuccess;
}
cudaError_t cudaMallocManaged(void** block, size_t bytes) { return cudaMalloc(block, bytes); }
cudaError_t cudaMallocHost(void** block, size_t bytes) { return cudaMalloc(block, bytes); }
cudaError_t cudaFree(void* block) { return std::free(block), cudaSuccess; }
cudaError_t cudaFreeHost(void* block) { return cudaFree(block); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  cuda_emulation::put([=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  cuda_emulation::put([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
