// Whether the CPU's kernels give the same bits on every processor with fused multiply-add.
#pragma once

#include <string>

namespace tapestry {

/// Portable bits: products of float32 add along k in ascending order
/// (kernels/cpu/ordered_product.h) instead of as OpenBLAS's kernels for this processor do, bfloat16
/// is multiplied as float32, and no size is cut as a kind of processor likes it. Sums along rows
/// have one order on all of them anyway. Of this process: once on, it stays on. To be called before
/// the first kernel whose bits matter. Throws Error(kConfig) with why_no_portable_bits().
void choose_portable_bits();
/// Back to the bits of the machine, for tests.
void choose_machine_bits();
bool has_portable_bits();

/// Why this processor cannot give them: it, or TAPESTRY_VECTORS, has no fused multiply-add. Empty:
/// it can.
std::string why_no_portable_bits();

}  // namespace tapestry
