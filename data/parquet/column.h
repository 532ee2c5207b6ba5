// The values of a column in a row group, one after the other, with their levels (Melnik et al.
// 2010). In memory are one page and the dictionary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/files.h"
#include "data/parquet/footer.h"
#include "data/parquet/pages.h"

namespace tapestry::parquet {

/// Bytes anywhere in a file.
class Source {
 public:
  /// Throws Error(kData) as BufferedFile does; a pipe is none.
  explicit Source(const std::string& path);

  int64_t size() const { return size_; }
  const std::string& path() const { return file_.path(); }
  /// Sets `bytes` to those that begin at `at`; they must be in the file.
  void read(int64_t at, int64_t count, std::string& bytes);
  /// "[data] PATH WHAT."
  [[noreturn]] void fail_here(const std::string& what) const;

 private:
  BufferedFile file_;
  int64_t size_ = 0;
};

/// Numbers of `width` bits in Parquet's hybrid of runs and packed bits.
class HybridReader {
 public:
  HybridReader() = default;
  HybridReader(std::string_view bytes, int width) : bytes_(bytes), width_(width) {}

  /// False at the end of the bytes.
  bool next(uint32_t& value);

 private:
  bool begin_run();

  std::string_view bytes_;
  int width_ = 0;
  size_t at_ = 0, bit_ = 0;  // of the packed bits
  uint64_t left_ = 0;        // of the run
  uint32_t repeated_ = 0;
  bool is_packed_ = false;
};

class ColumnReader {
 public:
  /// `leaf` and `chunk` must live longer; `name` is for messages.
  ColumnReader(Source& source, const Node& leaf, const Chunk& chunk, std::string name);

  /// True behind the last value: then there are no levels.
  bool ended() const { return ended_; }
  int defined() const { return static_cast<int>(defined_); }
  int repeated() const { return static_cast<int>(repeated_); }
  /// Appends the value as JSON. Only if defined() is the leaf's most_defined. Numbers that JSON
  /// does not have are null.
  void append_json(std::string& text) const;
  /// Goes on to the next value. Throws Error(kData) naming the file and the column.
  void advance();

  [[noreturn]] void fail_here(const std::string& what) const;

 private:
  void next_page();
  void read_header(PageHeader& header);
  void begin_dictionary(const PageHeader& header);
  void begin_data(const PageHeader& header);
  void unpack(std::string_view packed, int64_t size, std::string& out) const;
  HybridReader take_levels(std::string_view& bytes, int most, int64_t encoding) const;
  void read_value();
  void read_plain();
  std::string_view take(std::string_view& bytes, size_t count) const;

  Source& source_;
  const Node& leaf_;
  const Chunk& chunk_;
  const std::string name_;
  int64_t at_;    // of the file: the next page
  int64_t left_;  // of the chunk
  int64_t left_of_page_ = 0;
  std::string packed_, levels_, page_, dictionary_;
  std::vector<std::string_view> entries_;  // of the dictionary
  bool has_dictionary_ = false;
  HybridReader repetitions_, definitions_, indices_;
  enum class Values { kPlain, kIndices, kBits } values_ = Values::kPlain;
  std::string_view plain_;  // the rest of the page
  size_t bit_ = 0;          // of plain truth values
  bool ended_ = false;
  uint32_t defined_ = 0, repeated_ = 0;
  std::string_view value_;  // bytes of the value as PLAIN has them, a text without its length
  bool truth_ = false;
};

/// Appends a text as JSON has it, between quotes. Bytes that are no UTF-8 stay.
void append_json_text(std::string& json, std::string_view text);

}  // namespace tapestry::parquet
