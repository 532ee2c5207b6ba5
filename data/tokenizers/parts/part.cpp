#include "data/tokenizers/parts/part.h"

#include <algorithm>
#include <string_view>

#include "core/base/error.h"

namespace tapestry::tokenizers {

Part::Part(const Json& json, std::string place) : json_(json), place_(std::move(place)) {
  if (!json_.is_object()) refuse("must be an object");
}

void Part::refuse(const std::string& what) const {
  fail(ErrorKind::kData, "[tokenizer] ", place_, ' ', what, '.');
}

void Part::allow(std::initializer_list<const char*> keys) const {
  for (const auto& [key, value] : json_.items()) {
    if (key == "type" || value.is_null()) continue;
    const bool known = std::any_of(keys.begin(), keys.end(),
                                   [&](const char* name) { return std::string_view(name) == key; });
    if (!known) refuse(concat("has the unknown key ", key));
  }
}

bool Part::has(const char* key) const {
  const auto found = json_.find(key);
  return found != json_.end() && !found->is_null();
}

const Part::Json& Part::value(const char* key) const {
  if (!has(key)) refuse(concat("lacks ", key));
  return *json_.find(key);
}

std::string Part::text(const char* key) const {
  const Json& found = value(key);
  if (!found.is_string()) refuse(concat("must have a string as ", key, ", got ", found.dump()));
  return found.get<std::string>();
}
std::string Part::text(const char* key, const std::string& fallback) const {
  return has(key) ? text(key) : fallback;
}

bool Part::flag(const char* key, bool fallback) const {
  if (!has(key)) return fallback;
  const Json& found = value(key);
  if (!found.is_boolean()) refuse(concat("must have true or false as ", key));
  return found.get<bool>();
}

int64_t Part::integer(const char* key) const {
  const Json& found = value(key);
  if (!found.is_number_integer()) refuse(concat("must have a whole number as ", key));
  return found.get<int64_t>();
}
int64_t Part::integer(const char* key, int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

Part Part::part(const char* key) const { return {value(key), concat(place_, '.', key)}; }

std::vector<Part> Part::parts(const char* key) const {
  const Json& list = value(key);
  if (!list.is_array()) refuse(concat("must have a list as ", key));
  std::vector<Part> parts;
  for (size_t i = 0; i < list.size(); ++i) {
    parts.emplace_back(list[i], concat(place_, '.', key, '[', i, ']'));
  }
  return parts;
}

}  // namespace tapestry::tokenizers
