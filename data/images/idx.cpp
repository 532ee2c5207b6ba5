#include "data/images/idx.h"

#include <algorithm>
#include <cstdio>

#include "core/base/error.h"

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

/// Parses the header in a file, or in its beginning.
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

/// Appends the available bytes, up to `size` in all.
void read_to(UnpackedFile& file, std::string& bytes, size_t size) {
  const size_t before = bytes.size();
  bytes.resize(size);
  size_t end = before;
  while (end < size) {
    const size_t count = file.read(bytes.data() + end, size - end, UnpackedFile::kNoLine);
    if (count == 0) break;
    end += count;
  }
  bytes.resize(end);
}

}  // namespace

IdxFile::IdxFile(const std::string& path) : path_(path), file_(path) {
  std::string bytes;
  read_to(file_, bytes, kMagicBytes);
  if (bytes.size() == kMagicBytes) {
    read_to(file_, bytes, kMagicBytes + size_t{4} * static_cast<unsigned char>(bytes.back()));
  }
  Header header = parse_header(bytes, path);
  sizes_ = std::move(header.sizes);
  header_ = header.bytes;
  elements_ = header.elements;
  product_ = std::move(header.product);
}

void IdxFile::append(int64_t begin, int64_t end, std::vector<uint8_t>& to) {
  // A header may claim more than its file holds: memory is taken as bytes arrive, unless the file
  // can hold them all in one piece.
  if (end - begin <= likely_unpacked_bytes(path_, kMostOfGzip)) {
    to.reserve(to.size() + static_cast<size_t>(end - begin));
  }
  std::vector<char> buffer(kFileBufferBytes);
  int64_t place = 0;
  // Reading one byte more shows if there are more.
  while (place <= elements_) {
    const auto most = std::min<int64_t>(std::ssize(buffer), elements_ + 1 - place);
    const auto count = static_cast<int64_t>(
        file_.read(buffer.data(), static_cast<size_t>(most), UnpackedFile::kNoLine));
    if (count == 0) break;
    const int64_t first = std::clamp<int64_t>(begin - place, 0, count);
    const int64_t last = std::clamp<int64_t>(end - place, first, count);
    to.insert(to.end(), buffer.begin() + first, buffer.begin() + last);
    place += count;
  }
  if (place == elements_) return;
  fail(ErrorKind::kData, "[data] ", path_, " must hold ", product_, " bytes behind its header of ",
       header_, ", got ", place > elements_ ? "more" : std::to_string(place), '.');
}

}  // namespace tapestry
