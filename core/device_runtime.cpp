#include "core/device_runtime.h"

#include "core/cuda/runtime.h"

namespace tapestry {

void synchronize(Device device) {
  if (!device.is_cpu()) cuda::synchronize();
}

int64_t free_gpu_bytes(Device gpu) { return cuda::free_bytes(gpu.index); }
int64_t gpu_workspace_bytes() { return cuda::kWorkspaceBytes; }

void as_graph(Device device, const std::function<void()>& body) {
  device.is_cpu() ? body() : cuda::as_graph(body);
}

GraphStats graph_stats() { return cuda::graph_stats(); }
ProductStats product_stats() { return cuda::product_stats(); }
void time_kernels() { cuda::time_kernels(); }
std::vector<KernelTime> kernel_times() { return cuda::kernel_times(); }
void forget_kernel_times() { cuda::forget_kernel_times(); }

std::string why_no_gpu() { return cuda::compiled() ? cuda::why_no_device() : ""; }

}  // namespace tapestry
