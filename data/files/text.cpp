#include "data/files/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "data/files/unpacked_file.h"

namespace tapestry {
namespace {

[[noreturn]] void fail_data(const std::string& path, const std::string& what) {
  fail(ErrorKind::kData, "[data] ", path, ' ', what);
}

// "UTF-16", by the byte order mark, or by zero bytes in every second place as ASCII has them; or
// "".
std::string wide_encoding(std::string_view bytes) {
  using namespace std::string_view_literals;
  if (bytes.starts_with("\xFF\xFE\0\0"sv) || bytes.starts_with("\0\0\xFE\xFF"sv)) return "UTF-32";
  if (bytes.starts_with("\xFF\xFE"sv) || bytes.starts_with("\xFE\xFF"sv)) return "UTF-16";
  constexpr size_t kEnough = 16, kLooked = 4096;
  bytes = bytes.substr(0, kLooked);
  size_t zeros[2] = {};
  for (size_t i = 0; i < bytes.size(); ++i) zeros[i % 2] += bytes[i] == '\0' ? 1 : 0;
  const size_t half = bytes.size() / 2;
  const auto is_every_second = [&](size_t at) {
    return zeros[at] * 10 > half * 8 && zeros[1 - at] * 20 < half;
  };
  return bytes.size() >= kEnough && (is_every_second(0) || is_every_second(1)) ? "UTF-16" : "";
}

// Whether the lines of these first bytes of a file end in CR only. A last CR may belong to a CR LF,
// and a rare one may stand inside a line that is longer than this.
bool has_old_mac_ends(std::string_view bytes) {
  constexpr size_t kLongestLine = 4096;
  if (bytes.find('\n') != bytes.npos) return false;
  const size_t ends = static_cast<size_t>(
      std::count(bytes.begin(), bytes.end() - (bytes.ends_with('\r') ? 1 : 0), '\r'));
  return ends * kLongestLine >= bytes.size();
}

}  // namespace

struct LineReader::State {
  explicit State(const std::string& name) : path(name), source(name), buffer(kFileBufferBytes) {}

  bool fill() {
    begin = 0;
    end = source.read(buffer.data(), buffer.size(), line_number);
    return end > 0;
  }

  // What is there to be read.
  std::string_view rest() const { return {buffer.data() + begin, end - begin}; }
  bool fill_more() {
    const size_t count = end < buffer.size()
                             ? source.read(buffer.data() + end, buffer.size() - end, line_number)
                             : 0;
    end += count;
    return count > 0;
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
      if (!too_long) line.append(start, count);
      begin += count + (feed != nullptr ? 1 : 0);
      if (static_cast<int64_t>(line.size()) > kMaxLineBytes) {
        if (!passes_long) {
          fail_data(path, concat("has a line ", line_number + 1, " of more than ",
                                 kMaxLineBytes >> 20, " MiB, expected a text file."));
        }
        too_long = true;
        line.clear();
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
  bool passes_long = false, too_long = false;
};

LineReader::LineReader(const std::string& path) : state_(std::make_unique<State>(path)) {
  // An empty file is nearly always a failed step before this one: say so at once.
  if (!state_->fill()) fail_data(path, "is empty, expected lines of text.");
  const std::string wide = wide_encoding(state_->rest());
  if (!wide.empty()) {
    fail_data(path,
              concat("is ", wide, ", expected UTF-8: iconv -f ", wide, " -t UTF-8 makes it so."));
  }
  // A pipe may give its first LF later.
  while (has_old_mac_ends(state_->rest()) && state_->fill_more()) {
  }
  if (has_old_mac_ends(state_->rest())) {
    fail_data(
        path,
        "has lines that end in CR only, as on an old Mac, expected LF or CR LF: tr '\\r' '\\n' "
        "<in >out makes it so.");
  }
}
LineReader::~LineReader() = default;
LineReader::LineReader(LineReader&&) noexcept = default;
LineReader& LineReader::operator=(LineReader&&) noexcept = default;

bool LineReader::next(std::string& line) {
  line.clear();
  state_->too_long = false;
  if (!state_->read_line(line)) return false;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (++state_->line_number == 1 && line.starts_with(kByteOrderMark)) {
    line.erase(0, kByteOrderMark.size());
  }
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return true;
}

void LineReader::pass_long_lines() { state_->passes_long = true; }
bool LineReader::was_too_long() const { return state_->too_long; }
bool LineReader::has_line_end() const { return state_->has_line_end; }
const std::string& LineReader::path() const { return state_->path; }
int64_t LineReader::line_number() const { return state_->line_number; }
std::string LineReader::place() const { return concat(state_->path, ':', state_->line_number); }

bool parse_number(const std::string& text, double& value) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return false;
  const size_t end = text.find_last_not_of(" \t") + 1;
  const auto [at, error] = std::from_chars(text.data() + begin, text.data() + end, value);
  return error == std::errc() && at == text.data() + end && std::isfinite(value);
}

}  // namespace tapestry
