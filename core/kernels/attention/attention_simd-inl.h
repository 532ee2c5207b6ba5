// The small matrix products of attention. Operands of a few KiB are packed once and used from the
// cache. The set-up of a general matrix product would cost as much as such a product. Operands in
// bfloat16 are packed as float, so that products know float and double only.
#if defined(TAPESTRY_KERNELS_ATTENTION_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TAPESTRY_KERNELS_ATTENTION_SIMD_INL_H_
#undef TAPESTRY_KERNELS_ATTENTION_SIMD_INL_H_
#else
#define TAPESTRY_KERNELS_ATTENTION_SIMD_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/kernels/attention/attention_common.h"
#include "core/kernels/cpu/simd-inl.h"
#include "core/kernels/cpu/tile_sums_simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

// The accumulators of one tile of a product are kTileRows x kTileVectors registers: 16 of the 32 of
// AVX-512, 8 of the 16 of other targets.
#if HWY_TARGET == HWY_AVX3
constexpr int64_t kTileRows = 8;
#else
constexpr int64_t kTileRows = 4;
#endif
constexpr int64_t kTileVectors = 2;

template <class T>
HWY_INLINE int64_t panel_width() {
  return kTileVectors * lanes_of<T>();
}

HWY_INLINE int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// Rows of one operand packed for use as the right side of a product.
template <class T>
struct Packed {
  T* data;
  int64_t stride;        // between rows
  int64_t panel_stride;  // between column panels of panel_width()
};

// The same for 1 to kTileRows rows.
template <Left kLeft, int kVectors, class T>
HWY_INLINE void panel_product(int64_t rows, int64_t depth, const T* a, int64_t a_stride, const T* b,
                              int64_t b_stride, T* c, int64_t c_stride, bool add) {
  if (rows == kTileRows) {
    return tile_product<kLeft, kTileRows, kVectors>(depth, a, a_stride, b, b_stride, c, c_stride,
                                                    add);
  }
  const int64_t step = kLeft == Left::kTransposed ? 1 : a_stride;
  int64_t r = 0;
  for (; r + 3 < rows; r += 4) {
    tile_product<kLeft, 4, kVectors>(depth, a + r * step, a_stride, b, b_stride, c + r * c_stride,
                                     c_stride, add);
  }
  for (; r + 1 < rows; r += 2) {
    tile_product<kLeft, 2, kVectors>(depth, a + r * step, a_stride, b, b_stride, c + r * c_stride,
                                     c_stride, add);
  }
  if (r < rows) {
    tile_product<kLeft, 1, kVectors>(depth, a + r * step, a_stride, b, b_stride, c + r * c_stride,
                                     c_stride, add);
  }
}

// c (rows, cols) (=|+=) op(a) (rows, depth) * b (depth, cols), rows <= kTileRows; cols, and the
// width of c and b, are rounded up to whole vectors.
template <Left kLeft, class T>
HWY_INLINE void strip_product(int64_t rows, int64_t cols, int64_t depth, const T* a,
                              int64_t a_stride, const Packed<T>& b, T* c, int64_t c_stride,
                              bool add) {
  const int64_t lanes = lanes_of<T>(), width = panel_width<T>();
  int64_t col = 0;
  const T* panel = b.data;
  for (; col + lanes < cols; col += width, panel += b.panel_stride) {
    panel_product<kLeft, 2>(rows, depth, a, a_stride, panel, b.stride, c + col, c_stride, add);
  }
  if (col < cols) {
    panel_product<kLeft, 1>(rows, depth, a, a_stride, panel, b.stride, c + col, c_stride, add);
  }
}

// Copies `count` rows of `size` elements, padded with zeros to whole vectors.
template <class T>
HWY_INLINE void pack_rows(const T* x, int64_t stride, int64_t count, int64_t size,
                          const Packed<Wider<T>>& packed) {
  const Tag<T> d;
  const int64_t lanes = lanes_of<T>();
  for (int64_t r = 0; r < count; ++r) {
    each_vector(d, size, [&](auto io, int64_t i) HWY_ATTR {
      hn::StoreU(io.load(d, x + r * stride + i), d,
                 packed.data + r * packed.stride + i / lanes * lanes);
    });
  }
}

// Packs the transpose: row i of `packed` holds element i of each of the `count` rows, in panels;
// the columns that fill the last panel are zero.
template <class T>
HWY_INLINE void pack_transposed(const T* x, int64_t stride, int64_t count, int64_t size,
                                const Packed<Wider<T>>& packed) {
  using W = Wider<T>;
  const int64_t width = panel_width<T>();
  for (int64_t first = 0; first < count; first += width) {
    W* const panel = packed.data + first / width * packed.panel_stride;
    const int64_t cols = std::min(width, count - first);
    int64_t col = 0;
#if HWY_TARGET != HWY_SCALAR
    constexpr int64_t kBlock = 16 / sizeof(W);
    for (; col + kBlock <= cols; col += kBlock) {
      const T* const rows = x + (first + col) * stride;
      int64_t i = 0;
      for (; i + kBlock <= size; i += kBlock) {
        transpose_block(rows + i, stride, panel + i * packed.stride + col, packed.stride);
      }
      for (; i < size; ++i) {
        for (int64_t c = 0; c < kBlock; ++c)
          panel[i * packed.stride + col + c] = static_cast<W>(rows[c * stride + i]);
      }
    }
#endif
    for (; col < cols; ++col) {
      const T* const row = x + (first + col) * stride;
      for (int64_t i = 0; i < size; ++i) panel[i * packed.stride + col] = static_cast<W>(row[i]);
    }
    for (; col < width; ++col) {
      for (int64_t i = 0; i < size; ++i) panel[i * packed.stride + col] = W{0};
    }
  }
}

// Row-major rows of `size` elements, padded to whole vectors.
template <class T>
HWY_INLINE Packed<T> packed_rows(T* memory, int64_t size) {
  return {memory, round_up(size, lanes_of<T>()), panel_width<T>()};
}
template <class T>
HWY_INLINE int64_t packed_rows_room(int64_t count, int64_t size) {
  return count * round_up(size, lanes_of<T>());
}

// Panels of the transpose, `size` rows each.
template <class T>
HWY_INLINE Packed<T> packed_transpose(T* memory, int64_t size) {
  return {memory, panel_width<T>(), size * panel_width<T>()};
}
template <class T>
HWY_INLINE int64_t packed_transpose_room(int64_t count, int64_t size) {
  return round_up(count, panel_width<T>()) * size;
}

// The left side of a product as it is stored.
template <class T>
struct LeftRows {
  const T* data;
  int64_t stride;
};

// `count` rows for the left side of a product: those in bfloat16 are widened into `memory`.
template <class T>
HWY_INLINE LeftRows<Wider<T>> left_rows(const T* x, int64_t stride, int64_t count, int64_t size,
                                        Wider<T>* memory) {
  if constexpr (std::is_same_v<T, Wider<T>>) {
    return {x, stride};
  } else {
    const Packed<Wider<T>> packed = packed_rows(memory, size);
    pack_rows(x, stride, count, size, packed);
    return {packed.data, packed.stride};
  }
}
template <class T>
HWY_INLINE int64_t left_rows_room(int64_t count, int64_t size) {
  return std::is_same_v<T, Wider<T>> ? 0 : packed_rows_room<T>(count, size);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#endif  // include guard
