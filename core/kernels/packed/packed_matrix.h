// A matrix of weights in the layout that products with few rows read: packed once, read many times.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/enumerators.h"
#include "core/bfloat16.h"
#include "core/scratch.h"

namespace tapestry {

/// Formats of a model's matrices for inference.
enum class WeightFormat {
  kFloat32,   ///< as trained
  kBFloat16,  ///< rounded to bfloat16: a checkpoint of bfloat16 loses nothing
  kInt8,      ///< integers in [-127, 127] and a scale for each row
  kInt4,      ///< integers in [-8, 7] and a scale for 32 columns of a row
};

/// "float32", "bfloat16", "int8", "int4".
constexpr const char* name_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return "float32";
    case WeightFormat::kBFloat16:
      return "bfloat16";
    case WeightFormat::kInt8:
      return "int8";
    case WeightFormat::kInt4:
      return "int4";
  }
  return nullptr;
}
inline constexpr auto kWeightFormats = enumerators<WeightFormat>();

/// True if products with the format round the rows of x, too.
constexpr bool rounds_rows(WeightFormat format) {
  return format == WeightFormat::kInt8 || format == WeightFormat::kInt4;
}

/// W (N, K) in panels of 32 rows. Rows and columns that do not exist are 0. A panel holds
///   float32   (K, 32): column k of all its rows, then column k + 1
///   bfloat16  (K, 32), the rows in the order of line_place()
///   int8      (K / 4, 32, 4), K rounded up: of each row four columns side by side, as the
///             instructions that multiply bytes take them. What multiplies 64 columns at a time may
///             read beyond a panel, also of the last one.
///   int4      (K / 32) groups, K rounded up: 32 scales in bfloat16, in the order of line_place(),
///             then (4, 32, 4) bytes; byte (p, r, i) holds the columns 8 p + i, in its low half,
///             and 8 p + 4 + i of row r, each + 8.
class PackedMatrix {
 public:
  static constexpr int64_t kPanel = 32;
  static constexpr int64_t kGroup = 4;
  /// Sums of more products of bytes could leave 32 bits.
  static constexpr int64_t kMostInt8Columns = int64_t{1} << 16;
  static constexpr int64_t kInt4Columns = 32;  // of a group
  static constexpr int64_t kInt4Scales = kPanel * sizeof(BFloat16);
  static constexpr int64_t kInt4Group = kInt4Scales + kPanel * kInt4Columns / 2;

  /// Where 32 numbers of bfloat16 hold that of a row: words of 32 bits whose lower halves are the
  /// rows 0 to 15 and whose upper halves are the others, so that a shift or a mask widens them.
  static constexpr int64_t line_place(int64_t row) {
    return row < kPanel / 2 ? 2 * row : 2 * row - kPanel + 1;
  }

  /// Copies w (rows, cols), row-major. Throws Error(kConfig) for int8 with more than
  /// kMostInt8Columns columns.
  PackedMatrix(WeightFormat format, const float* w, int64_t rows, int64_t cols);
  /// Another packed matrix in this format.
  PackedMatrix(WeightFormat format, const PackedMatrix& w);
  /// The given rows of another one, in its format and with its bits.
  PackedMatrix(const PackedMatrix& w, std::span<const int32_t> rows);

  WeightFormat format() const { return format_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t panels() const { return (rows_ + kPanel - 1) / kPanel; }
  /// Bytes of all its memory.
  int64_t bytes() const { return bytes(format_, rows_, cols_); }
  static int64_t bytes(WeightFormat format, int64_t rows, int64_t cols);

  /// W[row], K numbers.
  void read_row(int64_t row, float* out) const;

  /// A panel; T is float, BFloat16, int8_t, or uint8_t for int4.
  template <class T>
  const T* panel(int64_t panel) const {
    return reinterpret_cast<const T*>(values_.data() + panel * panel_bytes_);
  }
  /// For int8, the scale of each row of the panels: W = scale * integer. Then the sum of its
  /// integers.
  const float* scales() const { return scales_.data(); }
  const int32_t* sums() const { return sums_.data(); }

 private:
  PackedMatrix(WeightFormat format, int64_t rows, int64_t cols);
  // `w` holds the rows of the panel.
  void pack(const float* w, int64_t panel);
  template <class T>
  void pack_floats(const float* w, int64_t panel);
  void pack_int8(const float* w, int64_t panel);
  void pack_int4(const float* w, int64_t panel);
  // Row `from` of w becomes row `to` of this.
  void take_row(const PackedMatrix& w, int64_t from, int64_t to);
  bool is_int8() const { return format_ == WeightFormat::kInt8; }

  WeightFormat format_;
  int64_t rows_, cols_, panel_bytes_;
  Scratch<uint8_t> values_;
  Scratch<float> scales_;
  Scratch<int32_t> sums_;
};

}  // namespace tapestry
