#include "data/corpora/records/records.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/error.h"
#include "data/corpora/records/jsonl_reader.h"
#include "data/corpora/records/record_files.h"

namespace tapestry {
namespace {

using Json = nlohmann::json;

// Adds what a parser meets to a record. A field of an object inside is called "outer.inner";
// nothing inside of a list is a field.
class RecordBuilder : public nlohmann::json_sax<Json> {
 public:
  explicit RecordBuilder(Record& record) : record_(record) {}

  bool is_object() const { return is_object_; }
  /// The first name that an object has twice, or "".
  const std::string& twice() const { return twice_; }

  bool null() override { return other("null"); }
  bool boolean(bool value) override { return other(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return text(json_integer(value)); }
  bool number_unsigned(number_unsigned_t value) override { return text(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& written) override { return text(written); }
  bool string(string_t& value) override { return text(value); }
  bool binary(binary_t&) override { return other("binary"); }

  bool start_object(std::size_t) override {
    if (open_.empty()) is_object_ = lists_ == 0;
    other("an object");
    open_.push_back({open_.empty() ? "" : name_ + '.', {}});
    return true;
  }
  bool key(string_t& name) override {
    Open& object = open_.back();
    if (!object.names.insert(name).second && twice_.empty()) twice_ = name;
    if (lists_ == 0) name_ = object.prefix + name;
    return true;
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override {
    other("a list");
    ++lists_;
    return true;
  }
  bool end_array() override {
    --lists_;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override {
    return false;
  }

 private:
  struct Open {
    std::string prefix;
    std::set<std::string> names;
  };

  bool is_field() const { return lists_ == 0 && !open_.empty(); }
  bool text(const std::string& value) {
    if (is_field()) record_.add(name_, value);
    return true;
  }
  bool other(const char* kind) {
    if (is_field()) record_.add_other(name_, kind);
    return true;
  }

  Record& record_;
  std::vector<Open> open_;  // the objects around the present place
  int64_t lists_ = 0;       // likewise
  std::string name_, twice_;
  bool is_object_ = false;
};

// Returns the first name that an object has twice, or "".
std::string build_record(std::string_view line, Record& record) {
  RecordBuilder builder(record);
  const bool is_json = Json::sax_parse(line, &builder);
  if (!is_json || !builder.is_object()) {
    fail(ErrorKind::kData, "[data] ", record.place(), " must be a JSON object, got ",
         is_json ? "another value" : json_problem(line), '.');
  }
  return builder.twice();
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
  Record record(place);
  const std::string twice = build_record(line, record);
  if (!twice.empty()) fail(ErrorKind::kData, "[data] ", place, ": names '", twice, "' twice.");
  return record;
}

std::vector<std::string> json_names(std::string_view line, const std::string& place) {
  Record record(place);
  build_record(line, record);
  return record.names();
}

// A parser gives whole numbers without a sign as unsigned ones.
std::string json_integer(int64_t value) { return value == 0 ? "-0" : std::to_string(value); }

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
