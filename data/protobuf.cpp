#include "data/protobuf.h"

#include <bit>

#include "data/little_endian.h"

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

}  // namespace tapestry
