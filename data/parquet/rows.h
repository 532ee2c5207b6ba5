// Rows of Parquet files (parquet.apache.org/docs/file-format) as lines of JSON: what reads JSON
// lines then reads them alike, nested fields and lists included.
//
// Read are plain and dictionary encodings, data pages of both versions, no compression, snappy,
// gzip and zstd; texts, whole numbers, float, double and boolean, with nulls, in lists and groups.
// That is what the data sets of the Hugging Face hub have. Anything else is refused by its name, if
// a field that is asked for has it.
//
// The reader is our own: Debian 12 has no Arrow for C++, and a tenth of it is enough. Its pieces:
// thrift.h, footer.h, pages.h, column.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/parquet/column.h"
#include "data/parquet/footer.h"

namespace tapestry::parquet {

class RowReader {
 public:
  static constexpr int64_t kMostRowBytes = int64_t{64} << 20;  ///< of a row's JSON

  /// Reads `fields` (names with dots between them, as "translation.en") and what lies below them;
  /// of no fields all that can be read. Those that the file lacks are left out. In memory are one
  /// page and the dictionary of each column. Throws Error(kData), naming the file, if it is no
  /// Parquet file, is damaged, or has a field that cannot be read.
  RowReader(const std::string& path, const std::vector<std::string>& fields);
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;

  /// Sets `json` to an object with the fields of the next row; false behind the last. Throws as the
  /// constructor.
  bool next(std::string& json);
  /// True if the row would have had more bytes than kMostRowBytes: `json` is then none.
  bool was_too_long() const { return too_long_; }
  /// Number of the row read last, from 1.
  int64_t row() const { return row_; }
  /// The fields of the file: of a group its members, of a list itself.
  const std::vector<std::string>& names() const { return names_; }
  const std::string& path() const { return source_.path(); }

 private:
  // Marks what is read below a node; true if anything is.
  bool choose(Node& node, const std::string& path, bool wanted, bool is_item);
  void list_names(const Node& node, const std::string& path);
  void begin_group();
  ColumnReader& first_of(const Node& node) { return *columns_[static_cast<size_t>(node.first)]; }
  void write_value(const Node& node, std::string& json);
  void write_content(const Node& node, std::string& json);
  void write_items(const Node& list, const Node& items, std::string& json);
  void write_group(const Node& node, std::string& json);
  void pass(const Node& node);

  Source source_;
  const std::vector<std::string> fields_;
  Footer footer_;
  std::vector<std::string> names_, leaf_names_;
  std::vector<std::unique_ptr<ColumnReader>> columns_;  // of each leaf; null: not read
  size_t group_ = 0;                                    // the next one
  int64_t row_ = 0, left_ = 0;                          // of the group
  bool too_long_ = false;
};

}  // namespace tapestry::parquet
