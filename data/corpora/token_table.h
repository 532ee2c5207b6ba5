// Rows of lists of token ids: what is left of a corpus once it is encoded, in memory or mapped from
// a file.
//
// The file has, in the byte order of the machine, a header of 64 bytes, the ids as int32, the
// offsets of the lists as int64 at a multiple of 64, the facts, and a checksum for each block of
// these. The checksums are verified before anything is used: read() at the speed of memory on all
// threads, which keeps no page of the file. Later only the pages of the rows that are asked for
// come into memory, and the system may drop them again.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpora/filter_counts.h"

namespace tapestry {

class MappedFile;

/// Facts about an encoded corpus besides its rows.
struct CorpusFacts {
  FilterCounts counts;
  std::vector<int64_t> parts;      ///< rows of each corpus of the list
  std::vector<int64_t> numbers;    ///< more, by the kind of the table
  std::vector<std::string> texts;  ///< texts, also by name
  int64_t checksum = 0;            ///< XXH3 of the rows, by the table
};

/// Immutable. Row i has `columns` lists of ids.
class TokenTable {
 public:
  int64_t rows() const { return rows_; }
  std::span<const int32_t> list(int64_t row, int64_t column) const {
    const int64_t* const at = offsets_ + row * columns_ + column;
    return {ids_ + at[0], static_cast<size_t>(at[1] - at[0])};
  }
  int64_t length(int64_t row, int64_t column) const {
    const int64_t* const at = offsets_ + row * columns_ + column;
    return at[1] - at[0];
  }
  /// All lists, row by row, end to end.
  std::span<const int32_t> ids() const {
    return {ids_, static_cast<size_t>(offsets_[rows_ * columns_])};
  }
  /// True if the ids of a column lie in [0, limit). Reads them all, and keeps no page of a file.
  bool ids_are_below(int64_t column, int64_t limit) const;
  const CorpusFacts& facts() const { return facts_; }
  /// True if it comes from an existing file.
  bool from_cache() const { return from_cache_; }

  /// The table in a file; null if the file is missing, damaged, cut, or of another key or number of
  /// columns.
  static std::shared_ptr<const TokenTable> open(const std::string& path, uint64_t key,
                                                int64_t columns);

 private:
  friend class TableBuilder;

  std::shared_ptr<const void> owner_;
  std::shared_ptr<const MappedFile> mapping_;  // null: in memory
  const int32_t* ids_ = nullptr;
  const int64_t* offsets_ = nullptr;  // rows * columns + 1
  int64_t rows_ = 0;
  int64_t columns_ = 1;
  CorpusFacts facts_;
  bool from_cache_ = false;
};

/// Makes a table row by row.
class TableBuilder {
 public:
  /// Builds in memory.
  explicit TableBuilder(int64_t columns);
  /// Builds in a file, of which only a buffer is in memory. Functions then throw WriteFailure
  /// (data/files/atomic_file.h).
  TableBuilder(int64_t columns, const std::string& path, uint64_t key);
  ~TableBuilder();

  /// A list for each column.
  void add(std::initializer_list<std::span<const int32_t>> row);
  int64_t rows() const { return rows_; }
  /// Once, at the end.
  std::shared_ptr<const TokenTable> finish(CorpusFacts facts);

 private:
  struct File;
  struct Checksum;

  void flush();

  const int64_t columns_;
  int64_t rows_ = 0;
  int64_t all_ids_ = 0;
  std::vector<int32_t> ids_;      // all ids, or those that are not yet in the file
  std::vector<int64_t> offsets_;  // all offsets, or those that are not yet in the file
  std::unique_ptr<File> file_;
  std::unique_ptr<Checksum> checksum_;
};

/// Bytes as ids, to keep texts in a table.
std::vector<int32_t> ids_of_text(std::string_view text);
std::string_view text_of_ids(std::span<const int32_t> ids);

}  // namespace tapestry
