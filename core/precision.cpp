#include "core/precision.h"

#include "core/base/error.h"

namespace tapestry {

std::string why_no_bf16x3(Bfloat16Kernel kernel) {
  if (kernel == Bfloat16Kernel::kAmx || kernel == Bfloat16Kernel::kAmxEmulated) return "";
  const std::string has =
      concat("needs a processor with AMX; this one multiplies bfloat16 on ", name_of(kernel));
  return kernel == Bfloat16Kernel::kAvx512
             ? has + ", where three products take longer than one of float32."
             : has + '.';
}

void check_precision(Precision precision, Device device) {
  if (precision == Precision::kTf32 && device.is_cpu()) {
    fail(ErrorKind::kConfig, "[precision] TF32 needs a GPU, the device is ", device, '.');
  }
  if (precision != Precision::kBf16x3) return;
  if (!device.is_cpu()) {
    fail(ErrorKind::kConfig, "[precision] bf16x3 needs a CPU, the device is ", device, '.');
  }
  const std::string why = why_no_bf16x3(bfloat16_kernel());
  if (!why.empty()) fail(ErrorKind::kConfig, "[precision] bf16x3 ", why);
}

}  // namespace tapestry
