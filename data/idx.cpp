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

struct Header {
  std::vector<int64_t> sizes;
  size_t bytes = 0;
  int64_t elements = 1;
  std::string product;  ///< "60000 x 28 x 28"
};

/// Of a file, or of its beginning.
Header parse_header(const std::string& file, const std::string& path) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(file[i]); };
  if (file.size() < kMagicBytes || byte(0) != 0 || byte(1) != 0 || byte(2) != kUnsignedByte) {
    fail(ErrorKind::kData, "[data] ", path,
         " is not an IDX file of unsigned bytes: expected it to begin with 00 00 08, got ",
         file.empty() ? "an empty file" : in_hex(file.substr(0, kMagicBytes)), '.');
  }
  Header header;
  const size_t axes = byte(3);
  header.bytes = kMagicBytes + 4 * axes;
  if (file.size() < header.bytes) {
    fail(ErrorKind::kData, "[data] ", path, " must have a header of ", header.bytes, " bytes for ",
         axes, " axes, got ", file.size(), " bytes in all.");
  }
  for (size_t axis = 0; axis < axes; ++axis) {
    int64_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | byte(kMagicBytes + 4 * axis + i);
    header.sizes.push_back(length);
    header.product += (axis > 0 ? " x " : "") + std::to_string(length);
    if (length > 0 && header.elements > kMostElements / length) {
      fail(ErrorKind::kData, "[data] ", path, " declares more than 2^40 bytes: ", header.product,
           '.');
    }
    header.elements *= length;
  }
  return header;
}

/// Appends what is there, up to `size` bytes in all.
void read_to(UnpackedFile& file, std::string& bytes, size_t size) {
  while (bytes.size() < size) {
    const size_t before = bytes.size();
    bytes.resize(std::min(size, before + kFileBufferBytes));
    const size_t count =
        file.read(bytes.data() + before, bytes.size() - before, UnpackedFile::kNoLine);
    bytes.resize(before + count);
    if (count == 0) return;
  }
}

constexpr size_t kLongestHeader = kMagicBytes + 4 * 255;

}  // namespace

IdxBytes read_idx_bytes(const std::string& path) {
  UnpackedFile file(path);
  IdxBytes idx;
  read_to(file, idx.file, kLongestHeader);
  Header header = parse_header(idx.file, path);
  idx.sizes = std::move(header.sizes);
  idx.header = header.bytes;
  const auto all = idx.header + static_cast<size_t>(header.elements);
  read_to(file, idx.file, all + 1);  // one byte more tells that there is more
  if (idx.file.size() != all) {
    fail(ErrorKind::kData, "[data] ", path, " must hold ", header.product,
         " bytes behind its header of ", idx.header, ", got ",
         idx.file.size() > all ? "more" : std::to_string(idx.file.size() - idx.header), '.');
  }
  return idx;
}

std::vector<int64_t> read_idx_sizes(const std::string& path) {
  UnpackedFile file(path);
  std::string bytes;
  read_to(file, bytes, kLongestHeader);
  return parse_header(bytes, path).sizes;
}

}  // namespace tapestry
