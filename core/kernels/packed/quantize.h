// float32 rows to integers of eight bits, by one scale for each row, and groups to those of four.
#pragma once

#include <cstdint>

namespace tapestry::kernels {

/// x of n numbers, about scale * q: scale = max|x| / 127 and q = x / scale rounded to the nearest
/// integer, ties to even, which is in [-127, 127]. Where max|x| is below 2^-100 the scale and all q
/// are 0. Where x holds a NaN or an infinity the scale is NaN. Writes q ^ flip, so that flip 0x80
/// gives the unsigned bytes q + 128; returns the scale. The same bits on every processor.
float quantize_row(const float* x, int64_t n, uint8_t flip, uint8_t* q);

/// w of n numbers, a group of int4, about scale * (q - 8) with q in [0, 15]. The number that is
/// largest in size becomes -8; then the scale, which is returned, is the one of least squares.
float round_to_int4(const float* w, int64_t n, uint8_t* q);

}  // namespace tapestry::kernels
