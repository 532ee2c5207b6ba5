// The values of the pairs of a GGUF file.
#include <algorithm>
#include <charconv>
#include <limits>

#include "apps/interop/gguf/gguf_cursor.h"
#include "apps/interop/gguf/gguf_file.h"

namespace tapestry::interop {

const GgufFile::Value* GgufFile::value(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

bool GgufFile::is_text(const std::string& key) const {
  const Value* const found = value(key);
  return found != nullptr && found->type == GgufValueType::kText;
}

bool GgufFile::is_texts(const std::string& key) const {
  const Value* const found = value(key);
  return found != nullptr && found->type == GgufValueType::kList &&
         found->element == GgufValueType::kText;
}

bool GgufFile::is_integer(const std::string& key) const {
  using enum GgufValueType;
  const Value* const found = value(key);
  if (found == nullptr) return false;
  for (const GgufValueType type :
       {kUint8, kInt8, kUint16, kInt16, kUint32, kInt32, kUint64, kInt64}) {
    if (found->type == type) return true;
  }
  return false;
}

void GgufFile::refuse_type(const std::string& key, const char* expected) const {
  broken_gguf(file_.name, key, " is ", shown(key), ", expected ", expected);
}

int64_t GgufFile::integer_of(const std::string& key, const Value& value) const {
  GgufCursor at(file_, value.begin);
  switch (value.type) {
    case GgufValueType::kUint8:
      return at.number<uint8_t>(key);
    case GgufValueType::kInt8:
      return at.number<int8_t>(key);
    case GgufValueType::kUint16:
      return at.number<uint16_t>(key);
    case GgufValueType::kInt16:
      return at.number<int16_t>(key);
    case GgufValueType::kUint32:
      return at.number<uint32_t>(key);
    case GgufValueType::kInt32:
      return at.number<int32_t>(key);
    case GgufValueType::kInt64:
      return at.number<int64_t>(key);
    case GgufValueType::kUint64: {
      const auto number = at.number<uint64_t>(key);
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        broken_gguf(file_.name, key, " is ", number, ", which is too large");
      }
      return static_cast<int64_t>(number);
    }
    default:
      refuse_type(key, "an integer");
  }
}

std::optional<int64_t> GgufFile::integer(const std::string& key) const {
  const Value* const found = value(key);
  if (found == nullptr) return std::nullopt;
  return integer_of(key, *found);
}

// The decimal that the writer of the file had in mind: 1e-5, not 9.99999974e-06.
std::optional<double> GgufFile::real(const std::string& key) const {
  const Value* const found = value(key);
  if (found == nullptr) return std::nullopt;
  GgufCursor at(file_, found->begin);
  if (found->type == GgufValueType::kFloat64) return at.number<double>(key);
  if (found->type != GgufValueType::kFloat32) refuse_type(key, "a float32");
  char text[64];
  const auto shortest = std::to_chars(text, text + sizeof text, at.number<float>(key));
  double number = 0;
  std::from_chars(text, shortest.ptr, number);
  return number;
}

std::optional<bool> GgufFile::flag(const std::string& key) const {
  const Value* const found = value(key);
  if (found == nullptr) return std::nullopt;
  if (found->type != GgufValueType::kBool) refuse_type(key, "a bool");
  GgufCursor at(file_, found->begin);
  const auto byte = at.number<uint8_t>(key);
  if (byte > 1) broken_gguf(file_.name, key, " is the byte ", int{byte}, ", expected a bool");
  return byte == 1;
}

std::optional<std::string> GgufFile::text(const std::string& key) const {
  const Value* const found = value(key);
  if (found == nullptr) return std::nullopt;
  if (found->type != GgufValueType::kText) refuse_type(key, "a string");
  GgufCursor at(file_, found->begin);
  std::string text = at.bytes(found->count, key);
  if (find_invalid_utf8(text) != std::string::npos) broken_gguf(file_.name, key, " is not UTF-8");
  return text;
}

const GgufFile::Value* GgufFile::list(const std::string& key, GgufValueType element,
                                      const char* expected) const {
  const Value* const found = value(key);
  if (found == nullptr) return nullptr;
  if (found->type != GgufValueType::kList || found->element != element) refuse_type(key, expected);
  return found;
}

std::optional<std::vector<std::string>> GgufFile::texts(const std::string& key) const {
  const Value* const found = list(key, GgufValueType::kText, "an array of strings");
  if (found == nullptr) return std::nullopt;
  std::vector<std::string> texts;
  texts.reserve(found->count);
  GgufCursor at(file_, found->begin);
  for (uint64_t i = 0; i < found->count; ++i) {
    texts.push_back(at.text(key));
    if (find_invalid_utf8(texts.back()) != std::string::npos) {
      broken_gguf(file_.name, "element ", i, " of ", key, " is not UTF-8");
    }
  }
  return texts;
}

std::optional<std::vector<float>> GgufFile::reals(const std::string& key) const {
  const Value* const found = list(key, GgufValueType::kFloat32, "an array of float32");
  if (found == nullptr) return std::nullopt;
  std::vector<float> values(found->count);
  file_.read(found->begin, values.data(), values.size() * sizeof(float));
  return values;
}

std::optional<std::vector<int32_t>> GgufFile::integers(const std::string& key) const {
  // Writers of token_type have used both.
  const Value* const any = value(key);
  const bool no_sign = any != nullptr && any->element == GgufValueType::kUint32;
  const Value* const found =
      list(key, no_sign ? GgufValueType::kUint32 : GgufValueType::kInt32, "an array of int32");
  if (found == nullptr) return std::nullopt;
  std::vector<int32_t> values(found->count);
  file_.read(found->begin, values.data(), values.size() * sizeof(int32_t));
  return values;
}

std::string GgufFile::shown(const std::string& key) const {
  const Value* const found = value(key);
  if (found == nullptr) return "none";
  const Value& value = *found;
  switch (value.type) {
    case GgufValueType::kList:
      return concat("an array of ", value.count, ' ', row_of(value.element).name);
    case GgufValueType::kText: {
      constexpr uint64_t kShown = 64;
      GgufCursor at(file_, value.begin);
      const std::string begin = at.bytes(std::min(value.count, kShown), key);
      return concat('\'', begin, value.count > kShown ? "...'" : "'");
    }
    case GgufValueType::kBool:
      return flag(key) == true ? "true" : "false";
    case GgufValueType::kFloat32:
    case GgufValueType::kFloat64:
      return concat(*real(key));
    default:
      return std::to_string(integer_of(key, value));
  }
}

}  // namespace tapestry::interop
