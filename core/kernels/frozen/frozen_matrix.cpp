#include "core/kernels/frozen/frozen_matrix.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/base/error.h"
#include "core/kernels/frozen/frozen_rows.h"
#include "core/kernels/packed/quantize.h"
#include "core/scratch.h"

namespace tapestry {
namespace {

constexpr int64_t kGroup = FrozenMatrix::kGroup;
constexpr int64_t kWord = sizeof(int32_t);

int64_t groups_of(int64_t cols) { return (cols + kGroup - 1) / kGroup; }

int64_t bytes_in_row(WeightFormat format, int64_t cols) {
  switch (format) {
    case WeightFormat::kBFloat16:
      return cols * static_cast<int64_t>(sizeof(BFloat16));
    case WeightFormat::kInt8:
      return static_cast<int64_t>(sizeof(float)) + cols;
    case WeightFormat::kInt4:
      return groups_of(cols) * (kGroup / 2 + static_cast<int64_t>(sizeof(BFloat16)));
    case WeightFormat::kFloat32:
      break;
  }
  fail(ErrorKind::kConfig, "[weights] a frozen matrix is bfloat16, int8 or int4, got ",
       name_of(format), '.');
}

void store_int4(const float* w, int64_t cols, uint8_t* out) {
  const int64_t groups = groups_of(cols);
  auto* const scales = reinterpret_cast<BFloat16*>(out + groups * kGroup / 2);
  for (int64_t g = 0; g < groups; ++g, out += kGroup / 2) {
    uint8_t q[kGroup];
    std::fill_n(q, kGroup, uint8_t{8});
    const int64_t begin = g * kGroup;
    scales[g] = BFloat16(kernels::round_to_int4(w + begin, std::min(kGroup, cols - begin), q));
    for (int64_t i = 0; i < kGroup / 2; ++i) {
      out[i] = static_cast<uint8_t>(q[i] | q[kGroup / 2 + i] << 4);
    }
  }
}

}  // namespace

int64_t FrozenMatrix::words_in_row(WeightFormat format, int64_t cols) {
  return (bytes_in_row(format, cols) + kWord - 1) / kWord;
}

FrozenMatrix::FrozenMatrix(WeightFormat format, int64_t rows, int64_t cols)
    : format_(format),
      cols_(cols),
      row_bytes_(words_in_row(format, cols) * kWord),
      words_(Tensor::zeros({rows, words_in_row(format, cols)}, DType::kInt32)) {}

void FrozenMatrix::store(int64_t first, int64_t count, const float* w) const {
  for (int64_t i = 0; i < count; ++i, w += cols_) {
    uint8_t* const out = static_cast<uint8_t*>(words_.raw()) + (first + i) * row_bytes_;
    switch (format_) {
      case WeightFormat::kBFloat16:
        for (int64_t k = 0; k < cols_; ++k) reinterpret_cast<BFloat16*>(out)[k] = BFloat16(w[k]);
        break;
      case WeightFormat::kInt8: {
        const float scale = kernels::quantize_row(w, cols_, 0, out + sizeof(float));
        std::memcpy(out, &scale, sizeof scale);
        break;
      }
      case WeightFormat::kInt4:
        store_int4(w, cols_, out);
        break;
      case WeightFormat::kFloat32:
        break;
    }
  }
}

template <class T>
void FrozenMatrix::read(kernels::Range rows, kernels::Range cols, T* out, int64_t stride) const {
  if constexpr (std::is_same_v<T, double>) {
    Scratch<float> row(cols.size());
    for (int64_t i = rows.begin; i < rows.end; ++i, out += stride) {
      read<float>({i, i + 1}, cols, row.data(), cols.size());
      std::copy_n(row.data(), cols.size(), out);
    }
  } else {
    const auto read_row = frozen_rows_functions<T>().of(format_);
    const auto* from = static_cast<const uint8_t*>(words_.raw()) + rows.begin * row_bytes_;
    for (int64_t i = rows.begin; i < rows.end; ++i, from += row_bytes_, out += stride) {
      read_row(from, cols_, cols.begin, cols.end, out);
    }
  }
}

template void FrozenMatrix::read(kernels::Range, kernels::Range, float*, int64_t) const;
template void FrozenMatrix::read(kernels::Range, kernels::Range, double*, int64_t) const;
template void FrozenMatrix::read(kernels::Range, kernels::Range, BFloat16*, int64_t) const;

}  // namespace tapestry
