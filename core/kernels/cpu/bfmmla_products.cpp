// For ARM64's processors with FEAT_BF16: Neoverse V1, N2 and later, Apple's from M2 on. The
// architecture defines each bit that BFMMLA gives: EmulatedSquares has them, too.
#include "core/kernels/cpu/tile_units.h"

#ifdef __aarch64__
#include <arm_neon.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/kernels/cpu/word_vectors.h"
#include "hwy/base.h"

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+bf16")
namespace tapestry::kernels {
namespace {

struct Isa : NeonWords {
  static V multiply(V sums, V rows, V columns) {
    return vreinterpretq_u32_f32(vbfmmlaq_f32(vreinterpretq_f32_u32(sums),
                                              vreinterpretq_bf16_u32(rows),
                                              vreinterpretq_bf16_u32(columns)));
  }
};

}  // namespace
}  // namespace tapestry::kernels

#include "core/kernels/cpu/square_products-inl.h"

namespace tapestry::kernels {
void SquareProducts::multiply_block(const TileBlock& block, float* c, int64_t ldc, bool add) {
  multiply_squares(block, c, ldc, add);
}
}  // namespace tapestry::kernels
HWY_POP_ATTRIBUTES
#else
#include "core/base/error.h"

namespace tapestry::kernels {
void SquareProducts::multiply_block(const TileBlock&, float*, int64_t, bool) {
  check(false, "products", "this processor has no BFMMLA.");
}
}  // namespace tapestry::kernels
#endif
