#include "core/precision.h"

#include "core/error.h"

namespace tapestry {

void check_precision(Precision precision, Device device) {
  if (precision == Precision::kTf32 && device.is_cpu()) {
    fail(ErrorKind::kConfig, "[precision] TF32 needs a GPU, the device is ", device, '.');
  }
}

}  // namespace tapestry
