#include "data/corpora/records/record_files.h"

#include <filesystem>
#include <iterator>

#include "core/base/error.h"
#include "core/base/nearest_name.h"
#include "core/base/text.h"
#include "data/corpora/records/json_lines.h"
#include "data/corpora/records/table_reader.h"
#include "data/files/text.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

constexpr const RecordFormat* kFormats[] = {&kTsv, &kCsv, &kJsonl, &kParquet};
// What a line looks like: JSON may hold tabs, and both may hold commas.
constexpr const RecordFormat* kSurestFirst[] = {&kParquet, &kJsonl, &kTsv, &kCsv};
static_assert(std::size(kSurestFirst) == std::size(kFormats));

}  // namespace

std::span<const RecordFormat* const> record_formats() { return kFormats; }

std::string record_format_names(const char* last) {
  std::string names;
  for (const RecordFormat* format : kFormats) {
    names += concat(format == kFormats[0]              ? ""
                    : format == *std::rbegin(kFormats) ? last
                                                       : ", ",
                    format->name);
  }
  return names;
}

std::string advice_on_line(const std::string& line, int64_t number, const RecordFormat& format) {
  std::string look = format.advice(line);
  for (const RecordFormat* other : kSurestFirst) {
    if (!look.empty() || !other->looks_so(line)) continue;
    if (other == &format) return "";
    look = concat(other->look, ": use ", other->name);
  }
  return look.empty() ? "" : concat("; line ", number, " looks like ", look);
}

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
  return file.format->open(file, fields);
}

std::unique_ptr<JsonLines> open_json_lines(const RecordFile& file,
                                           const std::vector<std::string>& fields) {
  check(file.format->json_lines != nullptr, "data", file.format->name, " has no objects.");
  return file.format->json_lines(file, fields);
}

std::vector<std::string> names_of(const std::vector<RecordField>& fields) {
  std::vector<std::string> names;
  for (const RecordField& field : fields) names.push_back(field.name);
  return names;
}

std::string format_advice(const RecordFile& file) {
  if (!file.format->is_text) return "";
  if (!std::filesystem::is_regular_file(file.path)) return "";  // a pipe is read once
  LineReader lines(file.path);
  std::string line;
  while (lines.next(line) && is_blank(line)) {
  }
  return advice_on_line(line, lines.line_number(), *file.format);
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
