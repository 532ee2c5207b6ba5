// The CUDA runtime as the rest of core sees it: no CUDA header, no CUDA type. One process uses one
// GPU and one stream; every call and every kernel is ordered on that stream, so a block of memory
// may be handed out again as soon as it is given back. Defined in cuda.cpp, and in cuda_absent.cpp
// for builds without CUDA, where every call that needs a device is an Error.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/memory_pool.h"

namespace tapestry::cuda {

/// Whether this build has CUDA.
bool compiled();
/// Devices that answer; 0 without a GPU or a driver.
int device_count();
/// Why none answers, in CUDA's words; empty where one does.
std::string why_no_device();

/// The device that the first allocation settled on; 0 before it.
int current_device();

/// From a MemoryPool over the memory of device `index`, 512-byte aligned. The first call settles
/// the process's device: another index later is an Error. Throws Error(kOutOfMemory) with the
/// sizes.
void* allocate(int index, int64_t bytes);
void free(void* block, int64_t bytes) noexcept;
MemoryStats memory();
void reset_peak_bytes();

/// Host memory is read before this returns (through pinned buffers), the device's in stream order.
void upload(void* device, const void* host, int64_t bytes);
/// A few bytes on their way to the host: taken in stream order, waited for alone. What comes later
/// on the stream goes on meanwhile.
class Download {
 public:
  static constexpr int64_t kMaxBytes = 64;
  /// Throws when there are more than kMaxBytes.
  Download(const void* device, int64_t bytes);
  ~Download();
  Download(Download&& other) noexcept;
  Download& operator=(Download&& other) noexcept;
  /// In host memory, valid while this lives.
  const void* wait() const;

  struct Slot;

 private:
  Slot* slot_;
};

/// Waits for the stream.
void download(void* host, const void* device, int64_t bytes);
void copy(void* to, const void* from, int64_t bytes);
void fill_zero(void* device, int64_t bytes);
void synchronize();

/// May float products round their inputs to TF32 (10 bits of fraction)? Off unless it is asked for.
/// double and BFloat16 do not look at it.
void set_allow_tf32(bool allow);
bool allow_tf32();

/// Calls body(). Where graphs are asked for, what it puts on the stream is collected and launched
/// when it returns: as a CUDA graph once the same kernels have come before on the same sizes, with
/// the same result. A wait for the stream within ends the collecting, and so does a product that is
/// the first of its kind; what body() throws is passed on after all that was collected until then
/// is launched. No other thread may use the device meanwhile.
void as_graph(const std::function<void()>& body);
/// Off unless it is asked for.
void set_use_graphs(bool use);
struct GraphStats {
  int64_t graphs = 0;    ///< made
  int64_t held = 0;      ///< of these, in memory
  int64_t launches = 0;  ///< of graphs
  int64_t updates = 0;   ///< kernels and copies in them that got other arguments
  std::string refusal;   ///< what CUDA said when it last would not make one
};
GraphStats graph_stats();

/// Memory that host and device can both address, for tests.
void* allocate_managed(int64_t bytes);
void free_managed(void* block) noexcept;

/// "NVIDIA H200, 132 SMs, compute capability 9.0, 139.8 GiB"
std::string description(int index);

namespace internal {
/// The cudaStream_t of the process.
void* stream();
/// Same requests then get the same blocks (MemoryPool::sort).
void sort_free_memory();
/// Throws Error(kRuntime, "[who] ...") with CUDA's words for `status`, a cudaError_t, unless it is
/// 0.
void check_status(int status, const char* who);
/// The same for a launch, with its grid and block.
void check_launch(int status, const char* kernel, const unsigned (&grid)[3],
                  const unsigned (&block)[3], int64_t shared_bytes);
}  // namespace internal

}  // namespace tapestry::cuda
