// Thrift's compact protocol, in which Parquet writes its footer and the headers of its pages.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace tapestry::parquet {

/// Reads values from bytes. Throws Damage where the bytes end within one, or nest too deeply.
class ThriftReader {
 public:
  /// What is wrong; its catcher knows the file.
  struct Damage {
    const char* what;
    bool cut = false;  ///< more bytes may mend it
  };
  enum class Type : uint8_t {
    kStop = 0,
    kTrue = 1,
    kFalse = 2,
    kByte = 3,
    kInt16 = 4,
    kInt32 = 5,
    kInt64 = 6,
    kDouble = 7,
    kBinary = 8,
    kList = 9,
    kSet = 10,
    kMap = 11,
    kStruct = 12,
    kUuid = 13,
  };

  explicit ThriftReader(std::string_view bytes) : bytes_(bytes) {}

  /// Calls `field` with the number and the type of each field. It reads the value and returns true;
  /// where it returns false, the value is skipped.
  void read_struct(const std::function<bool(int64_t number, Type type)>& field);
  /// Calls `item` for each item of a list of this type; a list of another type is skipped.
  void read_list(Type type, const std::function<void()>& item);
  int64_t read_integer();  ///< of any width above 8 bits
  std::string_view read_binary();
  void skip(Type type);

  size_t consumed() const { return at_; }

 private:
  uint8_t next_byte();
  uint64_t next_varint();
  void enter();

  std::string_view bytes_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace tapestry::parquet
