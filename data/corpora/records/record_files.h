// Files of records: TSV, CSV and JSONL, plain or compressed (data/files/unpacked_file.h), read by
// the names or the numbers of their fields. A new format is a file with its RecordFormat, which
// record_files.cpp declares and lists.
//
//  tsv    Columns between tabs, without quoting: a tab always separates.
//  csv    RFC 4180: commas, fields in double quotes that may hold commas, line ends and doubled
//         quotes, CRLF or LF. A line end inside quotes becomes LF.
//  jsonl  One JSON object a line; blank lines are passed over. "translation.en" is the field en of
//         the object translation.
//  parquet  Rows of columns (data/parquet/rows.h), read as the objects of a jsonl; a place counts
//         rows. It packs its columns itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/corpora/filter_counts.h"

namespace tapestry {

struct RecordField;
struct RecordFile;
class RecordReader;
class JsonLines;

/// What the rest of the program knows of a format.
struct RecordFormat {
  const char* name;                  ///< also the key of a config whose value is such a file
  const char* meaning;               ///< of that key
  std::vector<std::string> endings;  ///< of the names of such files
  bool has_columns;                  ///< columns, which the first line may name
  /// Columns are numbers where nobody names them. Otherwise fields have their usual names, and the
  /// first line of a file of columns is a header.
  bool by_numbers;
  bool is_text = true;                        ///< lines, plain or compressed
  const char* look;                           ///< "JSON": what a file of it looks like ...
  bool (*looks_so)(const std::string& line);  ///< ... and whether a line does
  /// Advice on a line that nearly has this format; "" if there is none.
  std::string (*advice)(const std::string& line);
  std::unique_ptr<RecordReader> (*open)(const RecordFile& file,
                                        const std::vector<RecordField>& fields);
  /// Opens a file whose records can hold lists and objects; null: they cannot. See
  /// open_json_lines().
  std::unique_ptr<JsonLines> (*json_lines)(const RecordFile& file,
                                           const std::vector<std::string>& fields) = nullptr;
};
extern const RecordFormat kTsv, kCsv, kJsonl, kParquet;
/// All formats, in the order in which messages name them: "tsv, csv, jsonl or parquet".
std::span<const RecordFormat* const> record_formats();
std::string record_format_names(const char* last = " or ");

struct RecordFile {
  static constexpr const char* kHeaders[] = {"auto", "yes", "no"};

  std::string path = {};
  const RecordFormat* format = &kTsv;
  /// Whether the first line names the columns. auto: it does in a csv, and in a tsv if a field is
  /// given by name.
  std::string header = "auto";
};

/// A field to read. In a tsv or csv it is a column's name in the header or its number, counted from
/// 1; in a jsonl or parquet a name, or a path of names with dots between them.
struct RecordField {
  std::string name;
  /// A record may lack it, or have null or nothing there; true and false count as texts.
  bool optional = false;
  /// A file of columns must have this one though records may leave it empty: somebody asked for it.
  bool asked_for = false;
  /// In a jsonl or parquet it is a list of texts or numbers, of which the value has each, with
  /// kListSeparator between them; in other formats a text.
  bool list = false;
  static constexpr char kListSeparator = '\x1f';
  /// In a jsonl or parquet it may be a list, too, of which the value has each with commas between
  /// them: "-" of an empty list. Items have no comma, and none is "-" or blank.
  bool or_list = false;

  bool needs_column() const { return !optional || asked_for; }
};

std::vector<std::string> names_of(const std::vector<RecordField>& fields);

/// True if a field's name is the number of a column.
bool is_column_number(const std::string& name);

/// The values of one record's fields, in the order in which they were asked for.
struct RecordValues {
  std::vector<std::string> texts;  ///< texts, or numbers as they are written
  std::vector<char> present;       ///< 0: an optional field that the record lacks
};

/// Streams the records of a file.
class RecordReader {
 public:
  enum class Row {
    kEnd,
    kWhole,
    kBlank,        ///< a line without any character but white space
    kShort,        ///< a line with fewer columns than asked for
    kLong,         ///< a line of a csv with more columns than its first
    kInvalidUtf8,  ///< a line of JSON that is not text, a lone half of a surrogate included
    kOdd,          ///< anything else that is not a record: reason() says why
  };

  virtual ~RecordReader() = default;
  /// Reads a record; only kWhole sets all of `values`. One odd record is one odd record: quotes
  /// that are not as RFC 4180 has them, a line that is no JSON object, or an object without a field
  /// or with a list, an object, null, true or false in its place. But where the first kMostOdd
  /// records, or all, are so, the file is another one than it is said to be: throws Error(kData),
  /// naming the place of the first; also as LineReader (data/files/text.h) does.
  virtual Row next(RecordValues& values) = 0;
  static constexpr int64_t kMostOdd = 100;
  /// What is wrong with the record read last, its column included; "" if the Row says it all.
  const std::string& reason() const { return reason_; }
  /// "file:line" where the record read last begins.
  const std::string& place() const { return place_; }
  /// Columns of that record; of a tsv only as many as were looked at.
  int64_t columns() const { return columns_; }
  /// The names of the fields of that record, or of the columns of its file; none of a table without
  /// a header.
  virtual std::vector<std::string> names() const = 0;

  /// "file:line: what is wrong", or only the place.
  std::string place_and_reason() const {
    return reason_.empty() ? place_ : place_ + ": " + reason_;
  }

 protected:
  /// Counts a record. Returns `row`, or throws at the end of a file without a whole one, and after
  /// kMostOdd odd ones; `message` then describes the first.
  Row counted(Row row, const std::function<std::string()>& message = {});

  std::string place_, reason_;
  int64_t columns_ = 0;

 private:
  std::string first_odd_;  // the error that it would be
  int64_t odd_ = 0;
  bool any_whole_ = false;
};

/// Why a row is left out that is neither kEnd nor kWhole.
Drop drop_of(RecordReader::Row row);

/// Opens a file. Throws Error(kData) as LineReader does, and, with a list of the columns, if the
/// header lacks a requested one.
std::unique_ptr<RecordReader> open_records(const RecordFile& file,
                                           const std::vector<RecordField>& fields);

/// Advice for a file without any usable record: "; line 1 looks like JSON: use jsonl", or "".
std::string format_advice(const RecordFile& file);

/// "PLACE: has the columns id, text; 'txt' is none of them; did you mean 'text'?". `kind` is
/// "column" or "field".
std::string missing_name(const std::string& place, const char* kind,
                         const std::vector<std::string>& names, const std::string& wanted,
                         const std::string& advice = "");
/// "[data] PLACE: has the columns id, text; 'txt' is none of them; did you mean 'text'?", as an
/// Error(kData). `kind` is "column" or "field".
[[noreturn]] void fail_missing(const std::string& place, const char* kind,
                               const std::vector<std::string>& names, const std::string& wanted,
                               const std::string& advice = "");

}  // namespace tapestry
