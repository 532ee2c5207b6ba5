// Columns between tabs.
#include "data/corpora/records/table_reader.h"

namespace tapestry {
namespace {

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

std::unique_ptr<RecordReader> open(const RecordFile& file, const std::vector<RecordField>& fields) {
  return std::make_unique<TsvReader>(file, fields);
}

}  // namespace

extern const RecordFormat kTsv = {
    .name = "tsv",
    .meaning = "File of records in columns between tabs.",
    .endings = {".tsv"},
    .has_columns = true,
    .by_numbers = true,
    .look = "columns between tabs",
    .looks_so = [](const std::string& line) { return line.find('\t') != std::string::npos; },
    .advice = [](const std::string&) { return std::string(); },
    .open = open};

}  // namespace tapestry
