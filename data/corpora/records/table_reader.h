// Reads rows of columns, of which the first may name them; private to data/corpora/.
#pragma once

#include <string>
#include <vector>

#include "data/corpora/records/record_files.h"
#include "data/files/text.h"

namespace tapestry {

/// What a line that a format cannot read may be instead: "; line 3 looks like CSV: use csv", or "".
std::string advice_on_line(const std::string& line, int64_t number, const RecordFormat& format);

class TableReader : public RecordReader {
 public:
  TableReader(const RecordFile& file, const std::vector<RecordField>& fields)
      : file_(file), lines_(file.path), fields_(fields) {}

  Row next(RecordValues& values) override;
  std::vector<std::string> names() const override { return names_; }

 protected:
  /// Sets cells_, columns_, place_ and reason_.
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
  bool is_rectangular_ = false;     // no row has more columns than the first

 private:
  Row row_of(RecordValues& values);
  void start();
  /// The column of a field, from 0; -1 if it is missing.
  int64_t place_of(const RecordField& field) const;

  const std::vector<RecordField> fields_;
  std::vector<std::string> names_;  // as the header has them
  std::vector<int64_t> places_;
  int64_t first_columns_ = 0;
  bool started_ = false;
  bool pending_ = false;  // the first row is a record, and not returned yet
};

}  // namespace tapestry
