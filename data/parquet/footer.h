// The footer of a Parquet file: its columns as a tree, and where their bytes lie.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapestry::parquet {

/// Physical types, by their numbers in files.
enum class Physical : int8_t {
  kBoolean = 0,
  kInt32 = 1,
  kInt64 = 2,
  kInt96 = 3,
  kFloat = 4,
  kDouble = 5,
  kByteArray = 6,
  kFixedByteArray = 7
};

enum class Repetition : int8_t { kRequired = 0, kOptional = 1, kRepeated = 2 };

/// A column, or a group of columns.
struct Node {
  std::string name;
  Repetition repetition = Repetition::kRequired;
  Physical physical = Physical::kBoolean;  ///< of a leaf
  int64_t converted = -1;                  ///< ConvertedType; -1: none
  int64_t logical = -1;                    ///< the LogicalType's field; -1: none
  bool is_signed = true;                   ///< of whole numbers
  std::vector<Node> children = {};         ///< empty: a leaf
  int64_t leaf = -1;                       ///< of a leaf: its number among all
  /// The definition level from which on it is there, and the repetition level of its next item.
  int most_defined = 0, most_repeated = 0;
  int64_t first = -1;  ///< the first leaf in it that is read; -1: none is

  bool is_leaf() const { return children.empty(); }
  bool is_list() const;
  bool is_map() const;
  /// What its values are, for messages: "a DECIMAL", "a group".
  std::string kind() const;
  /// Why its own values are not read, "" if they are. Text, whole numbers, float, double, boolean.
  std::string unread() const;
};

/// Where the pages of a column in a row group lie.
struct Chunk {
  int64_t codec = 0;
  int64_t values = 0;          ///< nulls included
  int64_t begin = 0, end = 0;  ///< bytes of the file
  bool in_other_file = false, is_encrypted = false;
};

struct RowGroup {
  int64_t rows = 0;
  std::vector<Chunk> chunks;  ///< of each leaf
};

struct Footer {
  Node root;
  int64_t leaves = 0;
  std::vector<RowGroup> groups;
};

/// Reads the metadata. Throws ThriftReader::Damage if they are no such, or contradict each other or
/// the size of the file.
Footer read_footer(std::string_view metadata, int64_t file_bytes);

/// The name of a codec or an encoding by its number.
std::string codec_name(int64_t codec);
std::string encoding_name(int64_t encoding);

}  // namespace tapestry::parquet
