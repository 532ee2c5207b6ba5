#include "core/base/error.h"
#include "core/cuda/runtime.h"

namespace tapestry::cuda {
namespace {
[[noreturn]] void absent() { fail(ErrorKind::kRuntime, "[cuda] this build has no CUDA."); }
}  // namespace

bool compiled() { return false; }
int device_count() { return 0; }
std::string why_no_device() { return "this build has no CUDA"; }
int current_device() { return 0; }
void* allocate(int, int64_t) { absent(); }
void free(void*, int64_t) noexcept {}
MemoryStats memory() { return {}; }
void reset_peak_bytes() {}
int64_t free_bytes(int) { absent(); }
void upload(void*, const void*, int64_t) { absent(); }
Download::Download(const void*, int64_t) : slot_(nullptr) { absent(); }
Download::~Download() = default;
Download::Download(Download&&) noexcept : slot_(nullptr) {}
Download& Download::operator=(Download&&) noexcept { return *this; }
const void* Download::wait() const { absent(); }
void download(void*, const void*, int64_t) { absent(); }
void copy(void*, const void*, int64_t) { absent(); }
void fill_zero(void*, int64_t) { absent(); }
void synchronize() { absent(); }
void as_graph(const std::function<void()>& body) { body(); }
GraphStats graph_stats() { return {}; }
ProductStats product_stats() { return {}; }
void time_kernels() {}
std::vector<KernelTime> kernel_times() { return {}; }
void forget_kernel_times() {}
void* allocate_shared(SharedMemory, int64_t) { absent(); }
void free_shared(SharedMemory, void*) noexcept {}
std::string description(int) { absent(); }

}  // namespace tapestry::cuda
