#include "data/record_files.h"

#include <algorithm>
#include <charconv>
#include <deque>
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

// The format that a line seems to have instead: "JSON: use jsonl".
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
  if (format == RecordFormat::kCsv && line.find(',') == std::string::npos &&
      line.find(';') != std::string::npos) {
    return "columns between semicolons: csv separates by commas (save it so, or replace the "
           "semicolons by tabs and use tsv)";
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
      reason_.clear();
      return counted(Row::kEnd);
    }
    if (!reason_.empty()) {
      return counted(Row::kOdd, [this] { return concat("[data] ", place_, ": ", reason_, '.'); });
    }
    return counted(row_of(values));
  }

 protected:
  // Sets cells_, columns_, place_ and reason_.
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
  Row row_of(RecordValues& values) {
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
      // An empty cell of a table means that there is no value.
      values.present[i] = there && !(fields_[i].optional && text.empty()) ? 1 : 0;
    }
    return Row::kWhole;
  }

  void start() {
    started_ = true;
    const bool named = std::any_of(fields_.begin(), fields_.end(), [](const RecordField& field) {
      return field.needs_column() && !is_column_number(field.name);
    });
    const bool header = file_.header == "yes" ||
                        (file_.header == "auto" && (named || file_.format == RecordFormat::kCsv));
    pending_ = read_row();
    // An unreadable header gives no names.
    if (!reason_.empty()) fail(ErrorKind::kData, "[data] ", place_, ": ", reason_, '.');
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

  // The column of a field, from 0; -1 if it is missing.
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
  CsvReader(const RecordFile& file, const std::vector<RecordField>& fields)
      : TableReader(file, fields) {
    lines_.pass_long_lines();
  }

 protected:
  bool read_row() override {
    reason_.clear();
    taken_.clear();
    if (!next_line()) return false;
    place_ = concat(file_.path, ':', number_);
    columns_ = 0;
    if (lines_.was_too_long() && again_.empty()) {
      reason_ = concat("a line of more than ", LineReader::kMaxLineBytes >> 20, " MiB");
      return true;
    }
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
      if (!reason_.empty() || at == line_.size()) return true;
    }
  }

 private:
  struct Line {
    std::string text;
    int64_t number;
  };

  // Reads the next line of the file, or one of those that an unclosed quote had consumed.
  bool next_line() {
    if (!again_.empty()) {
      line_ = std::move(again_.front().text);
      number_ = again_.front().number;
      again_.pop_front();
      return true;
    }
    if (!lines_.next(line_)) return false;
    number_ = lines_.line_number();
    return true;
  }

  // Reads from behind the opening quote, over as many lines as it takes; returns the place behind
  // the closing one, where a comma or the end must be. Otherwise reason_ names the fault, and the
  // next record begins with the next line.
  size_t read_quoted(size_t at, std::string& out) {
    while (true) {
      const size_t quote = line_.find('"', at);
      if (quote == std::string::npos) {
        out.append(line_, at);
        out += '\n';
        if (static_cast<int64_t>(out.size()) > LineReader::kMaxLineBytes || !next_line()) {
          return refuse(concat("a quoted field of the record that begins here, in column ",
                               columns_, ", does not end, as RFC 4180 asks for"));
        }
        taken_.push_back({line_, number_});
        at = 0;
        continue;
      }
      out.append(line_, at, quote - at);
      at = quote + 1;
      if (at == line_.size() || line_[at] == ',') return at;
      if (line_[at] != '"') {
        return refuse(concat("expected a comma behind the quote at byte ", quote + 1,
                             taken_.empty() ? "" : concat(" of line ", number_), ", got '",
                             line_.substr(at, 1),
                             "' (a quote inside a quoted field is written twice)"));
      }
      out += '"';
      ++at;
    }
  }

  // The lines that the quote had consumed are read again.
  size_t refuse(std::string reason) {
    reason_ = std::move(reason);
    again_.insert(again_.begin(), std::make_move_iterator(taken_.begin()),
                  std::make_move_iterator(taken_.end()));
    taken_.clear();
    return 0;
  }

  int64_t number_ = 0;       // of line_
  std::vector<Line> taken_;  // lines of this record behind its first
  std::deque<Line> again_;
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
    case RecordReader::Row::kOdd:
      return Drop::kMalformed;
    case RecordReader::Row::kInvalidUtf8:
      return Drop::kInvalidUtf8;
    default:
      return Drop::kMissingColumn;
  }
}

RecordReader::Row RecordReader::counted(Row row, const std::function<std::string()>& message) {
  if (row == Row::kWhole) any_whole_ = true;
  if (any_whole_) return row;
  if (message && odd_++ == 0) first_odd_ = message();
  if (odd_ > 0 && (row == Row::kEnd || odd_ == kMostOdd)) fail(ErrorKind::kData, first_odd_);
  return row;
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

std::string missing_name(const std::string& place, const char* kind,
                         const std::vector<std::string>& names, const std::string& wanted,
                         const std::string& advice) {
  const std::string nearest = nearest_name(wanted, names);
  const std::string end = !advice.empty()   ? concat(advice, '.')
                          : nearest.empty() ? "."
                                            : concat("; did you mean '", nearest, "'?");
  return concat(place, ": has ",
                names.empty()
                    ? concat("no ", kind)
                    : concat("the ", kind, names.size() == 1 ? " " : "s ", join(names, ", ")),
                "; '", wanted, "' is none of them", end);
}

void fail_missing(const std::string& place, const char* kind, const std::vector<std::string>& names,
                  const std::string& wanted, const std::string& advice) {
  fail(ErrorKind::kData, "[data] ", missing_name(place, kind, names, wanted, advice));
}

}  // namespace tapestry
