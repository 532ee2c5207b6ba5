#include "data/parquet/thrift.h"

namespace tapestry::parquet {
namespace {

constexpr int kDeepestStruct = 32;

// Truth values of a list or a map have a byte each, those of a struct none.
ThriftReader::Type type_of_item(ThriftReader::Type type) {
  using Type = ThriftReader::Type;
  return type == Type::kTrue || type == Type::kFalse ? Type::kByte : type;
}

}  // namespace

uint8_t ThriftReader::next_byte() {
  if (at_ == bytes_.size()) throw Damage{"its metadata are cut short", true};
  return static_cast<uint8_t>(bytes_[at_++]);
}

uint64_t ThriftReader::next_varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t byte = next_byte();
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  throw Damage{"its metadata have a number of more than 64 bits"};
}

void ThriftReader::enter() {
  if (++depth_ > kDeepestStruct) throw Damage{"its metadata nest too deeply"};
}

int64_t ThriftReader::read_integer() {
  const uint64_t zigzag = next_varint();
  return static_cast<int64_t>(zigzag >> 1) ^ -static_cast<int64_t>(zigzag & 1);
}

std::string_view ThriftReader::read_binary() {
  const uint64_t size = next_varint();
  if (size > bytes_.size() - at_) throw Damage{"its metadata are cut short", true};
  const std::string_view value = bytes_.substr(at_, size);
  at_ += size;
  return value;
}

void ThriftReader::read_struct(const std::function<bool(int64_t number, Type type)>& field) {
  enter();
  int64_t number = 0;
  while (true) {
    const uint8_t head = next_byte();
    const auto type = static_cast<Type>(head & 0xF);
    if (type == Type::kStop) break;
    // Apart from damage a number is small; unsigned sums do not overflow.
    const int64_t step = head >> 4;
    number =
        step != 0 ? static_cast<int64_t>(static_cast<uint64_t>(number) + step) : read_integer();
    if (!field(number, type)) skip(type);
  }
  --depth_;
}

void ThriftReader::read_list(Type type, const std::function<void()>& item) {
  const uint8_t head = next_byte();
  uint64_t size = head >> 4;
  if (size == 0xF) size = next_varint();
  const auto got = static_cast<Type>(head & 0xF);
  // Items without bytes could be more than anybody waits for.
  if (got == Type::kStop && size > 0) throw Damage{"its metadata have a list of no known type"};
  enter();
  for (uint64_t i = 0; i < size; ++i) {
    if (got != type) {
      skip(type_of_item(got));
    } else {
      item();
    }
  }
  --depth_;
}

void ThriftReader::skip(Type type) {
  switch (type) {
    case Type::kTrue:
    case Type::kFalse:
      return;
    case Type::kByte:
      next_byte();
      return;
    case Type::kInt16:
    case Type::kInt32:
    case Type::kInt64:
      next_varint();
      return;
    case Type::kDouble:
      for (int i = 0; i < 8; ++i) next_byte();
      return;
    case Type::kBinary:
      read_binary();
      return;
    case Type::kList:
    case Type::kSet:
      read_list(Type::kStop, [] {});
      return;
    case Type::kMap: {
      const uint64_t size = next_varint();
      if (size == 0) return;
      const uint8_t types = next_byte();
      enter();
      for (uint64_t i = 0; i < size; ++i) {
        skip(type_of_item(static_cast<Type>(types >> 4)));
        skip(type_of_item(static_cast<Type>(types & 0xF)));
      }
      --depth_;
      return;
    }
    case Type::kStruct:
      read_struct([](int64_t, Type) { return false; });
      return;
    case Type::kUuid:
      for (int i = 0; i < 16; ++i) next_byte();
      return;
    case Type::kStop:
      break;
  }
  throw Damage{"its metadata have a value of no known type"};
}

}  // namespace tapestry::parquet
