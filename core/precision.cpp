#include "core/precision.h"

#include "core/bfloat16_kernel.h"
#include "core/error.h"

namespace tapestry {

void check_precision(Precision precision, Device device) {
  if (precision == Precision::kFull || (precision == Precision::kTf32 && !device.is_cpu())) return;
  if (precision == Precision::kTf32) {
    fail(ErrorKind::kConfig, "[precision] TF32 needs a GPU, the device is ", device, '.');
  }
  if (!device.is_cpu()) {
    fail(ErrorKind::kConfig,
         "[precision] on a GPU mixed precision means bfloat16 tensors; float32 tensors on ", device,
         " cannot be multiplied as bfloat16.");
  }
  if (!can_multiply_bfloat16()) {
    fail(ErrorKind::kConfig,
         "[precision] dtype: bfloat16 needs a processor with AVX512-BF16, this one has none; "
         "use dtype: float32.");
  }
}

bool can_multiply_bfloat16() { return bfloat16_kernel() != Bfloat16Kernel::kNone; }

}  // namespace tapestry
