#include "data/idx.h"

#include <cstdio>

#include "core/error.h"
#include "data/unpacked_file.h"

namespace tapestry {
namespace {

constexpr size_t kMagicBytes = 4;
constexpr unsigned char kUnsignedByte = 0x08;
constexpr int64_t kMostElements = int64_t{1} << 40;

std::string in_hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    char two[4];
    std::snprintf(two, sizeof two, "%s%02x", text.empty() ? "" : " ",
                  static_cast<unsigned char>(byte));
    text += two;
  }
  return text;
}

}  // namespace

IdxBytes read_idx_bytes(const std::string& path) {
  IdxBytes idx;
  idx.file = read_unpacked(path);
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(idx.file[i]); };
  const auto size = static_cast<int64_t>(idx.file.size());
  if (idx.file.size() < kMagicBytes || byte(0) != 0 || byte(1) != 0 || byte(2) != kUnsignedByte) {
    fail(ErrorKind::kData, "[data] ", path,
         " is not an IDX file of unsigned bytes: expected it to begin with 00 00 08, got ",
         size == 0 ? "an empty file" : in_hex(idx.file.substr(0, kMagicBytes)), '.');
  }
  const size_t axes = byte(3);
  idx.header = kMagicBytes + 4 * axes;
  if (idx.file.size() < idx.header) {
    fail(ErrorKind::kData, "[data] ", path, " must have a header of ", idx.header, " bytes for ",
         axes, " axes, got ", size, " bytes in all.");
  }
  int64_t elements = 1;
  std::string product;
  for (size_t axis = 0; axis < axes; ++axis) {
    int64_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | byte(kMagicBytes + 4 * axis + i);
    idx.sizes.push_back(length);
    product += (axis > 0 ? " x " : "") + std::to_string(length);
    if (length > 0 && elements > kMostElements / length) {
      fail(ErrorKind::kData, "[data] ", path, " declares more than 2^40 bytes: ", product, '.');
    }
    elements *= length;
  }
  if (elements != size - static_cast<int64_t>(idx.header)) {
    fail(ErrorKind::kData, "[data] ", path, " must hold ", product, " bytes behind its header of ",
         idx.header, ", got ", size - static_cast<int64_t>(idx.header), '.');
  }
  return idx;
}

}  // namespace tapestry
