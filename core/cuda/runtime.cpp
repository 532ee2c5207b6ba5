#include "core/cuda/runtime.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/cuda/graph.h"
#include "core/shapes_only.h"

namespace tapestry::cuda {
namespace {

using internal::check_status;

cudaStream_t the_stream() { return static_cast<cudaStream_t>(internal::stream()); }

void* take(int64_t block_bytes) {
  void* block = nullptr;
  const cudaError_t status = cudaMalloc(&block, static_cast<size_t>(block_bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // so that no later launch reports it
    return nullptr;
  }
  check_status(status, "allocator");
  return block;
}

void give_back(void* block, int64_t) {
  internal::stop_collecting();  // collected work may use it
  cudaFree(block);
}

// Never destroyed: tensors in static storage may outlive any static pool.
MemoryPool& pool() {
  static auto* instance = new MemoryPool({"GPU", take, give_back, nullptr, nullptr});
  return *instance;
}

// Pinned buffers, used in turn: one is filled while earlier ones are copied to the device. A step
// has fewer uploads than there are buffers, so that none waits for the previous step.
class UploadBuffers {
 public:
  void upload(void* device, const void* host, int64_t bytes) {
    std::lock_guard lock(mutex_);
    for (int64_t done = 0; done < bytes; done += kBytes) {
      const int64_t part = std::min(bytes - done, kBytes);
      Buffer& buffer = buffers_[next_ = (next_ + 1) % kBuffers];
      prepare(buffer);
      std::memcpy(buffer.pinned, static_cast<const char*>(host) + done, static_cast<size_t>(part));
      internal::Copy(static_cast<char*>(device) + done, buffer.pinned, part, cudaMemcpyHostToDevice)
          .issue();
      check_status(cudaEventRecord(buffer.sent, the_stream()), "upload");
    }
  }

 private:
  static constexpr int64_t kBytes = int64_t{1} << 20;
  static constexpr size_t kBuffers = 16;
  struct Buffer {
    void* pinned = nullptr;
    cudaEvent_t sent{};
  };

  // Allocates the buffer, or waits until its last content has been sent.
  static void prepare(Buffer& buffer) {
    if (buffer.pinned != nullptr) return check_status(cudaEventSynchronize(buffer.sent), "upload");
    check_status(cudaMallocHost(&buffer.pinned, kBytes), "upload");
    check_status(cudaEventCreateWithFlags(&buffer.sent, cudaEventDisableTiming), "upload");
  }

  std::mutex mutex_;
  Buffer buffers_[kBuffers];
  size_t next_ = 0;
};

std::atomic<int> settled_device{0};

void use_device(int index) {
  static const int first = [index] {
    check_status(cudaSetDevice(index), "device");
    return settled_device = index;
  }();
  check(index == first, "device", "this process uses cuda:", first, ", not cuda:", index, '.');
  static thread_local bool chosen = false;  // CUDA's current device is per thread
  if (!chosen) check_status(cudaSetDevice(index), "device");
  chosen = true;
}

}  // namespace

bool compiled() { return true; }

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::string why_no_device() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) return cudaGetErrorString(status);
  return count == 0 ? "there is no device" : "";
}

int current_device() { return settled_device; }

void* allocate(int index, int64_t bytes) {
  use_device(index);
  return ShapesOnly::is_on() ? tapestry::internal::allocate_device_shape(bytes)
                             : pool().allocate(bytes);
}
void free(void* block, int64_t bytes) noexcept {
  if (block == nullptr || tapestry::internal::free_device_shape(block, bytes)) return;
  pool().free(block, bytes);
}
MemoryStats memory() { return pool().stats(); }

int64_t free_bytes(int index) {
  use_device(index);
  size_t free = 0, total = 0;
  check_status(cudaMemGetInfo(&free, &total), "device");
  const MemoryStats own = memory();
  return static_cast<int64_t>(free) + own.bytes_reserved - own.bytes_in_use;
}
void reset_peak_bytes() { pool().reset_peak(); }

void upload(void* device, const void* host, int64_t bytes) {
  if (bytes == 0 || ShapesOnly::is_on()) return;
  if (internal::collecting != nullptr) {
    if (const void* pinned = internal::stage(host, bytes)) {
      return internal::put_on_stream(internal::Copy(device, pinned, bytes, cudaMemcpyHostToDevice));
    }
    internal::stop_collecting();
  }
  static auto* buffers = new UploadBuffers;  // never destroyed, as the pool
  buffers->upload(device, host, bytes);
}

void download(void* host, const void* device, int64_t bytes) {
  if (bytes == 0 || !ShapesOnly::has_memory(bytes)) return;
  if (ShapesOnly::is_on()) {
    std::memset(host, 0, static_cast<size_t>(bytes));
    return;
  }
  internal::stop_collecting();
  check_status(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                               the_stream()),
               "download");
  synchronize();
}

// Pinned memory and an event; used again and again.
struct Download::Slot {
  void* pinned = nullptr;
  cudaEvent_t arrived{};
};

namespace {

// Never destroyed, as the pool.
struct FreeSlots {
  std::mutex mutex;
  std::vector<Download::Slot*> slots;
};
FreeSlots& free_slots() {
  static auto* instance = new FreeSlots;
  return *instance;
}

Download::Slot* take_slot() {
  auto& [mutex, slots] = free_slots();
  std::lock_guard lock(mutex);
  if (slots.empty()) {
    auto* slot = new Download::Slot;
    check_status(cudaMallocHost(&slot->pinned, Download::kMaxBytes), "download");
    check_status(cudaEventCreateWithFlags(&slot->arrived, cudaEventDisableTiming), "download");
    slots.push_back(slot);
  }
  Download::Slot* const slot = slots.back();
  slots.pop_back();
  return slot;
}

}  // namespace

Download::Download(const void* device, int64_t bytes)
    : slot_(ShapesOnly::is_on() ? nullptr : take_slot()) {
  check(bytes <= kMaxBytes, "download", "expected at most ", kMaxBytes, " bytes, got ", bytes, '.');
  if (slot_ == nullptr) return;
  internal::stop_collecting();
  check_status(cudaMemcpyAsync(slot_->pinned, device, static_cast<size_t>(bytes),
                               cudaMemcpyDeviceToHost, the_stream()),
               "download");
  check_status(cudaEventRecord(slot_->arrived, the_stream()), "download");
}

Download::Download(Download&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
Download& Download::operator=(Download&& other) noexcept {
  std::swap(slot_, other.slot_);
  return *this;
}

// The copy may still run if nobody waited for it. Its slot is reused only after that.
Download::~Download() {
  if (slot_ == nullptr) return;
  cudaEventSynchronize(slot_->arrived);
  auto& [mutex, slots] = free_slots();
  std::lock_guard lock(mutex);
  slots.push_back(slot_);
}

const void* Download::wait() const {
  alignas(kMaxBytes) static constexpr char kZeros[kMaxBytes] = {};
  if (slot_ == nullptr) return kZeros;  // of a dry run
  check_status(cudaEventSynchronize(slot_->arrived), "download");
  return slot_->pinned;
}

void copy(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  internal::put_on_stream(internal::Copy(to, from, bytes, cudaMemcpyDeviceToDevice));
}

void fill_zero(void* device, int64_t bytes) {
  if (bytes == 0) return;
  internal::put_on_stream(internal::FillZero(device, bytes));
}

void synchronize() {
  if (ShapesOnly::is_on()) return;
  internal::stop_collecting();
  check_status(cudaStreamSynchronize(the_stream()), "synchronize");
}

void* allocate_shared(SharedMemory kind, int64_t bytes) {
  void* block = nullptr;
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  check_status(kind == SharedMemory::kManaged ? cudaMallocManaged(&block, size)
                                              : cudaMallocHost(&block, size),
               "allocator");
  return block;
}
void free_shared(SharedMemory kind, void* block) noexcept {
  kind == SharedMemory::kManaged ? cudaFree(block) : cudaFreeHost(block);
}

std::string description(int index) {
  cudaDeviceProp properties;
  check_status(cudaGetDeviceProperties(&properties, index), "device");
  const double gib = static_cast<double>(properties.totalGlobalMem) / (int64_t{1} << 30);
  return concat(properties.name, ", ", properties.multiProcessorCount, " SMs, compute capability ",
                properties.major, '.', properties.minor, ", ", std::lround(gib * 10) / 10.0,
                " GiB");
}

namespace internal {

void* stream() {
  if (other_stream != nullptr) return other_stream;
  // The legacy default stream cannot be captured into a graph.
  static const cudaStream_t stream = [] {
    cudaStream_t created = nullptr;
    check_status(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking), "device");
    return created;
  }();
  return stream;
}

void sort_free_memory() { pool().sort(); }

int64_t blocks_at_once(const void* kernel, int threads) {
  static const int processors = [] {
    cudaDeviceProp properties;
    check_status(cudaGetDeviceProperties(&properties, current_device()), "device");
    return properties.multiProcessorCount;
  }();
  // Asked at each launch, so the driver is asked once.
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, int> known;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.try_emplace({kernel, threads}, 0);
  int& blocks = entry->second;
  if (is_new) {
    check_status(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0),
                 "device");
  }
  return int64_t{processors} * std::max(blocks, 1);
}

void check_status(int status, const char* who) {
  const auto error = static_cast<cudaError_t>(status);
  check(error == cudaSuccess, who, "CUDA says ", cudaGetErrorName(error), ": ",
        cudaGetErrorString(error), '.');
}

void check_launch(int status, const char* kernel, const unsigned (&grid)[3],
                  const unsigned (&block)[3], int64_t shared_bytes) {
  const auto error = static_cast<cudaError_t>(status);
  check(error == cudaSuccess, kernel, "the launch of (", grid[0], ", ", grid[1], ", ", grid[2],
        ") blocks of (", block[0], ", ", block[1], ", ", block[2], ") threads with ", shared_bytes,
        " bytes of shared memory failed: ", cudaGetErrorName(error), ": ",
        cudaGetErrorString(error), '.');
}

}  // namespace internal
}  // namespace tapestry::cuda
