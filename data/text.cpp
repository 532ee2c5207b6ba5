#include "data/text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "core/error.h"

namespace tapestry {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 16;
constexpr unsigned char kGzipMagic[2] = {0x1F, 0x8B};

[[noreturn]] void fail_data(const std::string& path, const std::string& what) {
  fail(ErrorKind::kData, "[data] ", path, ' ', what);
}

// A file descriptor with a buffer.
class RawFile {
 public:
  explicit RawFile(std::string path) : path_(std::move(path)), buffer_(kBufferBytes) {
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail_data(path_, concat("cannot be opened: ", std::strerror(errno), '.'));
    struct stat status {};
    if (::fstat(descriptor_, &status) == 0 && S_ISDIR(status.st_mode)) {
      ::close(descriptor_);
      fail_data(path_, "is a directory, expected a file.");
    }
  }
  ~RawFile() { ::close(descriptor_); }
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  // Appends more bytes from the file to those not yet consumed; false at the end of the file.
  bool read_more() {
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    if (end_ == buffer_.size()) return true;
    ssize_t count;
    do {
      count = ::read(descriptor_, buffer_.data() + end_, buffer_.size() - end_);
    } while (count < 0 && errno == EINTR);
    if (count < 0) {
      fail_data(path_, concat("cannot be read at byte ", consumed_ + static_cast<int64_t>(end_),
                              ": ", std::strerror(errno), '.'));
    }
    end_ += static_cast<size_t>(count);
    return count > 0;
  }

  unsigned char* data() { return buffer_.data() + begin_; }
  size_t size() const { return end_ - begin_; }
  void consume(size_t bytes) {
    begin_ += bytes;
    consumed_ += static_cast<int64_t>(bytes);
  }
  // Bytes of the file consumed so far.
  int64_t consumed() const { return consumed_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<unsigned char> buffer_;
  int descriptor_ = -1;
  size_t begin_ = 0;
  size_t end_ = 0;
  int64_t consumed_ = 0;
};

// The bytes of a file, or what they unpack to.
class ByteSource {
 public:
  explicit ByteSource(const std::string& path) : file_(path) {
    while (file_.size() < 2 && file_.read_more()) {
    }
    gzip_ = file_.size() >= 2 && std::memcmp(file_.data(), kGzipMagic, 2) == 0;
    refuse_other_compression();
    constexpr int kGzipOnly = 16;
    if (gzip_) {
      check(inflateInit2(&stream_, MAX_WBITS + kGzipOnly) == Z_OK, "data", "zlib has no memory.");
    }
  }
  ~ByteSource() {
    if (gzip_) inflateEnd(&stream_);
  }
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Up to `capacity` bytes; 0 only at the end. `line` is the place for error messages, kNoLine in a
  // file that has no lines.
  static constexpr int64_t kNoLine = -1;
  size_t read(char* out, size_t capacity, int64_t line) {
    return gzip_ ? read_gzip(out, capacity, line) : read_plain(out, capacity);
  }

 private:
  // Some of the bytes would pass for text.
  void refuse_other_compression() {
    struct Format {
      const char* name;
      size_t offset;
      std::string_view magic;
    };
    static constexpr Format kOthers[] = {{"zstd", 0, "\x28\xB5\x2F\xFD"},
                                         {"xz", 0, "\xFD\x37\x7A\x58\x5A"},
                                         {"bzip2", 4, "1AY&SY"},  // behind "BZh" and a digit
                                         {"zip", 0, "PK\x03\x04"}};
    while (file_.size() < 10 && file_.read_more()) {
    }
    const std::string_view begin(reinterpret_cast<const char*>(file_.data()), file_.size());
    for (const Format& format : kOthers) {
      if (begin.size() < format.offset + format.magic.size() ||
          !begin.substr(format.offset).starts_with(format.magic)) {
        continue;
      }
      fail_data(file_.path(), concat("is a ", format.name, " file, expected text or gzip."));
    }
  }

  size_t read_plain(char* out, size_t capacity) {
    if (file_.size() == 0 && !file_.read_more()) return 0;
    const size_t count = std::min(capacity, file_.size());
    std::memcpy(out, file_.data(), count);
    file_.consume(count);
    return count;
  }

  size_t read_gzip(char* out, size_t capacity, int64_t line) {
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(capacity);
    while (stream_.avail_out == capacity && !finished_) {
      if (!inside_member_ && !start_member(line)) break;
      if (file_.size() == 0 && !file_.read_more()) {
        fail_gzip(line, "is a truncated gzip file: it ends");
      }
      inflate_some(line);
    }
    return capacity - stream_.avail_out;
  }

  // Enters the next member. Zero bytes after a member are padding, as gzip(1) takes them.
  bool start_member(int64_t line) {
    while (file_.size() < 2 && file_.read_more()) {
    }
    if (members_ > 0) {
      while (file_.size() > 0 && file_.data()[0] == 0) {
        file_.consume(1);
        if (file_.size() < 2) file_.read_more();
      }
      if (file_.size() == 0) {
        finished_ = true;
        return false;
      }
      if (file_.size() < 2 || std::memcmp(file_.data(), kGzipMagic, 2) != 0) {
        fail_gzip(line, "has bytes after its gzip data that are no gzip data,");
      }
      inflateReset(&stream_);
    }
    ++members_;
    inside_member_ = true;
    return true;
  }

  void inflate_some(int64_t line) {
    const size_t available = file_.size();
    stream_.next_in = file_.data();
    stream_.avail_in = static_cast<uInt>(available);
    const int status = inflate(&stream_, Z_NO_FLUSH);
    file_.consume(available - stream_.avail_in);
    if (status == Z_STREAM_END) {
      inside_member_ = false;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      fail_gzip(line, concat("is a damaged gzip file (",
                             stream_.msg != nullptr ? stream_.msg : "unknown error", "),"));
    }
  }

  [[noreturn]] void fail_gzip(int64_t line, const std::string& what) const {
    fail_data(file_.path(), concat(what, " at compressed byte ", file_.consumed(),
                                   line == kNoLine ? "" : concat(", after line ", line), '.'));
  }

  RawFile file_;
  z_stream stream_{};
  bool gzip_ = false;
  bool inside_member_ = false;
  bool finished_ = false;
  int64_t members_ = 0;
};

}  // namespace

struct LineReader::State {
  explicit State(const std::string& name) : path(name), source(name), buffer(kBufferBytes) {}

  bool fill() {
    begin = 0;
    end = source.read(buffer.data(), buffer.size(), line_number);
    return end > 0;
  }

  // Moves bytes up to the next LF (which is consumed, not kept) to `line`; false at the end of
  // file.
  bool read_line(std::string& line) {
    bool any = false;
    while (true) {
      if (begin == end && !fill()) return any;
      any = true;
      const char* const start = buffer.data() + begin;
      const void* const feed = std::memchr(start, '\n', end - begin);
      const size_t count = feed != nullptr
                               ? static_cast<size_t>(static_cast<const char*>(feed) - start)
                               : end - begin;
      line.append(start, count);
      begin += count + (feed != nullptr ? 1 : 0);
      if (static_cast<int64_t>(line.size()) > kMaxLineBytes) {
        fail_data(path, concat("has a line ", line_number + 1, " of more than ",
                               kMaxLineBytes >> 20, " MiB, expected a text file."));
      }
      has_line_end = feed != nullptr;
      if (has_line_end) return true;
    }
  }

  std::string path;
  ByteSource source;
  std::vector<char> buffer;
  size_t begin = 0;
  size_t end = 0;
  int64_t line_number = 0;
  bool has_line_end = false;
};

LineReader::LineReader(const std::string& path) : state_(std::make_unique<State>(path)) {
  // An empty file is nearly always a failed step before this one: say so at once.
  if (!state_->fill()) fail_data(path, "is empty, expected lines of text.");
}
LineReader::~LineReader() = default;
LineReader::LineReader(LineReader&&) noexcept = default;
LineReader& LineReader::operator=(LineReader&&) noexcept = default;

bool LineReader::next(std::string& line) {
  line.clear();
  if (!state_->read_line(line)) return false;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (++state_->line_number == 1 && line.starts_with(kByteOrderMark)) {
    line.erase(0, kByteOrderMark.size());
  }
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return true;
}

bool LineReader::has_line_end() const { return state_->has_line_end; }
const std::string& LineReader::path() const { return state_->path; }
int64_t LineReader::line_number() const { return state_->line_number; }
std::string LineReader::place() const { return concat(state_->path, ':', state_->line_number); }

std::string read_unpacked(const std::string& path) {
  ByteSource source(path);
  std::string bytes;
  for (size_t count = 1; count > 0;) {
    const size_t size = bytes.size();
    bytes.resize(size + kBufferBytes);
    count = source.read(bytes.data() + size, kBufferBytes, ByteSource::kNoLine);
    bytes.resize(size + count);
  }
  return bytes;
}

}  // namespace tapestry
