#include "data/corpora/records/records.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/corpora/records/jsonl_reader.h"
#include "data/corpora/records/record_files.h"

namespace tapestry {
namespace {

using Json = nlohmann::json;

// A field of an object inside is called "outer.inner".
void add_fields(const Json& json, const std::string& prefix, Record& record) {
  for (const auto& [key, value] : json.items()) {
    const std::string name = prefix + key;
    if (value.is_string()) {
      record.add(name, value.get<std::string>());
    } else if (value.is_number()) {
      record.add(name, value.dump());
    } else {
      record.add_other(name, value.is_array()    ? "a list"
                             : value.is_object() ? "an object"
                             : value.is_null()   ? "null"
                             : value.get<bool>() ? "true"
                                                 : "false");
      if (value.is_object()) add_fields(value, name + '.', record);
    }
  }
}

}  // namespace

void Record::add(const std::string& name, std::string text) {
  fields_[name] = {std::move(text), nullptr};
}

void Record::add_other(const std::string& name, const char* kind) { fields_[name] = {"", kind}; }

std::vector<std::string> Record::names() const {
  std::vector<std::string> names;
  for (const auto& [name, field] : fields_) names.push_back(name);
  return names;
}

const Record::Field& Record::field(const std::string& name) const {
  const auto found = fields_.find(name);
  if (found != fields_.end()) return found->second;
  fail_missing(place_, "field", names(), name);
}

void Record::fail_kind(const std::string& name, const char* wanted, const std::string& got) const {
  fail(ErrorKind::kData, "[data] ", place_, ": the field '", name, "' must be ", wanted, ", got ",
       got, '.');
}

const std::string& Record::text(const std::string& name) const {
  const Field& it = field(name);
  if (it.other != nullptr) fail_kind(name, "a text or a number", it.other);
  return it.text;
}

int64_t Record::integer(const std::string& name) const {
  const std::string& digits = text(name);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    fail_kind(name, "a whole number", concat('\'', digits, '\''));
  }
  return value;
}

bool Record::flag(const std::string& name, bool absent) const {
  if (!has(name)) return absent;
  const Field& it = field(name);
  const std::string value = it.other != nullptr ? it.other : it.text;
  if (value != "true" && value != "false") fail_kind(name, "true or false", value);
  return value == "true";
}

Record parse_json_record(std::string_view line, const std::string& place) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    fail(ErrorKind::kData, "[data] ", place, " must be a JSON object, got ",
         json.is_discarded() ? json_problem(line) : "another value", '.');
  }
  Record record(place);
  add_fields(json, "", record);
  return record;
}

std::string Template::parse(std::string_view text, std::vector<Part>& parts) {
  std::string plain;
  const auto end_plain = [&] {
    if (!plain.empty()) parts.push_back({std::move(plain), false});
    plain.clear();
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c != '{' && c != '}') {
      plain += c;
    } else if (i + 1 < text.size() && text[i + 1] == c) {
      plain += c;
      ++i;
    } else if (c == '}') {
      return "must write a brace that is text as }}, got a single }.";
    } else {
      const size_t end = text.find_first_of("{}", i + 1);
      if (end == std::string_view::npos || text[end] == '{') {
        return "must close the brace of each field ({{ is a brace that is text).";
      }
      if (end == i + 1) return "must name the field in each pair of braces, got {}.";
      end_plain();
      parts.push_back({std::string(text.substr(i + 1, end - i - 1)), true});
      i = end;
    }
  }
  end_plain();
  return "";
}

std::string Template::problem_of(std::string_view text) {
  std::vector<Part> parts;
  const std::string problem = parse(text, parts);
  if (!problem.empty()) return problem;
  const bool any =
      std::any_of(parts.begin(), parts.end(), [](const Part& p) { return p.is_field; });
  return any ? "" : "must name a field of the data in braces, such as {question}.";
}

Template::Template(std::string_view text) {
  const std::string problem = problem_of(text);
  if (!problem.empty()) fail(ErrorKind::kConfig, "[template] '", text, "' ", problem);
  parse(text, parts_);
  for (const Part& part : parts_) {
    const bool known = std::find(fields_.begin(), fields_.end(), part.text) != fields_.end();
    if (part.is_field && !known) fields_.push_back(part.text);
  }
}

}  // namespace tapestry
