#include "core/cuda/tensor_map.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/cuda/runtime.h"
#include "core/shapes_only.h"

namespace tapestry::cuda {
namespace {

// Looked up by name, so that nothing links to the driver's library.
auto encode_function() {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const auto encode = [] {
    void* function = nullptr;
    auto answer = cudaDriverEntryPointSymbolNotFound;
    constexpr unsigned kSince = 12000;  // the CUDA version that has it
    internal::check_status(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                            kSince, cudaEnableDefault, &answer),
                           "tensor map");
    check(answer == cudaDriverEntryPointSuccess, "tensor map",
          "the driver is older than CUDA 12: it has none.");
    return reinterpret_cast<Encode>(function);
  }();
  return encode;
}

CUtensorMapSwizzle swizzle_of(int row_bytes) {
  switch (row_bytes) {
    case 128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    case 64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case 32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    default:
      fail(ErrorKind::kRuntime, "[tensor map] expected rows of 128, 64 or 32 bytes, got ",
           row_bytes, '.');
  }
}

}  // namespace

CUtensorMap tensor_map(const TensorBoxes& boxes) {
  if (ShapesOnly::is_on()) return {};  // its addresses are no GPU's
  cuuint64_t sizes[4], strides[3];
  for (int i = 0; i < 4; ++i) {
    sizes[i] = static_cast<cuuint64_t>(std::max<int64_t>(boxes.sizes[i], 1));
  }
  for (int i = 0; i < 3; ++i) strides[i] = static_cast<cuuint64_t>(boxes.strides[i]) * 2;
  const cuuint32_t box[] = {static_cast<cuuint32_t>(boxes.box_columns),
                            static_cast<cuuint32_t>(boxes.box_rows), 1, 1};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  CUtensorMap map = {};
  const CUresult status = encode_function()(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<void*>(boxes.data), sizes, strides, box,
      steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(boxes.box_columns * 2),
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(status == CUDA_SUCCESS, "tensor map", "the driver refuses sizes (", sizes[0], ", ",
        sizes[1], ", ", sizes[2], ", ", sizes[3], ") with strides of (", strides[0], ", ",
        strides[1], ", ", strides[2], ") bytes: error ", static_cast<int>(status), '.');
  return map;
}

}  // namespace tapestry::cuda
