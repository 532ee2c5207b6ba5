// Tensor maps tell a GPU of compute capability 9.0 where the boxes of a tensor are that it copies
// to shared memory by itself (TMA; CUDA driver API, "Tensor Map Object Management"). Only core's
// CUDA code includes this file.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tapestry::cuda {

/// bfloat16 elements in up to four dimensions, the first one contiguous.
struct TensorBoxes {
  const void* data = nullptr;         ///< on the device, a multiple of 16
  int64_t sizes[4] = {};              ///< in elements; a 0 counts as 1, which nobody may copy
  int64_t strides[3] = {};            ///< in elements, of dimensions 1 to 3: multiples of 8
  int box_columns = 0, box_rows = 0;  ///< of dimensions 0 and 1; 1 of the others
};

/// Makes a map of boxes; rows of 128, 64 or 32 bytes get the swizzle of that width. Elements of a
/// box outside of the tensor read as 0. A kernel takes the map by value, as `const
/// __grid_constant__`. Throws Error(kRuntime) if the driver has no tensor maps or refuses this one.
CUtensorMap tensor_map(const TensorBoxes& boxes);

}  // namespace tapestry::cuda
