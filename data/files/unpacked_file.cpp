#include "data/files/unpacked_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"

namespace tapestry {
UnpackedFile::UnpackedFile(const std::string& path) : file_(path) {
  file_.read_ahead(CompressedFormat::kMagicBytes);
  format_ = find_compressed_format(file_.bytes());
  if (format_ != nullptr) {
    decompressor_ = format_->make();
    decompressor_->start();
    inside_stream_ = true;
  } else if (file_.bytes().starts_with("PK\x03\x04")) {  // some of its bytes would pass for text
    fail_file(path, "is a zip file, expected text, gzip, zstd, xz or bzip2.");
  }
}

size_t UnpackedFile::read(char* out, size_t capacity, int64_t line) {
  return format_ != nullptr ? read_compressed(out, capacity, line) : read_plain(out, capacity);
}

size_t UnpackedFile::read_plain(char* out, size_t capacity) {
  if (file_.bytes().empty() && !file_.read_more()) return 0;
  const size_t count = std::min(capacity, file_.bytes().size());
  std::memcpy(out, file_.bytes().data(), count);
  file_.consume(count);
  return count;
}

size_t UnpackedFile::read_compressed(char* out, size_t capacity, int64_t line) {
  while (inside_stream_ || start_stream(line)) {
    const bool at_end = file_.bytes().empty() && !file_.read_more();
    const Decompressor::Step step = decompressor_->step(file_.bytes(), {out, capacity});
    file_.consume(step.consumed);
    if (step.damage != nullptr) {
      fail_compressed(line, concat("is a damaged ", format_->name, " file (", step.damage, "),"));
    }
    inside_stream_ = !step.ended;
    if (step.produced > 0) return step.produced;
    if (at_end && inside_stream_) {
      fail_compressed(line, concat("is a truncated ", format_->name, " file: it ends"));
    }
  }
  return 0;
}

// Enters the stream behind another one; false at the end of the file.
bool UnpackedFile::start_stream(int64_t line) {
  const auto is_padding = [this] { return !file_.bytes().empty() && file_.bytes()[0] == 0; };
  for (file_.read_ahead(CompressedFormat::kMagicBytes); is_padding();
       file_.read_ahead(CompressedFormat::kMagicBytes))
    file_.consume(1);
  if (file_.bytes().empty()) return false;
  if (!format_->starts(file_.bytes())) {
    fail_compressed(line, concat("has bytes after its ", format_->name, " data that are no ",
                                 format_->name, " data,"));
  }
  decompressor_->start();
  inside_stream_ = true;
  return true;
}

void UnpackedFile::fail_compressed(int64_t line, const std::string& what) const {
  fail_file(file_.path(), concat(what, " at compressed byte ", file_.consumed(),
                                 line == kNoLine ? "" : concat(", after line ", line), '.'));
}

int64_t likely_unpacked_bytes(const std::string& path, int64_t factor) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return 0;
  try {
    BufferedFile file(path);
    file.read_ahead(CompressedFormat::kMagicBytes);
    const bool compressed = find_compressed_format(file.bytes()) != nullptr;
    const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
    return compressed ? factor * bytes : bytes;
  } catch (const std::exception&) {
    return 0;
  }
}

std::string read_unpacked(const std::string& path, int64_t most) {
  UnpackedFile source(path);
  std::string bytes;
  for (size_t count = 1; count > 0;) {
    const size_t size = bytes.size();
    bytes.resize(size + kFileBufferBytes);
    count = source.read(bytes.data() + size, kFileBufferBytes, UnpackedFile::kNoLine);
    bytes.resize(size + count);
    if (std::ssize(bytes) > most) {
      fail_file(path, concat("must have at most ", most, " bytes when it is unpacked."));
    }
  }
  return bytes;
}

}  // namespace tapestry
