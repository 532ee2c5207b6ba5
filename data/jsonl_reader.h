// Reads JSON objects, one a line; private to data/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/record_files.h"
#include "data/text.h"

namespace tapestry {

/// Keeps only the fields that are asked for; the rest of an object is passed over as it is parsed.
/// Where and why a line is no JSON; "" if it is.
std::string json_problem(std::string_view line);

class JsonlReader : public RecordReader {
 public:
  JsonlReader(const RecordFile& file, const std::vector<RecordField>& fields);

  Row next(RecordValues& values) override;

 private:
  /// The record is left out. `error` is what an error says of it.
  Row odd(Row row, const std::string& reason, const std::function<std::string()>& error);

  const RecordFile file_;
  LineReader lines_;
  std::string line_;
  const std::vector<RecordField> fields_;
  std::vector<const char*> others_;  // what each field is instead of a text or a number
};

}  // namespace tapestry
