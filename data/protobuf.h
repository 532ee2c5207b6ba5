// Messages in protobuf's wire format, field by field: enough for the few that we write, without
// the library, whose generated code would have to be of the same release as SentencePiece's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tapestry {

/// Appends fields in the order of the calls. A message inside another one is a field of bytes.
/// Source: the protobuf encoding (a field begins with number * 8 + wire type).
class ProtobufWriter {
 public:
  /// int64, int32, bool, enum: a negative number takes ten bytes.
  ProtobufWriter& integer(uint32_t field, int64_t value);
  ProtobufWriter& real(uint32_t field, double value);   ///< double
  ProtobufWriter& single(uint32_t field, float value);  ///< float
  /// string, bytes, or a message.
  ProtobufWriter& bytes(uint32_t field, std::string_view value);
  ProtobufWriter& message(uint32_t field, const ProtobufWriter& value) {
    return bytes(field, value.text());
  }

  const std::string& text() const { return text_; }

 private:
  void varint(uint64_t value);
  void key(uint32_t field, uint32_t wire_type) { varint(uint64_t{field} << 3 | wire_type); }

  std::string text_;
};

}  // namespace tapestry
