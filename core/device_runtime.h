// Questions and commands for the device that a program trains on, of either kind.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/device.h"

namespace tapestry {

/// Waits until `device` has done all that it was given. A CPU always has.
void synchronize(Device device);

/// GPU memory that this process may still take, in bytes: free memory and what its allocator keeps
/// unused.
int64_t free_gpu_bytes(Device gpu);
/// Bytes that all products on a GPU share, from the first one on.
int64_t gpu_workspace_bytes();

/// Calls body(). On a GPU its work is launched as one CUDA graph if possible, with the same result
/// (core/cuda/runtime.h).
void as_graph(Device device, const std::function<void()>& body);

struct GraphStats {
  int64_t graphs = 0;    ///< graphs made
  int64_t held = 0;      ///< graphs in memory now
  int64_t launches = 0;  ///< launches of graphs
  int64_t updates = 0;   ///< kernels and copies in graphs that got new arguments
  std::string refusal;   ///< CUDA's message when it last refused to make a graph
};
/// Counts of this process. All 0 without a GPU.
GraphStats graph_stats();

/// Requests that cuBLASLt refused. Another way was taken each time.
struct ProductStats {
  int64_t without_algorithm = 0;  ///< kinds of products that it has no algorithm for
  int64_t refused = 0;            ///< kinds that it refused after all
  std::string refusal;            ///< the first refused request, and the library's answer
};
/// Counts of this process. All 0 without a GPU.
ProductStats product_stats();

struct KernelTime {
  std::string name;
  int64_t launches = 0;
  double milliseconds = 0;
};
/// Starts to measure each kernel, product, copy and fill of a GPU. as_graph() makes no graphs from
/// then on. The events take time, too.
void time_kernels();
/// Times since time_kernels() or the last forget_kernel_times(), by name, longest first. Waits for
/// the GPU. Empty without time_kernels() and without a GPU.
std::vector<KernelTime> kernel_times();
void forget_kernel_times();

/// CUDA's reason why no GPU answers in a build with CUDA. Empty if one does, and in builds without
/// CUDA.
std::string why_no_gpu();

}  // namespace tapestry
