// For ARM64's processors with FEAT_I8MM: Neoverse V1, N2 and later, Apple's from M2 on.
#ifdef __aarch64__
#include <arm_neon.h>

#include "core/kernels/cpu/word_vectors.h"
#include "core/kernels/packed/packed_tile.h"
#include "core/scratch.h"
#include "hwy/base.h"

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+dotprod+i8mm")
namespace tapestry::kernels {
namespace {

struct Isa : NeonWords {
  static V multiply(V sums, V rows, V columns) {
    return vreinterpretq_u32_s32(vmmlaq_s32(vreinterpretq_s32_u32(sums), vreinterpretq_s8_u32(rows),
                                            vreinterpretq_s8_u32(columns)));
  }
  static void one_row(const PackedTile& tile) { packed_int8_dotprod_tile()(tile); }
};

}  // namespace
}  // namespace tapestry::kernels

#include "core/kernels/packed/packed_pairs-inl.h"

namespace tapestry::kernels {
PackedTileFunction packed_int8_i8mm_tile() { return multiply_tile; }
}  // namespace tapestry::kernels
HWY_POP_ATTRIBUTES
#else
#include "core/kernels/packed/packed_tile.h"

namespace tapestry::kernels {
PackedTileFunction packed_int8_i8mm_tile() { return nullptr; }
}  // namespace tapestry::kernels
#endif
