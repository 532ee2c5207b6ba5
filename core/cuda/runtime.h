// The CUDA runtime as the rest of core sees it: no CUDA header, no CUDA type. One process uses one
// GPU and one stream; every call and every kernel is ordered on that stream, so a freed block of
// memory can be reused at once. Defined in core/cuda/runtime.cpp; builds without CUDA use
// core/cuda/absent.cpp, where every call that needs a device throws Error.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/device_runtime.h"
#include "core/memory_pool.h"

namespace tapestry::cuda {

/// True if this build has CUDA.
bool compiled();
/// The number of usable devices; 0 without a GPU or a driver.
int device_count();
/// CUDA's message if no device is usable, else empty.
std::string why_no_device();

/// The process's device: that of the first allocation, 0 before it.
int current_device();

/// Allocates from a MemoryPool of device `index`, aligned to 512 bytes. The first call fixes the
/// process's device: a later call with another index throws Error. Throws Error(kOutOfMemory) with
/// the sizes.
void* allocate(int index, int64_t bytes);
void free(void* block, int64_t bytes) noexcept;
MemoryStats memory();
/// See core/device_runtime.h.
int64_t free_bytes(int index);
/// Workspace that all products of cuBLASLt share, allocated by the first.
inline constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;
void reset_peak_bytes();

/// Copies to the device in stream order. `host` has been read when this returns: the bytes go
/// through pinned buffers.
void upload(void* device, const void* host, int64_t bytes);
/// An asynchronous copy of a few bytes to the host, in stream order. wait() waits only for this
/// copy, not for later work on the stream.
class Download {
 public:
  static constexpr int64_t kMaxBytes = 64;
  /// Throws if `bytes` > kMaxBytes.
  Download(const void* device, int64_t bytes);
  ~Download();
  Download(Download&& other) noexcept;
  Download& operator=(Download&& other) noexcept;
  /// Waits for the copy. Returns it in host memory, valid while this object lives.
  const void* wait() const;

  struct Slot;

 private:
  Slot* slot_;
};

/// Copies to the host and waits for the stream.
void download(void* host, const void* device, int64_t bytes);
void copy(void* to, const void* from, int64_t bytes);
void fill_zero(void* device, int64_t bytes);
void synchronize();

/// Calls body(). The work that it puts on the stream is collected and launched when it returns. If
/// the same kernels came before with the same sizes, it is launched as one CUDA graph; the result
/// is the same. Collecting stops early if body() waits for the stream or makes the first product of
/// a kind. If body() throws, the work collected so far is launched and the exception passed on. No
/// other thread may use the device meanwhile.
void as_graph(const std::function<void()>& body);
GraphStats graph_stats();
ProductStats product_stats();

/// See core/device_runtime.h.
void time_kernels();
std::vector<KernelTime> kernel_times();
void forget_kernel_times();

/// Memory that host and device can both address, for tests.
enum class SharedMemory {
  kManaged,  ///< migrates to the device that uses it
  kPinned,   ///< the host's; the device reaches it over the bus
};
void* allocate_shared(SharedMemory kind, int64_t bytes);
void free_shared(SharedMemory kind, void* block) noexcept;

/// "NVIDIA H200, 132 SMs, compute capability 9.0, 139.8 GiB"
std::string description(int index);

namespace internal {
/// The cudaStream_t of the process, or the one that this thread has chosen (OnStream).
void* stream();
inline thread_local void* other_stream = nullptr;
/// Sorts the free memory, so that the same requests get the same blocks (MemoryPool::sort).
void sort_free_memory();
/// The number of blocks of `threads` threads of a kernel that run on the device at the same time.
int64_t blocks_at_once(const void* kernel, int threads);
/// Throws Error(kRuntime, "[who] ...") with CUDA's message if `status`, a cudaError_t, is not 0.
void check_status(int status, const char* who);
/// Checks a kernel launch; the message gives grid and block.
void check_launch(int status, const char* kernel, const unsigned (&grid)[3],
                  const unsigned (&block)[3], int64_t shared_bytes);
}  // namespace internal

}  // namespace tapestry::cuda
