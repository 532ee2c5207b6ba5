// Rows of Parquet as the records of a jsonl.
#include <algorithm>

#include "core/base/error.h"
#include "data/corpora/records/json_lines.h"
#include "data/corpora/records/jsonl_reader.h"
#include "data/parquet/rows.h"

namespace tapestry {
namespace {

class ParquetLines : public JsonLines {
 public:
  ParquetLines(const RecordFile& file, const std::vector<std::string>& fields)
      : rows_(file.path, fields) {}

  bool next(std::string& line) override {
    const bool any = rows_.next(line);
    if (any && rows_.was_too_long()) line.clear();
    return any;
  }
  bool was_too_long() const override { return rows_.was_too_long(); }
  std::string place() const override { return concat(rows_.path(), ':', rows_.row()); }
  std::vector<std::string> names() const override { return rows_.names(); }

  /// The file must have the columns that records need.
  void check_fields(const std::vector<RecordField>& fields) const {
    for (const RecordField& field : fields) {
      const bool there = std::ranges::find(rows_.names(), field.name) != rows_.names().end();
      if (!there && field.needs_column()) {
        fail_missing(rows_.path(), "column", rows_.names(), field.name);
      }
    }
  }

 private:
  parquet::RowReader rows_;
};

std::unique_ptr<RecordReader> open(const RecordFile& file, const std::vector<RecordField>& fields) {
  std::vector<std::string> names = names_of(fields);
  // What stands in the place of an object of lists must be seen, too.
  for (const RecordField& field : fields) {
    const size_t dot = field.name.rfind('.');
    if (field.list && dot != std::string::npos) names.push_back(field.name.substr(0, dot));
  }
  auto lines = std::make_unique<ParquetLines>(file, names);
  lines->check_fields(fields);
  return std::make_unique<JsonlReader>(file, std::move(lines), fields);
}

}  // namespace

extern const RecordFormat kParquet = {
    .name = "parquet",
    .meaning = "File of records in Parquet, with columns that are named as the fields of a jsonl.",
    .endings = {".parquet"},
    .has_columns = false,
    .by_numbers = false,
    .is_text = false,
    .look = "Parquet",
    .looks_so = [](const std::string& line) { return line.starts_with("PAR1"); },
    .advice = [](const std::string&) { return std::string(); },
    .open = open,
    .json_lines = [](const RecordFile& file, const std::vector<std::string>& fields)
        -> std::unique_ptr<JsonLines> { return std::make_unique<ParquetLines>(file, fields); }};

}  // namespace tapestry
