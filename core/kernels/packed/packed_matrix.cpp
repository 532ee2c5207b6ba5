#include "core/kernels/packed/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/base/error.h"
#include "core/cpu/parallel.h"
#include "core/kernels/packed/quantize.h"

namespace tapestry {
namespace {

constexpr int64_t kPanel = PackedMatrix::kPanel;
constexpr int64_t kGroup = PackedMatrix::kGroup;
constexpr int64_t kInt4Columns = PackedMatrix::kInt4Columns;
// Columns that a register of tiles takes.
constexpr int64_t kReadAtATime = 64;

int64_t groups_of(int64_t cols, int64_t group = kGroup) { return (cols + group - 1) / group; }

int64_t panel_bytes_of(WeightFormat format, int64_t cols) {
  switch (format) {
    case WeightFormat::kFloat32:
      return cols * kPanel * static_cast<int64_t>(sizeof(float));
    case WeightFormat::kBFloat16:
      return cols * kPanel * static_cast<int64_t>(sizeof(BFloat16));
    case WeightFormat::kInt8:
      return groups_of(cols) * kGroup * kPanel;
    case WeightFormat::kInt4:
      return groups_of(cols, kInt4Columns) * PackedMatrix::kInt4Group;
  }
  return 0;
}

template <class T>
int64_t place_of(int64_t row) {
  return std::is_same_v<T, float> ? row : PackedMatrix::line_place(row);
}

// Where a group of int4 holds column k of row r.
int64_t int4_byte(int64_t r, int64_t k) {
  return PackedMatrix::kInt4Scales + (k / 8 * kPanel + r) * 4 + k % 4;
}
int int4_shift(int64_t k) { return k % 8 < 4 ? 0 : 4; }

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

PackedMatrix::PackedMatrix(const PackedMatrix& w, std::span<const int32_t> rows)
    : PackedMatrix(w.format(), std::ssize(rows), w.cols()) {
  parallel_for(panels(), [&](int64_t panel) {
    const int64_t first = panel * kPanel, end = std::min(first + kPanel, rows_);
    // Rows that do not exist are never read out, but must be numbers.
    if (end - first < kPanel) {
      std::fill_n(values_.data() + panel * panel_bytes_, panel_bytes_, uint8_t{0});
      if (is_int8()) {
        std::fill(scales_.data() + end, scales_.data() + first + kPanel, 0.0F);
        std::fill(sums_.data() + end, sums_.data() + first + kPanel, 0);
      }
    }
    for (int64_t r = first; r < end; ++r) take_row(w, rows[static_cast<size_t>(r)], r);
  });
}

void PackedMatrix::pack(const float* w, int64_t panel) {
  switch (format_) {
    case WeightFormat::kFloat32:
      return pack_floats<float>(w, panel);
    case WeightFormat::kBFloat16:
      return pack_floats<BFloat16>(w, panel);
    case WeightFormat::kInt8:
      return pack_int8(w, panel);
    case WeightFormat::kInt4:
      return pack_int4(w, panel);
  }
}

int64_t PackedMatrix::bytes(WeightFormat format, int64_t rows, int64_t cols) {
  const auto row_bytes = static_cast<int64_t>(sizeof(float) + sizeof(int32_t));
  return groups_of(rows, kPanel) *
         (panel_bytes_of(format, cols) + (format == WeightFormat::kInt8 ? kPanel * row_bytes : 0));
}

template <class T>
void PackedMatrix::pack_floats(const float* w, int64_t panel) {
  auto* const out = reinterpret_cast<T*>(values_.data() + panel * panel_bytes_);
  const int64_t first = panel * kPanel, count = std::min(kPanel, rows_ - first);
  if (count < kPanel) std::fill_n(out, cols_ * kPanel, T());
  // So few columns at a time that their lines of the panel stay in the cache.
  constexpr int64_t kBlock = 16;
  for (int64_t begin = 0; begin < cols_; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, cols_);
    for (int64_t r = 0; r < count; ++r) {
      const float* const row = w + r * cols_;
      T* const column = out + place_of<T>(r);
      for (int64_t k = begin; k < end; ++k) column[k * kPanel] = T(row[k]);
    }
  }
}

void PackedMatrix::pack_int8(const float* w, int64_t panel) {
  uint8_t* const out = values_.data() + panel * panel_bytes_;
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

void PackedMatrix::pack_int4(const float* w, int64_t panel) {
  const int64_t rows = std::min(kPanel, rows_ - panel * kPanel);
  uint8_t* group = values_.data() + panel * panel_bytes_;
  for (int64_t begin = 0; begin < cols_; begin += kInt4Columns, group += kInt4Group) {
    std::fill_n(group, kInt4Scales, uint8_t{0});
    std::fill_n(group + kInt4Scales, kInt4Group - kInt4Scales, uint8_t{0x88});
    const int64_t count = std::min(kInt4Columns, cols_ - begin);
    for (int64_t r = 0; r < rows; ++r) {
      uint8_t q[kInt4Columns];
      const BFloat16 scale(kernels::round_to_int4(w + r * cols_ + begin, count, q));
      reinterpret_cast<BFloat16*>(group)[line_place(r)] = scale;
      for (int64_t k = 0; k < count; ++k) {
        const int shift = int4_shift(k);
        uint8_t& byte = group[int4_byte(r, k)];
        byte = static_cast<uint8_t>((byte & (0xf0 >> shift)) | q[k] << shift);
      }
    }
  }
}

void PackedMatrix::take_row(const PackedMatrix& w, int64_t from, int64_t to) {
  const uint8_t* const in = w.values_.data() + from / kPanel * panel_bytes_;
  uint8_t* const out = values_.data() + to / kPanel * panel_bytes_;
  const int64_t f = from % kPanel, t = to % kPanel;
  // One piece of each line; of the first line it stands at place f of w and at place t of this.
  const auto copy = [&](auto bytes, int64_t lines, int64_t line_bytes, const uint8_t* source,
                        uint8_t* target) {
    for (int64_t i = 0; i < lines; ++i, source += line_bytes, target += line_bytes) {
      std::memcpy(target, source, bytes);
    }
  };
  constexpr std::integral_constant<size_t, 2> kTwo;
  constexpr std::integral_constant<size_t, 4> kFour;
  switch (format_) {
    case WeightFormat::kFloat32:
      return copy(kFour, cols_, 4 * kPanel, in + 4 * f, out + 4 * t);
    case WeightFormat::kBFloat16:
      return copy(kTwo, cols_, 2 * kPanel, in + 2 * line_place(f), out + 2 * line_place(t));
    case WeightFormat::kInt8:
      scales_[to] = w.scales_.data()[from], sums_[to] = w.sums_.data()[from];
      return copy(kFour, groups_of(cols_), kGroup * kPanel, in + kGroup * f, out + kGroup * t);
    case WeightFormat::kInt4:
      const int64_t groups = groups_of(cols_, kInt4Columns);
      copy(kTwo, groups, kInt4Group, in + 2 * line_place(f), out + 2 * line_place(t));
      for (int64_t at = kInt4Scales; at < kInt4Group; at += 4 * kPanel) {
        copy(kFour, groups, kInt4Group, in + at + 4 * f, out + at + 4 * t);
      }
  }
}

void PackedMatrix::read_row(int64_t row, float* out) const {
  const int64_t p = row / kPanel, r = row % kPanel;
  const auto read = [&](auto at) {
    for (int64_t k = 0; k < cols_; ++k) out[k] = at(k);
  };
  switch (format_) {
    case WeightFormat::kFloat32:
      return read([from = panel<float>(p) + r](int64_t k) { return from[k * kPanel]; });
    case WeightFormat::kBFloat16:
      return read([from = panel<BFloat16>(p) + line_place(r)](int64_t k) {
        return static_cast<float>(from[k * kPanel]);
      });
    case WeightFormat::kInt8:
      return read([from = panel<int8_t>(p) + r * kGroup, scale = scales_.data()[row]](int64_t k) {
        return scale * static_cast<float>(from[k / kGroup * kPanel * kGroup + k % kGroup]);
      });
    case WeightFormat::kInt4:
      return read([from = panel<uint8_t>(p), r](int64_t k) {
        const uint8_t* const group = from + k / kInt4Columns * kInt4Group;
        const auto scale = reinterpret_cast<const BFloat16*>(group)[line_place(r)];
        const int64_t column = k % kInt4Columns;
        const int q = group[int4_byte(r, column)] >> int4_shift(column) & 15;
        return static_cast<float>(scale) * static_cast<float>(q - 8);
      });
  }
}

}  // namespace tapestry
