#include "core/precision.h"

#include <atomic>

#include "core/error.h"

namespace tapestry {
namespace {

std::atomic<Precision> current{Precision::kFull};

}  // namespace

void set_dense_precision(Precision precision) {
  if (precision == Precision::kBfloat16 && !can_multiply_bfloat16()) {
    fail(ErrorKind::kConfig,
         "[precision] dtype: bfloat16 needs a processor with AVX512-BF16, this one has none; "
         "use dtype: float32.");
  }
  current = precision;
}

Precision dense_precision() { return current; }

bool can_multiply_bfloat16() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512bf16");
}

}  // namespace tapestry
