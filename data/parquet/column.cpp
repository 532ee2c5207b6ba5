#include "data/parquet/column.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"
#include "data/parquet/thrift.h"

namespace tapestry::parquet {
namespace {

enum Encoding : int64_t { kPlain = 0, kPlainDictionary = 2, kRle = 3, kRleDictionary = 8 };

constexpr size_t kLengthBytes = 4;

template <class T>
T number_in(std::string_view bytes) {
  static_assert(std::endian::native == std::endian::little, "as files have them");
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

template <class T>
void append_number(std::string& text, T value) {
  char digits[40];
  text.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

template <class T>
void append_float(std::string& text, T value) {
  if (!std::isfinite(value)) {
    text += "null";
    return;
  }
  // 100000 rather than 1e+05: a record's number becomes a text as it is written here.
  const double size = std::abs(static_cast<double>(value));
  const bool is_usual = size == 0 || (size >= 1e-4 && size < 1e15);
  if (!is_usual) return append_number(text, value);
  char digits[40];
  text.append(digits,
              std::to_chars(digits, digits + sizeof(digits), value, std::chars_format::fixed).ptr);
}

// Bits of numbers up to `most`.
int width_of(int most) { return static_cast<int>(std::bit_width(static_cast<unsigned>(most))); }

size_t bytes_of(Physical physical) {
  return physical == Physical::kInt32 || physical == Physical::kFloat ? 4 : 8;
}

}  // namespace

Source::Source(const std::string& path)
    : file_(path, FileKinds::kFiles),
      size_(static_cast<int64_t>(std::filesystem::file_size(path))) {}

void Source::read(int64_t at, int64_t count, std::string& bytes) {
  bytes.clear();
  file_.seek(at);
  while (std::ssize(bytes) < count) {
    if (file_.bytes().empty() && !file_.read_more()) fail_here("became shorter while it was read");
    const size_t more = std::min(static_cast<size_t>(count) - bytes.size(), file_.bytes().size());
    bytes += file_.bytes().substr(0, more);
    file_.consume(more);
  }
}

void Source::fail_here(const std::string& what) const {
  fail(ErrorKind::kData, "[data] ", path(), ' ', what, '.');
}

bool HybridReader::begin_run() {
  uint64_t head = 0;
  for (int shift = 0;; shift += 7) {
    if (at_ == bytes_.size() || shift > 28) return false;
    const auto byte = static_cast<uint8_t>(bytes_[at_++]);
    head |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) break;
  }
  const size_t rest = bytes_.size() - at_;
  is_packed_ = (head & 1) != 0;
  if (is_packed_) {
    // Eight numbers a group; the last group may be cut where they end.
    left_ = 8 * (head >> 1);
    if (width_ == 0) return true;
    bit_ = 8 * at_;
    const size_t bytes = std::min<uint64_t>(rest, (head >> 1) * static_cast<uint64_t>(width_));
    left_ = std::min<uint64_t>(left_, 8 * bytes / static_cast<uint64_t>(width_));
    at_ += bytes;
    return true;
  }
  const size_t bytes = (static_cast<size_t>(width_) + 7) / 8;
  if (bytes > rest) return false;
  left_ = head >> 1;
  repeated_ = 0;
  for (size_t i = 0; i < bytes; ++i) {
    repeated_ |= uint32_t{static_cast<uint8_t>(bytes_[at_++])} << 8 * i;
  }
  return true;
}

bool HybridReader::next(uint32_t& value) {
  while (left_ == 0) {
    if (!begin_run()) return false;
  }
  --left_;
  if (!is_packed_ || width_ == 0) {
    value = is_packed_ ? 0 : repeated_;
    return true;
  }
  uint64_t bits = 0;
  const size_t first = bit_ / 8, last = (bit_ + static_cast<size_t>(width_) - 1) / 8;
  for (size_t i = first; i <= last; ++i) {
    bits |= uint64_t{static_cast<uint8_t>(bytes_[i])} << 8 * (i - first);
  }
  value = static_cast<uint32_t>(bits >> bit_ % 8 & ((uint64_t{1} << width_) - 1));
  bit_ += static_cast<size_t>(width_);
  return true;
}

ColumnReader::ColumnReader(Source& source, const Node& leaf, const Chunk& chunk, std::string name)
    : source_(source),
      leaf_(leaf),
      chunk_(chunk),
      name_(std::move(name)),
      at_(chunk.begin),
      left_(chunk.values) {
  advance();
}

void ColumnReader::fail_here(const std::string& what) const {
  source_.fail_here(concat("has a column '", name_, "' that cannot be read: ", what));
}

std::string_view ColumnReader::take(std::string_view& bytes, size_t count) const {
  if (count > bytes.size()) fail_here("a page is cut short");
  const std::string_view taken = bytes.substr(0, count);
  bytes.remove_prefix(count);
  return taken;
}

void ColumnReader::advance() {
  if (left_ == 0) {
    ended_ = true;
    return;
  }
  while (left_of_page_ == 0) next_page();
  --left_;
  --left_of_page_;
  repeated_ = defined_ = 0;
  const bool whole = (leaf_.most_repeated == 0 || repetitions_.next(repeated_)) &&
                     (leaf_.most_defined == 0 || definitions_.next(defined_));
  if (!whole) fail_here("a page has fewer levels than values");
  if (repeated() > leaf_.most_repeated || defined() > leaf_.most_defined) {
    fail_here("a level of it is out of bounds");
  }
  if (defined() == leaf_.most_defined) read_value();
}

// A header has no size of its own, and may hold the longest and the shortest text of its page.
void ColumnReader::read_header(PageHeader& header) {
  constexpr int64_t kFirst = 1 << 10, kMost = int64_t{1} << 26;
  for (int64_t size = kFirst;; size *= 16) {
    const int64_t rest = chunk_.end - at_;
    source_.read(at_, std::min(size, rest), packed_);
    try {
      header = read_page_header(packed_);
      return;
    } catch (const ThriftReader::Damage& damage) {
      if (damage.cut && size < rest && size < kMost) continue;
      fail_here(damage.what);
    }
  }
}

void ColumnReader::next_page() {
  if (at_ >= chunk_.end) fail_here("its pages have fewer values than the column");
  PageHeader header;
  read_header(header);
  at_ += static_cast<int64_t>(header.bytes);
  if (header.packed_bytes > chunk_.end - at_) fail_here("a page is longer than the column");
  if (header.kind != PageHeader::Kind::kOther) {
    source_.read(at_, header.packed_bytes, packed_);
    const auto sum = [&] {
      return static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(packed_.data()),
                                           static_cast<uInt>(packed_.size())));
    };
    if (header.checksum && *header.checksum != sum()) fail_here("the checksum of a page is wrong");
  }
  at_ += header.packed_bytes;
  if (header.kind == PageHeader::Kind::kDictionary) begin_dictionary(header);
  if (header.kind == PageHeader::Kind::kData || header.kind == PageHeader::Kind::kDataV2) {
    begin_data(header);
  }
}

void ColumnReader::unpack(std::string_view packed, int64_t size, std::string& out) const {
  const char* const damage = unpack_page(chunk_.codec, packed, static_cast<size_t>(size), out);
  if (damage != nullptr) fail_here(concat("a page is damaged (", damage, ')'));
}

void ColumnReader::begin_dictionary(const PageHeader& header) {
  if (header.encoding != kPlain && header.encoding != kPlainDictionary) {
    fail_here(concat("its dictionary has the encoding ", encoding_name(header.encoding),
                     ", expected PLAIN"));
  }
  if (has_dictionary_) fail_here("it has two dictionaries");
  unpack(packed_, header.unpacked_bytes, dictionary_);
  has_dictionary_ = true;
  if (leaf_.physical == Physical::kBoolean) fail_here("truth values have no dictionary");
  std::string_view rest = dictionary_;
  for (int64_t i = 0; i < header.values; ++i) {
    const size_t size = leaf_.physical == Physical::kByteArray
                            ? number_in<uint32_t>(take(rest, kLengthBytes))
                            : bytes_of(leaf_.physical);
    entries_.push_back(take(rest, size));
  }
}

HybridReader ColumnReader::take_levels(std::string_view& bytes, int most, int64_t encoding) const {
  if (most == 0) return {};
  if (encoding != kRle) {
    fail_here(concat("its levels have the encoding ", encoding_name(encoding), ", expected RLE"));
  }
  const auto size = number_in<uint32_t>(take(bytes, kLengthBytes));
  return {take(bytes, size), width_of(most)};
}

void ColumnReader::begin_data(const PageHeader& header) {
  if (header.kind == PageHeader::Kind::kData) {
    unpack(packed_, header.unpacked_bytes, page_);
    plain_ = page_;
    repetitions_ = take_levels(plain_, leaf_.most_repeated, header.repeated_encoding);
    definitions_ = take_levels(plain_, leaf_.most_defined, header.defined_encoding);
  } else {
    // The levels stand in front, unpacked and without their sizes.
    levels_.swap(packed_);
    std::string_view rest = levels_;
    const auto levels_of = [&](int64_t bytes, int most) {
      return HybridReader(take(rest, static_cast<size_t>(bytes)), width_of(most));
    };
    repetitions_ = levels_of(header.repeated_bytes, leaf_.most_repeated);
    definitions_ = levels_of(header.defined_bytes, leaf_.most_defined);
    const int64_t size = header.unpacked_bytes - header.repeated_bytes - header.defined_bytes;
    if (header.is_packed) {
      unpack(rest, size, page_);
    } else {
      page_ = rest;
    }
    plain_ = page_;
  }
  left_of_page_ = header.values;
  if (left_of_page_ > left_) fail_here("its pages have more values than the column");
  bit_ = 0;
  switch (header.encoding) {
    case kPlain:
      values_ = Values::kPlain;
      return;
    case kPlainDictionary:
    case kRleDictionary: {
      if (!has_dictionary_) fail_here("it lacks its dictionary");
      values_ = Values::kIndices;
      if (plain_.empty()) {  // nothing but nulls
        indices_ = {};
        return;
      }
      const int width = static_cast<uint8_t>(take(plain_, 1)[0]);
      if (width > 32) fail_here("a page has indices of more than 32 bits");
      indices_ = {plain_, width};
      return;
    }
    case kRle:
      if (leaf_.physical == Physical::kBoolean) {
        values_ = Values::kBits;
        if (plain_.empty()) {
          indices_ = {};
          return;
        }
        const auto size = number_in<uint32_t>(take(plain_, kLengthBytes));
        indices_ = {take(plain_, size), 1};
        return;
      }
      [[fallthrough]];
    default:
      fail_here(concat("it has the encoding ", encoding_name(header.encoding),
                       ", of which no reader is here; PLAIN and dictionaries are read"));
  }
}

void ColumnReader::read_plain() {
  if (leaf_.physical == Physical::kBoolean) {
    if (bit_ / 8 >= plain_.size()) fail_here("a page is cut short");
    truth_ = (static_cast<uint8_t>(plain_[bit_ / 8]) >> bit_ % 8 & 1) != 0;
    ++bit_;
  } else if (leaf_.physical == Physical::kByteArray) {
    const auto size = number_in<uint32_t>(take(plain_, kLengthBytes));
    value_ = take(plain_, size);
  } else {
    value_ = take(plain_, bytes_of(leaf_.physical));
  }
}

void ColumnReader::read_value() {
  if (values_ == Values::kPlain) return read_plain();
  uint32_t index = 0;
  if (!indices_.next(index)) fail_here("a page has fewer values than it says");
  if (values_ == Values::kBits) {
    truth_ = index != 0;
    return;
  }
  if (index >= entries_.size()) fail_here("an index is outside of its dictionary");
  value_ = entries_[index];
}

void ColumnReader::append_json(std::string& text) const {
  switch (leaf_.physical) {
    case Physical::kBoolean:
      text += truth_ ? "true" : "false";
      return;
    case Physical::kInt32:
      if (leaf_.is_signed) return append_number(text, number_in<int32_t>(value_));
      return append_number(text, number_in<uint32_t>(value_));
    case Physical::kInt64:
      if (leaf_.is_signed) return append_number(text, number_in<int64_t>(value_));
      return append_number(text, number_in<uint64_t>(value_));
    case Physical::kFloat:
      return append_float(text, number_in<float>(value_));
    case Physical::kDouble:
      return append_float(text, number_in<double>(value_));
    default:
      return append_json_text(text, value_);
  }
}

void append_json_text(std::string& json, std::string_view text) {
  json += '"';
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = begin;
    while (end < text.size() && static_cast<uint8_t>(text[end]) >= 0x20 && text[end] != '"' &&
           text[end] != '\\') {
      ++end;
    }
    json += text.substr(begin, end - begin);
    if (end == text.size()) break;
    const char c = text[end];
    constexpr char kDigits[] = "0123456789abcdef";
    if (c == '"' || c == '\\') {
      json += {'\\', c};
    } else if (c == '\n') {
      json += "\\n";
    } else {
      json += "\\u00";
      json += kDigits[c >> 4];
      json += kDigits[c & 15];
    }
    begin = end + 1;
  }
  json += '"';
}

}  // namespace tapestry::parquet
