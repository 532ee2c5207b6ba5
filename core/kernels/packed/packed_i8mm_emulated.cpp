// The loops of packed_i8mm.cpp on any processor.
#include "core/kernels/cpu/word_vectors.h"
#include "core/kernels/packed/packed_tile.h"

namespace tapestry::kernels {
namespace {

struct Isa : PlainWords {
  static V multiply(V sums, V rows, V columns) {
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) {
        int32_t sum = 0;
        for (int k = 0; k < 8; ++k) sum += byte(rows, 8 * i + k) * byte(columns, 8 * j + k);
        sums[static_cast<size_t>(2 * i + j)] += static_cast<uint32_t>(sum);
      }
    }
    return sums;
  }
  static void one_row(const PackedTile& tile) { packed_int8_plain_tile()(tile); }

 private:
  static int byte(const V& v, int i) {
    int8_t bytes[sizeof v];
    std::memcpy(bytes, v.data(), sizeof v);
    return bytes[i];
  }
};

}  // namespace
}  // namespace tapestry::kernels

#include "core/kernels/packed/packed_pairs-inl.h"

namespace tapestry::kernels {
PackedTileFunction packed_int8_i8mm_emulated_tile() { return multiply_tile; }
}  // namespace tapestry::kernels
