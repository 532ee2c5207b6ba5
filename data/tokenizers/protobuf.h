// Messages in protobuf's wire format, field by field. The few messages that we write do not need
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

/// Walks over the fields of a message; unknown fields may be ignored. Throws Error(kData) if the
/// bytes are not a message, or a field has another wire type than the caller expects.
class ProtobufReader {
 public:
  explicit ProtobufReader(std::string_view bytes) : rest_(bytes) {}

  /// Moves to the next field; false at the end.
  bool next();
  uint32_t field() const { return field_; }

  int64_t integer() const;
  float single() const;
  /// For string, bytes or a message: a view of the given bytes.
  std::string_view bytes() const;

 private:
  uint64_t varint();
  void expect(uint32_t wire_type) const;

  std::string_view rest_;
  uint32_t field_ = 0, wire_type_ = 0;
  uint64_t number_ = 0;
  std::string_view value_;
};

}  // namespace tapestry
