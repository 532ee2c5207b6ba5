// Records: named fields of text. data/corpora/records/record_files.h reads files of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tapestry {

/// The fields of one record, and the place that it comes from.
class Record {
 public:
  Record() = default;
  explicit Record(std::string place) : place_(std::move(place)) {}

  /// Adds a text, or a number as it is written.
  void add(const std::string& name, std::string text);
  /// Adds a field of another kind, which `kind` names: "a list", "null".
  void add_other(const std::string& name, const char* kind);

  bool has(const std::string& name) const { return fields_.contains(name); }
  /// The text of a field. Throws Error(kData), naming the place, if the record lacks it or if it is
  /// neither text nor number.
  const std::string& text(const std::string& name) const;
  /// Reads a field that must be a whole number.
  int64_t integer(const std::string& name) const;
  /// "true" or "false" of a field; `absent` without it.
  bool flag(const std::string& name, bool absent) const;

  /// "file:line"
  const std::string& place() const { return place_; }
  /// The names of the fields, for messages.
  std::vector<std::string> names() const;

 private:
  struct Field {
    std::string text;
    const char* other = nullptr;  ///< the kind of the value if it is neither text nor number
  };
  const Field& field(const std::string& name) const;
  [[noreturn]] void fail_kind(const std::string& name, const char* wanted,
                              const std::string& got) const;

  std::string place_;
  std::map<std::string, Field> fields_;
};

/// The record of one line of JSON. Throws Error(kData), naming the place, if it is no JSON object,
/// or if an object names a member twice.
Record parse_json_record(std::string_view line, const std::string& place);
/// The names of its fields, for messages: each once, whatever an object names twice.
std::vector<std::string> json_names(std::string_view line, const std::string& place);
/// A whole number of JSON that a parser gives as a signed one, as it is written.
std::string json_integer(int64_t value);

/// A text with places for fields: "Question: {question}\nAnswer:". `{{` and `}}` stand for braces.
class Template {
 public:
  Template() = default;
  /// Throws Error(kConfig, "[template] ...") if problem_of() finds something.
  explicit Template(std::string_view text);

  /// What is wrong with a text as a template; "" if nothing is.
  static std::string problem_of(std::string_view text);

  /// The names of its fields, each once, in the order of the text.
  const std::vector<std::string>& fields() const { return fields_; }
  /// The text with the fields of a record. Throws as Record::text() does.
  std::string fill(const Record& record) const {
    return fill_with(
        [&](const std::string& name) -> const std::string& { return record.text(name); });
  }
  /// The text, with each field replaced by text_of(name).
  template <class TextOf>
  std::string fill_with(TextOf text_of) const {
    std::string text;
    for (const Part& part : parts_) text += part.is_field ? text_of(part.text) : part.text;
    return text;
  }

 private:
  struct Part {
    std::string text;
    bool is_field = false;
  };
  // Sets `parts`; returns the problem, or "".
  static std::string parse(std::string_view text, std::vector<Part>& parts);

  std::vector<Part> parts_;
  std::vector<std::string> fields_;
};

}  // namespace tapestry
