#include "core/cpu/portable_bits.h"

#include <atomic>

#include "core/base/error.h"
#include "core/cpu/vector_target.h"

namespace tapestry {
namespace {

std::atomic<bool> chosen = false;

}  // namespace

void choose_portable_bits() {
  const std::string why = why_no_portable_bits();
  check(why.empty(), "deterministic", why);
  chosen = true;
}

void choose_machine_bits() { chosen = false; }

bool has_portable_bits() { return chosen; }

std::string why_no_portable_bits() {
  const std::string vectors = vector_target();
  if (vectors.starts_with("AVX") || vectors.starts_with("NEON")) return "";
  return concat("portable needs fused multiply-add (AVX2, AVX-512 or NEON); these kernels use ",
                vectors, '.');
}

}  // namespace tapestry
