#include "data/points.h"

#include <charconv>
#include <cmath>

#include "core/error.h"
#include "data/encode_corpus.h"

namespace tapestry {
namespace {

void append_number(std::string& text, double value) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  text.append(digits, end);
}

void read_points(CorpusSpec spec, Points& points) {
  spec.validate();
  if (spec.kind() != CorpusSpec::Kind::kPoints) {
    fail(ErrorKind::kConfig, "[data] regression needs points in a csv, tsv or jsonl, got ",
         spec.str(), '.');
  }
  // Of more columns than two it must be said which ones are meant.
  const bool two = spec.x_column.empty() && spec.y_column.empty() && spec.jsonl.empty();
  spec.settle_columns(CorpusSpec::Kind::kPoints);
  RecordFile file = spec.record_file();
  const bool numbered = is_column_number(spec.x_column) && is_column_number(spec.y_column);
  // Numbers are no names: a first line tells by itself what it is.
  const bool maybe_header = file.header == "auto" && numbered;
  if (maybe_header) file.header = "no";
  const auto reader = open_records(file, {{spec.x_column}, {spec.y_column}});
  const int64_t before = points.size();
  RecordValues values;
  for (bool first = true; spec.limit == 0 || points.size() < before + spec.limit; first = false) {
    const RecordReader::Row row = reader->next(values);
    if (row == RecordReader::Row::kEnd) break;
    if (row == RecordReader::Row::kBlank) continue;
    double x = 0, y = 0;
    const bool whole = row == RecordReader::Row::kWhole && !(two && reader->columns() > 2);
    const bool is_x = whole && parse_number(values.texts[0], x);
    const bool is_y = whole && parse_number(values.texts[1], y);
    // Half a point is no header.
    if (first && maybe_header && whole && !is_x && !is_y) {
      if (reader->columns() == 2) continue;
      fail(ErrorKind::kData, "[data] ", reader->place(), " has the names of ", reader->columns(),
           " columns: name two of them in x_column and y_column.");
    }
    if (!is_x || !is_y) {
      const std::string got =
          !reader->reason().empty() ? reader->reason()
          : whole                   ? concat("'", values.texts[0], "' and '", values.texts[1], '\'')
                  : concat(reader->columns(), reader->columns() == 1 ? " column" : " columns",
                           reader->columns() > 2 ? "; x_column and y_column choose two" : "");
      fail(ErrorKind::kData, "[data] ", reader->place(), " must be two numbers, got ", got, '.');
    }
    points.x.push_back(x);
    points.y.push_back(y);
  }
  if (points.size() == before) fail(ErrorKind::kData, "[data] ", file.path, " has no point.");
}

}  // namespace

bool parse_number(const std::string& text, double& value) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return false;
  const size_t end = text.find_last_not_of(" \t") + 1;
  const auto [at, error] = std::from_chars(text.data() + begin, text.data() + end, value);
  return error == std::errc() && at == text.data() + end && std::isfinite(value);
}

std::string Points::csv() const {
  std::string text = "x,y\n";
  for (size_t i = 0; i < x.size(); ++i) {
    append_number(text, x[i]);
    text += ',';
    append_number(text, y[i]);
    text += '\n';
  }
  return text;
}

Points load_points(const std::vector<CorpusSpec>& specs) {
  check_not_empty(specs);
  Points points;
  for (const CorpusSpec& spec : specs) read_points(spec, points);
  return points;
}

}  // namespace tapestry
