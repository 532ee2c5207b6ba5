// Reads JSON objects, one a line; private to data/corpora/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/corpora/records/json_lines.h"
#include "data/corpora/records/record_files.h"

namespace tapestry {

/// The place and reason why a line is not JSON; "" if it is.
std::string json_problem(std::string_view line);

/// Keeps only the requested fields; the rest of an object is skipped while it is parsed.
class JsonlReader : public RecordReader {
 public:
  JsonlReader(const RecordFile& file, std::unique_ptr<JsonLines> lines,
              const std::vector<RecordField>& fields);

  Row next(RecordValues& values) override;
  std::vector<std::string> names() const override;

 private:
  /// Leaves the record out. `error` gives the text for an error about it.
  Row odd(Row row, const std::string& reason, const std::function<std::string()>& error);

  const RecordFile file_;
  const std::unique_ptr<JsonLines> lines_;
  std::string line_;
  const std::vector<RecordField> fields_;
  std::vector<const char*> others_;  // the kind of each field that is neither text nor number
};

}  // namespace tapestry
