#include "core/kernels/packed/packed_matrix.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "core/cpu/parallel.h"
#include "core/kernels/packed/quantize.h"

namespace tapestry {
namespace {

constexpr int64_t kPanel = PackedMatrix::kPanel;
constexpr int64_t kGroup = PackedMatrix::kGroup;

// Columns that a register of tiles takes.
constexpr int64_t kReadAtATime = 64;

int64_t groups_of(int64_t cols) { return (cols + kGroup - 1) / kGroup; }

int64_t panel_bytes_of(WeightFormat format, int64_t cols) {
  return format == WeightFormat::kInt8 ? groups_of(cols) * kGroup * kPanel
                                       : cols * kPanel * static_cast<int64_t>(sizeof(float));
}

}  // namespace

PackedMatrix::PackedMatrix(WeightFormat format, int64_t rows, int64_t cols)
    : format_(format),
      rows_(rows),
      cols_(cols),
      panel_bytes_(panel_bytes_of(format, cols)),
      values_(panels() * panel_bytes_ + (is_int8() ? kPanel * kReadAtATime : 0)),
      scales_(is_int8() ? panels() * kPanel : 0),
      sums_(is_int8() ? panels() * kPanel : 0) {
  if (is_int8() && cols > kMostInt8Columns) {
    fail(ErrorKind::kConfig, "[weights] int8 needs matrices of at most ", kMostInt8Columns,
         " columns, got (", rows, ", ", cols, ").");
  }
}

PackedMatrix::PackedMatrix(WeightFormat format, const float* w, int64_t rows, int64_t cols)
    : PackedMatrix(format, rows, cols) {
  parallel_for(panels(), [&](int64_t panel) { pack(w + panel * kPanel * cols, panel); });
}

PackedMatrix::PackedMatrix(WeightFormat format, const PackedMatrix& w)
    : PackedMatrix(format, w.rows(), w.cols()) {
  parallel_for(panels(), [&](int64_t panel) {
    Scratch<float> rows(kPanel * cols_);
    const int64_t first = panel * kPanel, count = std::min(kPanel, rows_ - first);
    for (int64_t r = 0; r < count; ++r) w.read_row(first + r, rows.data() + r * cols_);
    pack(rows.data(), panel);
  });
}

void PackedMatrix::pack(const float* w, int64_t panel) {
  is_int8() ? pack_int8(w, panel) : pack_float32(w, panel);
}

int64_t PackedMatrix::bytes() const {
  const auto row_bytes = static_cast<int64_t>(sizeof(float) + sizeof(int32_t));
  return panels() * (panel_bytes_ + (is_int8() ? kPanel * row_bytes : 0));
}

void PackedMatrix::pack_float32(const float* w, int64_t panel) {
  auto* const out = reinterpret_cast<float*>(values_.data() + panel * panel_bytes_);
  const int64_t first = panel * kPanel, count = std::min(kPanel, rows_ - first);
  if (count < kPanel) std::fill_n(out, cols_ * kPanel, 0.0F);
  // So few columns at a time that their lines of the panel stay in the cache.
  constexpr int64_t kBlock = 16;
  for (int64_t begin = 0; begin < cols_; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, cols_);
    for (int64_t r = 0; r < count; ++r) {
      const float* const row = w + r * cols_;
      for (int64_t k = begin; k < end; ++k) out[k * kPanel + r] = row[k];
    }
  }
}

void PackedMatrix::pack_int8(const float* w, int64_t panel) {
  int8_t* const out = values_.data() + panel * panel_bytes_;
  const int64_t first = panel * kPanel, groups = groups_of(cols_);
  Scratch<uint8_t> row(groups * kGroup);
  std::fill_n(row.data(), groups * kGroup, uint8_t{0});
  for (int64_t r = 0; r < kPanel; ++r) {
    float& scale = scales_[first + r];
    int32_t& sum = sums_[first + r];
    scale = 0, sum = 0;
    if (first + r < rows_) {
      scale = kernels::quantize_row(w + r * cols_, cols_, 0, row.data());
    } else {
      std::fill_n(row.data(), cols_, uint8_t{0});
    }
    for (int64_t k = 0; k < cols_; ++k) sum += static_cast<int8_t>(row[k]);
    for (int64_t g = 0; g < groups; ++g) {
      std::memcpy(out + (g * kPanel + r) * kGroup, row.data() + g * kGroup, kGroup);
    }
  }
}

void PackedMatrix::read_row(int64_t row, float* out) const {
  const int64_t panel = row / kPanel, r = row % kPanel;
  if (!is_int8()) {
    const float* const from = float_panel(panel) + r;
    for (int64_t k = 0; k < cols_; ++k) out[k] = from[k * kPanel];
    return;
  }
  const int8_t* const from = int8_panel(panel) + r * kGroup;
  const float scale = scales_.data()[row];
  for (int64_t k = 0; k < cols_; ++k) {
    out[k] = scale * static_cast<float>(from[k / kGroup * kPanel * kGroup + k % kGroup]);
  }
}

}  // namespace tapestry
