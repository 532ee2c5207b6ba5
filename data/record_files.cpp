#include "data/record_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "core/error.h"
#include "core/nearest_name.h"
#include "core/text.h"
#include "data/jsonl_reader.h"
#include "data/text.h"
#include "data/utf8.h"

namespace tapestry {
namespace {

// Commas as tables have them: prose puts a space behind.
bool has_column_comma(const std::string& line) {
  for (size_t at = line.find(','); at != std::string::npos; at = line.find(',', at + 1)) {
    if (at + 1 == line.size() || line[at + 1] != ' ') return true;
  }
  return false;
}

// What a line seems to be, if it is not of this format: "JSON: use jsonl".
std::string other_look(const std::string& line, RecordFormat format) {
  const size_t first = line.find_first_not_of(" \t");
  const char begin = first == std::string::npos ? ' ' : line[first];
  if (format == RecordFormat::kJsonl && begin == '[') {
    return "a JSON list: jsonl has an object in each line";
  }
  if (begin == '{') return format == RecordFormat::kJsonl ? "" : "JSON: use jsonl";
  if (line.find('\t') != std::string::npos) {
    return format == RecordFormat::kTsv ? "" : "columns between tabs: use tsv";
  }
  return has_column_comma(line) && format != RecordFormat::kCsv ? "CSV: use csv" : "";
}

std::string advice_on_line(const std::string& line, int64_t number, RecordFormat format) {
  const std::string look = other_look(line, format);
  return look.empty() ? "" : concat("; line ", number, " looks like ", look);
}

// Rows of columns. The first may be a header.
class TableReader : public RecordReader {
 public:
  TableReader(const RecordFile& file, const std::vector<RecordField>& fields)
      : file_(file), lines_(file.path), fields_(fields) {}

  Row next(RecordValues& values) override {
    if (!started_) start();
    if (pending_) {
      pending_ = false;
    } else if (!read_row()) {
      return Row::kEnd;
    }
    if (columns_ == 1 && is_blank(cells_[0])) return Row::kBlank;
    if (file_.format == RecordFormat::kCsv && columns_ > first_columns_) return Row::kLong;
    values.texts.resize(fields_.size());
    values.present.resize(fields_.size());
    for (size_t i = 0; i < fields_.size(); ++i) {
      const int64_t at = places_[i];
      const bool there = at >= 0 && at < columns_;
      if (!there && !fields_[i].optional) return Row::kShort;
      std::string& text = values.texts[i];
      if (there) {
        text = cells_[static_cast<size_t>(at)];
      } else {
        text.clear();
      }
      // An empty cell is how a table says that there is nothing.
      values.present[i] = there && !(fields_[i].optional && text.empty()) ? 1 : 0;
    }
    return Row::kWhole;
  }

 protected:
  // Sets cells_, columns_ and place_.
  virtual bool read_row() = 0;

  std::string& cell(int64_t i) {
    if (i == static_cast<int64_t>(cells_.size())) cells_.emplace_back();
    return cells_[static_cast<size_t>(i)];
  }

  const RecordFile file_;
  LineReader lines_;
  std::string line_;
  std::vector<std::string> cells_;  // the first columns_ of them
  int64_t last_wanted_ = -1;        // no later column is asked for; -1: not known yet

 private:
  void start() {
    started_ = true;
    const bool named = std::any_of(fields_.begin(), fields_.end(), [](const RecordField& field) {
      return field.needs_column() && !is_column_number(field.name);
    });
    const bool header = file_.header == "yes" ||
                        (file_.header == "auto" && (named || file_.format == RecordFormat::kCsv));
    pending_ = read_row();
    first_columns_ = columns_;
    if (!pending_) return;
    std::vector<std::string> names;
    for (int64_t i = 0; header && i < columns_; ++i) {
      names.emplace_back(strip(cells_[static_cast<size_t>(i)]));
    }
    pending_ = !header;
    for (const RecordField& field : fields_) {
      places_.push_back(place_of(field, names));
      last_wanted_ = std::max(last_wanted_, places_.back());
    }
  }

  // The column of a field, from 0; -1: there is none.
  int64_t place_of(const RecordField& field, const std::vector<std::string>& names) const {
    const auto found = std::find(names.begin(), names.end(), field.name);
    if (found != names.end()) return found - names.begin();
    if (is_column_number(field.name)) return std::stoll(field.name) - 1;
    if (!field.needs_column()) return -1;
    fail_missing(place_, "column", names, field.name, advice_on_line(line_, 1, file_.format));
  }

  const std::vector<RecordField> fields_;
  std::vector<int64_t> places_;
  int64_t first_columns_ = 0;
  bool started_ = false;
  bool pending_ = false;  // the first row is a record, and not returned yet
};

class TsvReader : public TableReader {
 public:
  using TableReader::TableReader;

 protected:
  bool read_row() override {
    if (!lines_.next(line_)) return false;
    place_ = lines_.place();
    columns_ = 0;
    for (size_t begin = 0; begin != std::string::npos;) {
      const size_t tab = line_.find('\t', begin);
      cell(columns_).assign(line_, begin, tab - begin);
      begin = tab == std::string::npos ? tab : tab + 1;
      if (columns_++ == last_wanted_) break;
    }
    return true;
  }
};

class CsvReader : public TableReader {
 public:
  using TableReader::TableReader;

 protected:
  bool read_row() override {
    if (!lines_.next(line_)) return false;
    place_ = lines_.place();
    columns_ = 0;
    for (size_t at = 0;; ++at) {
      std::string& out = cell(columns_++);
      if (at < line_.size() && line_[at] == '"') {
        out.clear();
        at = read_quoted(at + 1, out);
      } else {
        const size_t end = std::min(line_.find(',', at), line_.size());
        out.assign(line_, at, end - at);
        at = end;
      }
      if (at == line_.size()) return true;
    }
  }

 private:
  // Reads from behind the opening quote, over as many lines as it takes; returns the place behind
  // the closing one, where a comma or the end must be.
  size_t read_quoted(size_t at, std::string& out) {
    while (true) {
      const size_t quote = line_.find('"', at);
      if (quote == std::string::npos) {
        out.append(line_, at);
        out += '\n';
        if (static_cast<int64_t>(out.size()) > LineReader::kMaxLineBytes || !lines_.next(line_)) {
          fail(ErrorKind::kData, "[data] ", place_, ": a quoted field of the record that begins ",
               "here does not end, as RFC 4180 asks for.");
        }
        at = 0;
        continue;
      }
      out.append(line_, at, quote - at);
      at = quote + 1;
      if (at == line_.size() || line_[at] == ',') return at;
      if (line_[at] != '"') {
        fail(ErrorKind::kData, "[data] ", lines_.place(), ": expected a comma behind the quote at ",
             "byte ", quote + 1, ", got '", line_.substr(at, 1),
             "' (a quote inside a quoted field is written twice).");
      }
      out += '"';
      ++at;
    }
  }
};

}  // namespace

bool is_column_number(const std::string& name) {
  constexpr size_t kMostDigits = 9;
  return !name.empty() && name.size() <= kMostDigits &&
         name.find_first_not_of("0123456789") == std::string::npos &&
         name.find_first_not_of('0') != std::string::npos;
}

Drop drop_of(RecordReader::Row row) {
  switch (row) {
    case RecordReader::Row::kBlank:
      return Drop::kEmpty;
    case RecordReader::Row::kLong:
      return Drop::kMalformed;
    case RecordReader::Row::kInvalidUtf8:
      return Drop::kInvalidUtf8;
    default:
      return Drop::kMissingColumn;
  }
}

std::unique_ptr<RecordReader> open_records(const RecordFile& file,
                                           const std::vector<RecordField>& fields) {
  switch (file.format) {
    case RecordFormat::kTsv:
      return std::make_unique<TsvReader>(file, fields);
    case RecordFormat::kCsv:
      return std::make_unique<CsvReader>(file, fields);
    case RecordFormat::kJsonl:
      break;
  }
  return std::make_unique<JsonlReader>(file, fields);
}

std::string format_advice(const RecordFile& file) {
  if (!std::filesystem::is_regular_file(file.path)) return "";  // a pipe is read once
  LineReader lines(file.path);
  std::string line;
  while (lines.next(line) && is_blank(line)) {
  }
  return advice_on_line(line, lines.line_number(), file.format);
}

void fail_missing(const std::string& place, const char* kind, const std::vector<std::string>& names,
                  const std::string& wanted, const std::string& advice) {
  const std::string nearest = nearest_name(wanted, names);
  const std::string end = !advice.empty()   ? concat(advice, '.')
                          : nearest.empty() ? "."
                                            : concat("; did you mean '", nearest, "'?");
  fail(ErrorKind::kData, "[data] ", place, ": has ",
       names.empty() ? concat("no ", kind)
                     : concat("the ", kind, names.size() == 1 ? " " : "s ", join(names, ", ")),
       "; '", wanted, "' is none of them", end);
}

}  // namespace tapestry
