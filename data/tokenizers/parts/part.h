// A part of a tokenizer.json: reads its members strictly; private to data/tokenizers/parts/.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tapestry::tokenizers {

/// An object of the file. Missing members, unknown ones and those of another kind are refused with
/// their place: Error(kData).
class Part {
 public:
  using Json = nlohmann::json;

  Part(const Json& json, std::string place);

  /// "type"; the other keys must be among `keys`.
  std::string type() const { return text("type"); }
  void allow(std::initializer_list<const char*> keys) const;

  bool has(const char* key) const;  ///< and it is not null
  std::string text(const char* key) const;
  std::string text(const char* key, const std::string& fallback) const;
  bool flag(const char* key, bool fallback) const;
  int64_t integer(const char* key) const;
  int64_t integer(const char* key, int64_t fallback) const;
  /// A value of any kind.
  const Json& value(const char* key) const;
  Part part(const char* key) const;
  std::vector<Part> parts(const char* key) const;

  const Json& json() const { return json_; }
  const std::string& place() const { return place_; }
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  const Json& json_;
  std::string place_;
};

}  // namespace tapestry::tokenizers
