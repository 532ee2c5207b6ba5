#include "data/tokenizers/protobuf.h"

#include <bit>

#include "core/base/error.h"
#include "data/files/little_endian.h"

namespace tapestry {
namespace {

enum WireType : uint32_t { kVarint = 0, kEightBytes = 1, kLengthAndBytes = 2, kFourBytes = 5 };

}  // namespace

ProtobufWriter& ProtobufWriter::integer(uint32_t field, int64_t value) {
  key(field, kVarint);
  varint(static_cast<uint64_t>(value));
  return *this;
}

ProtobufWriter& ProtobufWriter::real(uint32_t field, double value) {
  key(field, kEightBytes);
  append_little_endian(text_, std::bit_cast<uint64_t>(value));
  return *this;
}

ProtobufWriter& ProtobufWriter::single(uint32_t field, float value) {
  key(field, kFourBytes);
  append_little_endian(text_, std::bit_cast<uint32_t>(value));
  return *this;
}

ProtobufWriter& ProtobufWriter::bytes(uint32_t field, std::string_view value) {
  key(field, kLengthAndBytes);
  varint(value.size());
  text_ += value;
  return *this;
}

void ProtobufWriter::varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
  text_ += static_cast<char>(value);
}

uint64_t ProtobufReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) fail(ErrorKind::kData, "[protobuf] the message ends in a number.");
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  fail(ErrorKind::kData, "[protobuf] a number has more than ten bytes.");
}

bool ProtobufReader::next() {
  if (rest_.empty()) return false;
  const uint64_t key = varint();
  field_ = static_cast<uint32_t>(key >> 3);
  wire_type_ = static_cast<uint32_t>(key & 7);
  uint64_t length = 0;
  if (wire_type_ == kVarint) {
    number_ = varint();
  } else if (wire_type_ == kEightBytes || wire_type_ == kFourBytes) {
    length = wire_type_ == kEightBytes ? 8 : 4;
  } else if (wire_type_ == kLengthAndBytes) {
    length = varint();
  } else {
    fail(ErrorKind::kData, "[protobuf] field ", field_, " has the unknown wire type ", wire_type_,
         '.');
  }
  if (length > rest_.size()) fail(ErrorKind::kData, "[protobuf] field ", field_, " is cut off.");
  value_ = rest_.substr(0, length);
  rest_.remove_prefix(length);
  return true;
}

void ProtobufReader::expect(uint32_t wire_type) const {
  if (wire_type_ == wire_type) return;
  fail(ErrorKind::kData, "[protobuf] field ", field_, " must have wire type ", wire_type, ", got ",
       wire_type_, '.');
}

int64_t ProtobufReader::integer() const {
  expect(kVarint);
  return static_cast<int64_t>(number_);
}

float ProtobufReader::single() const {
  expect(kFourBytes);
  uint32_t bits = 0;
  for (size_t i = 0; i < 4; ++i) {
    bits |= uint32_t{static_cast<unsigned char>(value_[i])} << 8 * i;
  }
  return std::bit_cast<float>(bits);
}

std::string_view ProtobufReader::bytes() const {
  expect(kLengthAndBytes);
  return value_;
}

}  // namespace tapestry
