// A walk through the part of a GGUF file before its data: private to the reader.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "apps/checkpoint/bytes.h"
#include "apps/interop/gguf/gguf_file.h"
#include "core/base/error.h"
#include "data/files/utf8.h"

namespace tapestry::interop {

inline constexpr uint64_t kLongestGgufName = 65535;
inline constexpr uint64_t kMaxGgufHeader = uint64_t{1} << 28;

template <class... Parts>
[[noreturn]] void broken_gguf(const std::string& file, const Parts&... parts) {
  fail(ErrorKind::kData, "[gguf] ", file, ": ", parts..., '.');
}

/// By the number of their type.
struct GgufValueRow {
  const char* name;
  uint64_t bytes;  ///< at least
};
inline constexpr GgufValueRow kGgufValues[] = {
    {"uint8", 1},  {"int8", 1},    {"uint16", 2}, {"int16", 2},  {"uint32", 4},
    {"int32", 4},  {"float32", 4}, {"bool", 1},   {"string", 8}, {"array", 12},
    {"uint64", 8}, {"int64", 8},   {"float64", 8}};
inline const GgufValueRow& row_of(GgufValueType type) {
  return kGgufValues[static_cast<uint32_t>(type)];
}

/// A place there. Reads a window at a time.
class GgufCursor {
 public:
  GgufCursor(const ByteSource& file, uint64_t at) : file_(file), at_(at) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return file_.size - at_; }

  /// Throws unless `count` bytes are left.
  void need(uint64_t count, const std::string& what) const {
    if (count > left()) {
      broken_gguf(file_.name, what, " needs ", count, " bytes at ", at_, ", the file has ", left(),
                  " left");
    }
    if (at_ + count > kMaxGgufHeader) {
      broken_gguf(file_.name, what, " ends beyond ", kMaxGgufHeader,
                  " bytes, where the data must have begun");
    }
  }
  void skip(uint64_t count, const std::string& what) {
    need(count, what);
    at_ += count;
  }
  template <class T>
  T number(const std::string& what) {
    T value;
    need(sizeof value, what);
    copy(&value, sizeof value);
    return value;
  }
  std::string bytes(uint64_t count, const std::string& what) {
    need(count, what);
    std::string text(count, '\0');
    copy(text.data(), count);
    return text;
  }
  std::string text(const std::string& what) { return bytes(number<uint64_t>(what), what); }
  /// A key, or the name of a tensor.
  std::string name(const std::string& what) {
    const auto size = number<uint64_t>(what);
    if (size == 0 || size > kLongestGgufName) {
      broken_gguf(file_.name, what, " claims to have ", size, " bytes, expected 1 to ",
                  kLongestGgufName);
    }
    std::string text = bytes(size, what);
    if (find_invalid_utf8(text) != std::string::npos || text.find('\0') != std::string::npos) {
      broken_gguf(file_.name, what, " is not UTF-8");
    }
    return text;
  }

 private:
  void copy(void* to, uint64_t count) {
    if (count > kPartBytes) {
      file_.read(at_, to, count);
      at_ += count;
      return;
    }
    if (at_ < begin_ || at_ + count > begin_ + window_.size()) {
      begin_ = at_;
      window_.resize(std::min<uint64_t>(kPartBytes, left()));
      file_.read(begin_, window_.data(), window_.size());
    }
    std::memcpy(to, window_.data() + (at_ - begin_), count);
    at_ += count;
  }

  const ByteSource& file_;
  uint64_t at_;
  uint64_t begin_ = 0;  // of the window
  std::string window_;
};

}  // namespace tapestry::interop
