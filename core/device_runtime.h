// What a program asks of the device that it trains on, whatever its kind.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/device.h"

namespace tapestry {

/// Waits until `device` has done all that it was given. A CPU always has.
void synchronize(Device device);

/// Bytes that this process may still take of a GPU: what nobody has, and what its allocator keeps
/// unused.
int64_t free_gpu_bytes(Device gpu);
/// Bytes that all products on a GPU share, from the first one on.
int64_t gpu_workspace_bytes();

/// Calls body(). On a GPU the work that body() gives it is launched as one CUDA graph where it can
/// be, with the same result (core/cuda/runtime.h).
void as_graph(Device device, const std::function<void()>& body);

struct GraphStats {
  int64_t graphs = 0;    ///< graphs made
  int64_t held = 0;      ///< graphs in memory now
  int64_t launches = 0;  ///< launches of graphs
  int64_t updates = 0;   ///< kernels and copies in graphs that got new arguments
  std::string refusal;   ///< CUDA's message when it last refused to make a graph
};
/// Of this process. All 0 without a GPU.
GraphStats graph_stats();

/// What cuBLASLt did not do as it was asked. Another way was taken each time.
struct ProductStats {
  int64_t without_algorithm = 0;  ///< kinds of products that it has no algorithm for
  int64_t refused = 0;            ///< kinds that it refused after all
  std::string refusal;            ///< the first of those, and what it said
};
/// Of this process. All 0 without a GPU.
ProductStats product_stats();

struct KernelTime {
  std::string name;
  int64_t launches = 0;
  double milliseconds = 0;
};
/// From now on, measures how long the kernels, products, copies and fills of a GPU take, each by
/// itself. Meanwhile as_graph() makes no graphs. The events take time, too.
void time_kernels();
/// What was measured since time_kernels(), or the last forget_kernel_times(), by name, the most
/// time first. Waits for the GPU. Empty without time_kernels() and without a GPU.
std::vector<KernelTime> kernel_times();
void forget_kernel_times();

/// Why no GPU answers in a build with CUDA, in CUDA's words. Empty where one does, and in builds
/// without CUDA.
std::string why_no_gpu();

}  // namespace tapestry
