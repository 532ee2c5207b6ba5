#include "core/cuda/hopper.h"

#include <warpgroup_mma.h>

#include <future>

#include "core/kernels/cuda/common.cuh"

namespace tapestry::cuda {
namespace {

// The driver takes the most specific code of the build that fits the GPU; the code reports which.
__global__ void tell_warpgroup_products(int* answer) { *answer = kHasWgmma ? 1 : 0; }

}  // namespace

bool has_warpgroup_products() {
  const auto ask = [] {
    DeviceScratch<int> answer(1);
    launch({.kernel = "warpgroup products?", .grid = 1, .block = 1}, tell_warpgroup_products,
           answer.data());
    int on_host = 0;
    download(&on_host, answer.data(), sizeof(int));
    return on_host == 1;
  };
  // Runs on a thread of its own: a dry run makes this thread's GPU answer 0.
  static const bool has = std::async(std::launch::async, ask).get();
  return has;
}

}  // namespace tapestry::cuda
