// RFC 4180: columns between commas, and quotes.
#include <deque>

#include "core/base/error.h"
#include "data/corpora/records/table_reader.h"

namespace tapestry {
namespace {

// Commas as tables have them: prose puts a space behind.
bool has_column_comma(const std::string& line) {
  for (size_t at = line.find(','); at != std::string::npos; at = line.find(',', at + 1)) {
    if (at + 1 == line.size() || line[at + 1] != ' ') return true;
  }
  return false;
}

std::string advice_on_semicolons(const std::string& line) {
  const bool other = line.find_first_of(",\t{") != std::string::npos;
  return other || line.find(';') == std::string::npos
             ? ""
             : "columns between semicolons: csv separates by commas (save it so, or replace the "
               "semicolons by tabs and use tsv)";
}

class CsvReader : public TableReader {
 public:
  CsvReader(const RecordFile& file, const std::vector<RecordField>& fields)
      : TableReader(file, fields) {
    lines_.pass_long_lines();
    is_rectangular_ = true;
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

std::unique_ptr<RecordReader> open(const RecordFile& file, const std::vector<RecordField>& fields) {
  return std::make_unique<CsvReader>(file, fields);
}

}  // namespace

extern const RecordFormat kCsv = {
    .name = "csv",
    .meaning = "File of records in columns between commas, with quotes as RFC 4180 has them.",
    .endings = {".csv"},
    .has_columns = true,
    .by_numbers = false,
    .look = "CSV",
    .looks_so = has_column_comma,
    .advice = advice_on_semicolons,
    .open = open};

}  // namespace tapestry
