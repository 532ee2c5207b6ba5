#include "data/corpora/records/jsonl_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/corpora/records/records.h"
#include "data/files/text.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

using Json = nlohmann::json;

// Receives a parser's events, and keeps the path of names to the present place.
class FieldCollector : public nlohmann::json_sax<Json> {
 public:
  FieldCollector(const std::vector<RecordField>& fields, RecordValues& values,
                 std::vector<const char*>& others)
      : fields_(fields),
        values_(values),
        others_(others),
        items_(fields.size()),
        holders_(fields.size()) {}

  static constexpr std::string_view kObject = "an object";

  bool is_object() const { return is_object_; }
  /// What stands in the place of the object that should hold a list ("answers" of "answers.text");
  /// "" if nothing does, or a list of objects.
  std::string_view holder(size_t i) const { return holders_[i]; }

  bool null() override { return other("null"); }
  bool boolean(bool value) override {
    hold(value ? "true" : "false");
    return other(value ? "true" : "false");
  }
  bool number_integer(number_integer_t value) override { return number(json_integer(value)); }
  bool number_unsigned(number_unsigned_t value) override { return number(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& written) override { return number(written); }
  bool string(string_t& value) override {
    hold("a text");
    return text(value);
  }
  bool binary(binary_t&) override { return other("binary"); }

  bool start_object(std::size_t) override {
    if (depth_ == 0) is_object_ = true;
    if (depth_ > 0 && !at_item()) other("an object");
    if (depth_ > 0) hold(kObject);
    if (at_item()) ++objects_;
    ++depth_;
    if (lists_ > 0) return true;
    if (depth_ > 1) path_ += '.';
    prefixes_.push_back(path_.size());
    return true;
  }
  bool key(string_t& name) override {
    if (in_item()) item_key_ = name;
    if (lists_ > 0) return true;
    path_.resize(prefixes_.back());
    path_ += name;
    return true;
  }
  bool end_object() override {
    --depth_;
    if (lists_ > 0) return true;
    path_.resize(prefixes_.back());
    prefixes_.pop_back();
    if (!path_.empty()) path_.pop_back();  // the dot
    return true;
  }
  bool start_array(std::size_t) override {
    const int64_t i = wanted();
    if (i >= 0 &&
        (fields_[static_cast<size_t>(i)].list || fields_[static_cast<size_t>(i)].or_list)) {
      set(static_cast<size_t>(i), fields_[static_cast<size_t>(i)].list ? "" : kNone, nullptr);
      list_ = i;
    } else if (depth_ > 0) {
      other("a list");
      if (i < 0 && lists_ == 0) begin_objects();
    }
    ++depth_;
    ++lists_;
    return true;
  }
  bool end_array() override {
    --depth_;
    if (--lists_ > 0) return true;
    if (item_depth_ > 0) check_objects();
    list_ = -1, item_depth_ = 0, objects_ = 0;
    return true;
  }
  bool parse_error(std::size_t byte, const std::string& token,
                   const Json::exception& error) override {
    const std::string_view said = error.what();
    is_half_surrogate_ = said.find("surrogate") != std::string_view::npos;
    constexpr size_t kShown = 40;
    const size_t from = token.size() - std::min(token.size(), kShown);
    std::string shown = concat(from > 0 ? "..." : "", std::string_view(token).substr(from));
    if (find_invalid_utf8(shown) != std::string::npos) shown.clear();  // half a character
    problem_ = concat(is_half_surrogate_ ? "half a surrogate pair" : "no JSON", " at byte ", byte,
                      path_.empty() ? "" : concat(", in the field '", path_, '\''),
                      shown.empty() ? "" : concat(": ", shown));
    return false;
  }

  /// The place and reason why the line is not JSON.
  const std::string& problem() const { return problem_; }
  bool is_half_surrogate() const { return is_half_surrogate_; }

 private:
  // The field that is asked for at this place of the object, or -1.
  int64_t wanted() const {
    if (depth_ == 0 || (lists_ > 0 && !in_item())) return -1;
    for (size_t i = 0; i < fields_.size(); ++i) {
      const std::string& name = fields_[i].name;
      const bool here = lists_ == 0 ? name == path_
                                    : is_below(name) && name.substr(path_.size() + 1) == item_key_;
      if (here) return static_cast<int64_t>(i);
    }
    return -1;
  }
  // A list of objects may have fields as lists: "a.b" is that of each object's b.
  void begin_objects() {
    for (size_t i = 0; i < fields_.size(); ++i) {
      if (!fields_[i].list || !is_below(fields_[i].name)) continue;
      set(i, "", nullptr);
      item_depth_ = depth_ + 2;
    }
  }
  void check_objects() {
    for (size_t i = 0; i < fields_.size(); ++i) {
      if (!fields_[i].list || !is_below(fields_[i].name) || others_[i] != nullptr) continue;
      if (items_[i] != objects_) others_[i] = "a list of objects that lack it";
    }
  }
  // Notes a value in the place of an object with lists, unless it is a field of its own.
  void hold(std::string_view kind) {
    if (lists_ > 0 || wanted() >= 0) return;
    for (size_t i = 0; i < fields_.size(); ++i) {
      if (fields_[i].list && is_below(fields_[i].name)) holders_[i] = kind;
    }
  }
  bool is_below(const std::string& name) const {
    return name.size() > path_.size() && name.starts_with(path_) && name[path_.size()] == '.';
  }
  // In such an object; at the place of one.
  bool in_item() const { return item_depth_ > 0 && lists_ == 1 && depth_ == item_depth_; }
  bool at_item() const { return item_depth_ > 0 && lists_ == 1 && depth_ == item_depth_ - 1; }

  bool number(const std::string& value) {
    hold("a number");
    return text(value);
  }
  bool text(const std::string& value) {
    if (list_ >= 0) return item(static_cast<size_t>(list_), value);
    if (at_item()) return no_object();
    if (const int64_t i = wanted(); i >= 0) {
      if (lists_ > 0) return item(static_cast<size_t>(i), value);
      const bool list = fields_[static_cast<size_t>(i)].list;
      set(static_cast<size_t>(i), value, list ? "another value" : nullptr);
    }
    return true;
  }
  bool other(const char* kind) {
    if (list_ >= 0) others_[static_cast<size_t>(list_)] = kOtherItems;
    if (at_item()) return no_object();
    if (const int64_t i = wanted(); i >= 0) {
      if (lists_ > 0) {
        others_[static_cast<size_t>(i)] = kOtherItems;
      } else {
        set(static_cast<size_t>(i), "", kind);
      }
    }
    return true;
  }
  bool no_object() {
    for (size_t i = 0; i < fields_.size(); ++i) {
      if (fields_[i].list && is_below(fields_[i].name)) others_[i] = kOtherItems;
    }
    return true;
  }
  // An item of a list that is asked for.
  bool item(size_t at, const std::string& value) {
    const bool list = fields_[at].list;
    const char separator = list ? RecordField::kListSeparator : ',';
    if (lists_ > 1 || value.find(separator) != std::string::npos) {
      others_[at] = list ? kOtherItems : "a list of texts with commas, or of lists";
    } else if (!list && (value == kNone || is_blank(value))) {
      others_[at] = "a list of texts that are blank or -";
    }
    std::string& all = values_.texts[at];
    all = items_[at]++ == 0 ? value : all + separator + value;
    return true;
  }
  void set(size_t i, const std::string& value, const char* kind) {
    values_.texts[i] = value;
    others_[i] = values_.present[i] != 0 ? "several values" : kind;
    values_.present[i] = 1;
  }

  static constexpr const char* kNone = "-";  // of an empty or_list
  static constexpr const char* kOtherItems = "a list of other values";

  const std::vector<RecordField>& fields_;
  RecordValues& values_;
  std::vector<const char*>& others_;
  std::string path_;
  std::vector<size_t> prefixes_;  // the length of the path to each open object, its dot included
  int64_t depth_ = 0, lists_ = 0;
  int64_t list_ = -1;       // the field whose list is being read
  int64_t item_depth_ = 0;  // of the objects of a list whose members are asked for, else 0
  std::string item_key_;
  std::vector<int64_t> items_;  // of the field's list so far
  int64_t objects_ = 0;         // of the list of objects so far
  std::vector<std::string_view> holders_;
  bool is_object_ = false, is_half_surrogate_ = false;
  std::string problem_;
};

}  // namespace

std::string json_problem(std::string_view line) {
  const std::vector<RecordField> none;
  RecordValues values;
  std::vector<const char*> others;
  FieldCollector collector(none, values, others);
  return Json::sax_parse(line, &collector) ? "" : collector.problem();
}

JsonlReader::JsonlReader(const RecordFile& file, std::unique_ptr<JsonLines> lines,
                         const std::vector<RecordField>& fields)
    : file_(file), lines_(std::move(lines)), fields_(fields), others_(fields.size()) {}

RecordReader::Row JsonlReader::next(RecordValues& values) {
  do {
    if (!lines_->next(line_)) return counted(Row::kEnd);
  } while (is_blank(line_) && !lines_->was_too_long());
  place_ = lines_->place();
  if (lines_->was_too_long()) {
    const std::string problem =
        concat("a line of more than ", LineReader::kMaxLineBytes >> 20, " MiB");
    return odd(Row::kOdd, problem, [&] { return concat("[data] ", place_, " is ", problem, '.'); });
  }
  values.texts.resize(fields_.size());
  values.present.assign(fields_.size(), 0);
  reason_.clear();
  FieldCollector collector(fields_, values, others_);
  const bool is_json = Json::sax_parse(line_, &collector);
  const bool is_invalid = !is_json && find_invalid_utf8(line_) != std::string::npos;
  if (is_invalid) return counted(Row::kInvalidUtf8);
  const auto no_object = [&] {
    return concat("[data] ", place_, " must be a JSON object, got ",
                  is_json ? "another value" : collector.problem(), format_advice(file_), '.');
  };
  if (!is_json) {
    const Row row = collector.is_half_surrogate() ? Row::kInvalidUtf8 : Row::kOdd;
    return odd(row, collector.problem(), no_object);
  }
  if (!collector.is_object()) return odd(Row::kOdd, "another value than an object", no_object);
  for (size_t i = 0; i < fields_.size(); ++i) {
    const RecordField& field = fields_[i];
    const char* const other = others_[i];
    const std::string_view holder = collector.holder(i);
    if (!holder.empty() && holder != FieldCollector::kObject) {
      const std::string problem =
          concat("the field '", field.name.substr(0, field.name.rfind('.')),
                 "' must be an object of lists or a list of objects, got ", holder);
      return odd(Row::kOdd, problem, [&] { return concat("[data] ", place_, ": ", problem, '.'); });
    }
    if (values.present[i] == 0) {
      if (field.optional && holder.empty()) continue;
      const auto missing = [&](const std::string& place) {
        return missing_name(place, "field", json_names(line_, place_), field.name);
      };
      // Of a list that somebody misspelt the others are to be seen.
      const std::string problem =
          holder.empty() ? concat("no field '", field.name, '\'') : missing("").substr(2);
      return odd(Row::kShort, problem, [&] { return "[data] " + missing(place_); });
    }
    if (other == nullptr) continue;
    const std::string kind = other;
    if (field.optional && kind == "null") {
      values.present[i] = 0;
    } else if (field.optional && (kind == "true" || kind == "false")) {
      values.texts[i] = kind;
    } else {
      const std::string problem = concat("the field '", field.name, "' must be a ",
                                         field.list      ? "list of texts"
                                         : field.or_list ? "text or a list of texts"
                                                         : "text or a number",
                                         ", got ", kind);
      return odd(Row::kOdd, problem, [&] { return concat("[data] ", place_, ": ", problem, '.'); });
    }
  }
  return counted(Row::kWhole);
}

std::vector<std::string> JsonlReader::names() const {
  std::vector<std::string> names = lines_->names();
  return names.empty() ? json_names(line_, place_) : names;
}

RecordReader::Row JsonlReader::odd(Row row, const std::string& reason,
                                   const std::function<std::string()>& error) {
  reason_ = reason;
  return counted(row, error);
}

namespace {

class LinesOfText : public JsonLines {
 public:
  explicit LinesOfText(const std::string& path) : lines_(path) { lines_.pass_long_lines(); }

  bool next(std::string& line) override { return lines_.next(line); }
  bool was_too_long() const override { return lines_.was_too_long(); }
  std::string place() const override { return lines_.place(); }

 private:
  LineReader lines_;
};

std::unique_ptr<JsonLines> open_lines(const RecordFile& file, const std::vector<std::string>&) {
  return std::make_unique<LinesOfText>(file.path);
}

char first_character(const std::string& line) {
  const size_t first = line.find_first_not_of(" \t");
  return first == std::string::npos ? ' ' : line[first];
}

}  // namespace

extern const RecordFormat kJsonl = {
    .name = "jsonl",
    .meaning = "File of records, a JSON object in each line.",
    .endings = {".jsonl", ".ndjson"},
    .has_columns = false,
    .by_numbers = false,
    .look = "JSON",
    .looks_so = [](const std::string& line) { return first_character(line) == '{'; },
    .advice = [](const std::string& line) -> std::string {
      const bool list = first_character(line) == '[';
      return list ? "a JSON list: jsonl has an object in each line" : "";
    },
    .open = [](const RecordFile& file,
               const std::vector<RecordField>& fields) -> std::unique_ptr<RecordReader> {
      return std::make_unique<JsonlReader>(file, open_lines(file, {}), fields);
    },
    .json_lines = open_lines};

}  // namespace tapestry
