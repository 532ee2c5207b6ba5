// Records as lines of JSON, whatever their file has; private to data/corpora/.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/corpora/records/record_files.h"

namespace tapestry {

class JsonLines {
 public:
  virtual ~JsonLines() = default;
  /// Sets `line` to the next record; false at the end.
  virtual bool next(std::string& line) = 0;
  /// True if the record returned last had more than LineReader::kMaxLineBytes: then it is empty.
  virtual bool was_too_long() const = 0;
  /// "file:line" of the record returned last.
  virtual std::string place() const = 0;
  /// The fields of the file, which all records have; none: each line has its own.
  virtual std::vector<std::string> names() const { return {}; }
};

/// The records of a file whose format has JSON, with these fields at least if the file has them; of
/// no fields with all. Throws Error(kData) as open_records() does.
std::unique_ptr<JsonLines> open_json_lines(const RecordFile& file,
                                           const std::vector<std::string>& fields);

}  // namespace tapestry
