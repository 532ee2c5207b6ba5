// A matrix of weights in the layout that products with few rows read: packed once, read many times.
#pragma once

#include <cstdint>

#include "core/base/enumerators.h"
#include "core/scratch.h"

namespace tapestry {

/// Formats of a model's matrices for inference.
enum class WeightFormat {
  kFloat32,  ///< as trained
  kInt8,     ///< integers in [-127, 127] and a scale for each row
};

/// "float32", "int8".
constexpr const char* name_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return "float32";
    case WeightFormat::kInt8:
      return "int8";
  }
  return nullptr;
}
inline constexpr auto kWeightFormats = enumerators<WeightFormat>();

/// W (N, K) in panels of 32 rows. A float32 panel holds (K, 32): column k of all its rows, then
/// column k + 1. An int8 panel holds (K / 4, 32, 4), K rounded up: of each row four columns side by
/// side, as the instructions that multiply bytes take them. Rows and columns that do not exist are
/// 0. What multiplies 64 columns of int8 at a time may read beyond a panel, also of the last one.
class PackedMatrix {
 public:
  static constexpr int64_t kPanel = 32;
  static constexpr int64_t kGroup = 4;
  /// Sums of more products of bytes could leave 32 bits.
  static constexpr int64_t kMostInt8Columns = int64_t{1} << 16;

  /// Copies w (rows, cols), row-major. Throws Error(kConfig) for int8 with more than
  /// kMostInt8Columns columns.
  PackedMatrix(WeightFormat format, const float* w, int64_t rows, int64_t cols);
  /// Another packed matrix in this format.
  PackedMatrix(WeightFormat format, const PackedMatrix& w);

  WeightFormat format() const { return format_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t panels() const { return (rows_ + kPanel - 1) / kPanel; }
  /// Bytes of all its memory.
  int64_t bytes() const;

  /// W[row], K numbers.
  void read_row(int64_t row, float* out) const;

  const float* float_panel(int64_t panel) const {
    return reinterpret_cast<const float*>(values_.data() + panel * panel_bytes_);
  }
  const int8_t* int8_panel(int64_t panel) const { return values_.data() + panel * panel_bytes_; }
  /// For int8, the scale of each row of the panels: W = scale * integer. Then the sum of its
  /// integers.
  const float* scales() const { return scales_.data(); }
  const int32_t* sums() const { return sums_.data(); }

 private:
  PackedMatrix(WeightFormat format, int64_t rows, int64_t cols);
  // `w` holds the rows of the panel.
  void pack(const float* w, int64_t panel);
  void pack_float32(const float* w, int64_t panel);
  void pack_int8(const float* w, int64_t panel);
  bool is_int8() const { return format_ == WeightFormat::kInt8; }

  WeightFormat format_;
  int64_t rows_, cols_, panel_bytes_;
  Scratch<int8_t> values_;
  Scratch<float> scales_;
  Scratch<int32_t> sums_;
};

}  // namespace tapestry
