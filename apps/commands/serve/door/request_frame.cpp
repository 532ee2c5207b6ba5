#include "apps/commands/serve/door/request_frame.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "core/base/error.h"

namespace tapestry {
namespace {

constexpr size_t kMostHeader = 64 << 10;  // bytes
constexpr size_t kMostChunkLine = 256;
// What chunks may take beside the body.
constexpr int64_t kMostPacking = 8;

bool is_name(std::string_view text, std::string_view lower) {
  return std::ranges::equal(text, lower, {}, [](unsigned char c) { return std::tolower(c); });
}

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// A number of digits only; none if it has others or no room.
std::optional<int64_t> number_of(std::string_view digits, int base) {
  int64_t value = 0;
  if (digits.empty() || digits[0] == '-') return std::nullopt;
  const char* const end = digits.data() + digits.size();
  const auto [at, error] = std::from_chars(digits.data(), end, value, base);
  if (error != std::errc() || at != end) return std::nullopt;
  return value;
}

// Where a mark of so many bytes begins, at the earliest if it was not found yet.
size_t earliest(size_t found, std::string_view bytes, size_t size) {
  return found != std::string_view::npos ? found : std::max(bytes.size() + 1, size) - size;
}

}  // namespace

RequestFrame::State RequestFrame::refuse(int status, std::string problem) {
  status_ = status;
  problem_ = std::move(problem);
  return State::kRefused;
}

bool RequestFrame::read_field(std::string_view name, std::string_view value) {
  if (is_name(name, "content-length")) {
    const std::optional<int64_t> length = number_of(value, 10);
    if (!length || (length_ >= 0 && length_ != *length)) {
      refuse(400, "the length of the body is not one number.");
      return false;
    }
    length_ = *length;
  }
  if (is_name(name, "transfer-encoding")) {
    if (!is_name(value, "chunked") || chunked_) {
      refuse(501, "a body comes as a whole or in chunks.");
      return false;
    }
    chunked_ = true;
  }
  return true;
}

bool RequestFrame::read_header(std::string_view header) {
  for (size_t begin = header.find("\r\n"); begin != std::string_view::npos;) {
    begin += 2;
    const size_t end = std::min(header.find("\r\n", begin), header.size());
    const std::string_view line = header.substr(begin, end - begin);
    const size_t colon = std::min(line.find(':'), line.size());
    const std::string_view name = line.substr(0, colon);
    const std::string_view value = trimmed(line.substr(std::min(colon + 1, line.size())));
    if (!read_field(name, value)) return false;
    if (is_name(name, "expect") && is_name(value, "100-continue")) expects_at_ = begin;
    begin = end == header.size() ? std::string_view::npos : end;
  }
  // Two lengths: a proxy in front may see other requests than this server.
  if (chunked_ && length_ >= 0) {
    refuse(400, "a body has a length or chunks, not both.");
    return false;
  }
  if (length_ > most_body_) {
    refuse(413, concat("the body is larger than ", most_body_, " bytes (--max-body)."));
    return false;
  }
  return true;
}

RequestFrame::State RequestFrame::read_chunks(std::string_view bytes) {
  const int64_t most = kMostPacking * most_body_ + static_cast<int64_t>(2 * kMostHeader);
  for (;;) {
    if (static_cast<int64_t>(at_) > most) return refuse(413, "the chunks are too small.");
    if (part_ == Part::kChunk) {
      if (bytes.size() < end_) return State::kPartial;
      if (bytes.substr(end_ - 2, 2) != "\r\n") return refuse(400, "a chunk has another length.");
      at_ = end_;
      part_ = Part::kChunkSize;
    }
    const size_t line_end = bytes.find("\r\n", at_);
    if (earliest(line_end, bytes, 2) > at_ + kMostChunkLine) {
      return refuse(400, "a chunk has no length.");
    }
    if (line_end == std::string_view::npos) return State::kPartial;
    const std::string_view line = bytes.substr(at_, line_end - at_);
    if (part_ == Part::kTrailer) {
      at_ = line_end + 2;
      if (!line.empty()) continue;
      end_ = at_;
      return State::kWhole;
    }
    const std::optional<int64_t> size =
        number_of(trimmed(line.substr(0, std::min(line.find(';'), line.size()))), 16);
    if (!size) return refuse(400, "a chunk has no length.");
    if (*size > most_body_ - body_) {
      return refuse(413, concat("the body is larger than ", most_body_, " bytes (--max-body)."));
    }
    body_ += *size;
    at_ = line_end + 2;
    part_ = *size > 0 ? Part::kChunk : Part::kTrailer;
    if (*size > 0) end_ = at_ + static_cast<size_t>(*size) + 2;
  }
}

RequestFrame::State RequestFrame::look(std::string_view bytes) {
  if (status_ != 0) return State::kRefused;
  if (part_ == Part::kHeader) {
    constexpr std::string_view kEnd = "\r\n\r\n";
    const size_t found = bytes.find(kEnd, at_);
    if (earliest(found, bytes, kEnd.size()) > kMostHeader - kEnd.size()) {
      return refuse(431, "the header has more than 65536 bytes.");
    }
    if (found == std::string_view::npos) {
      at_ = bytes.size() < kEnd.size() ? 0 : bytes.size() - kEnd.size() + 1;
      return State::kPartial;
    }
    if (!read_header(bytes.substr(0, found))) return State::kRefused;
    at_ = found + kEnd.size();
    part_ = chunked_ ? Part::kChunkSize : Part::kBody;
    if (!chunked_) end_ = at_ + static_cast<size_t>(std::max<int64_t>(0, length_));
  }
  if (part_ != Part::kBody) return read_chunks(bytes);
  return bytes.size() >= end_ ? State::kWhole : State::kPartial;
}

}  // namespace tapestry
