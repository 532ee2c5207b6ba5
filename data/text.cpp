#include "data/text.h"

#include <cstring>
#include <vector>

#include "core/error.h"
#include "data/unpacked_file.h"

namespace tapestry {
namespace {

[[noreturn]] void fail_data(const std::string& path, const std::string& what) {
  fail(ErrorKind::kData, "[data] ", path, ' ', what);
}

}  // namespace

struct LineReader::State {
  explicit State(const std::string& name) : path(name), source(name), buffer(kFileBufferBytes) {}

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
  UnpackedFile source;
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

}  // namespace tapestry
