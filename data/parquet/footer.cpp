#include "data/parquet/footer.h"

#include <algorithm>
#include <iterator>

#include "core/base/error.h"
#include "data/parquet/thrift.h"

namespace tapestry::parquet {
namespace {

using Type = ThriftReader::Type;
using Damage = ThriftReader::Damage;

constexpr const char* kPhysical[] = {"BOOLEAN", "INT32",  "INT64",      "INT96",
                                     "FLOAT",   "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"};
constexpr const char* kConverted[] = {
    "UTF8",   "MAP",       "MAP_KEY_VALUE", "LIST",   "ENUM",    "DECIMAL", "DATE",    "TIME",
    "TIME",   "TIMESTAMP", "TIMESTAMP",     "UINT_8", "UINT_16", "UINT_32", "UINT_64", "INT_8",
    "INT_16", "INT_32",    "INT_64",        "JSON",   "BSON",    "INTERVAL"};
constexpr const char* kLogical[] = {"",        "STRING",  "MAP",      "LIST",      "ENUM",
                                    "DECIMAL", "DATE",    "TIME",     "TIMESTAMP", "INTERVAL",
                                    "INTEGER", "UNKNOWN", "JSON",     "BSON",      "UUID",
                                    "FLOAT16", "VARIANT", "GEOMETRY", "GEOGRAPHY"};
enum Converted : int64_t { kMap = 1, kMapKeyValue = 2, kList = 3, kUint8 = 11, kUint64 = 14 };
enum Logical : int64_t { kMapType = 2, kListType = 3, kInteger = 10, kNothing = 11 };

template <size_t count>
std::string name_in(const char* const (&names)[count], int64_t number, const char* kind) {
  const bool known = number >= 0 && number < static_cast<int64_t>(count) && *names[number] != 0;
  return known ? names[number] : concat(kind, ' ', number);
}

constexpr int kDeepestColumn = 64;

struct Element {
  Node node;
  int64_t children = 0;
  bool has_type = false;
};

int64_t read_number(ThriftReader& in, int64_t least, int64_t most) {
  const int64_t value = in.read_integer();
  if (value < least || value > most) throw Damage{"its metadata have a number out of bounds"};
  return value;
}

void read_logical(ThriftReader& in, Node& node) {
  in.read_struct([&](int64_t number, Type type) {
    if (type != Type::kStruct) return false;
    node.logical = number;
    if (number != kInteger) return false;
    in.read_struct([&](int64_t inner, Type truth) {
      if (inner == 2) node.is_signed = truth == Type::kTrue;
      return false;
    });
    return true;
  });
}

Element read_element(ThriftReader& in) {
  Element element;
  Node& node = element.node;
  in.read_struct([&](int64_t number, Type type) {
    const bool integer = type == Type::kInt32;
    if (number == 1 && integer) {
      element.has_type = true;
      node.physical = static_cast<Physical>(read_number(in, 0, std::ssize(kPhysical) - 1));
    } else if (number == 3 && integer) {
      node.repetition = static_cast<Repetition>(read_number(in, 0, 2));
    } else if (number == 4 && type == Type::kBinary) {
      node.name = in.read_binary();
    } else if (number == 5 && integer) {
      element.children = read_number(in, 0, INT32_MAX);
    } else if (number == 6 && integer) {
      node.converted = in.read_integer();
      if (node.converted >= kUint8 && node.converted <= kUint64) node.is_signed = false;
    } else if (number == 10 && type == Type::kStruct) {
      read_logical(in, node);
    } else {
      return false;
    }
    return true;
  });
  return element;
}

// The tree of elements in the order in which a walk meets them.
Node grow(std::vector<Element>& elements, size_t& at, int defined, int repeated, int depth,
          int64_t& leaves) {
  if (at == elements.size() || depth > kDeepestColumn) {
    throw Damage{"its columns are no tree"};
  }
  Element& element = elements[at++];
  Node node = std::move(element.node);
  if (depth > 0) {
    defined += node.repetition != Repetition::kRequired;
    repeated += node.repetition == Repetition::kRepeated;
  }
  node.most_defined = defined;
  node.most_repeated = repeated;
  for (int64_t i = 0; i < element.children; ++i) {
    node.children.push_back(grow(elements, at, defined, repeated, depth + 1, leaves));
  }
  if (node.is_leaf() && depth > 0) {
    if (!element.has_type) throw Damage{"a column of it has no type"};
    node.leaf = leaves++;
  }
  return node;
}

void read_chunk_metadata(ThriftReader& in, Chunk& chunk) {
  int64_t data = -1, dictionary = -1, bytes = -1;
  in.read_struct([&](int64_t number, Type type) {
    const auto read = [&](int64_t& value) {
      value = in.read_integer();
      return true;
    };
    if (number == 4 && type == Type::kInt32) return read(chunk.codec);
    if (type != Type::kInt64) return false;
    if (number == 5) return read(chunk.values);
    if (number == 7) return read(bytes);
    if (number == 9) return read(data);
    if (number == 11) return read(dictionary);
    return false;
  });
  // Some writers give 0 where there is no dictionary.
  chunk.begin = dictionary > 0 && dictionary < data ? dictionary : data;
  chunk.end = bytes;  // behind it
}

RowGroup read_group(ThriftReader& in, int64_t file_bytes) {
  RowGroup group;
  in.read_struct([&](int64_t number, Type type) {
    if (number == 3 && type == Type::kInt64) {
      group.rows = read_number(in, 0, INT64_MAX);
      return true;
    }
    if (number != 1 || type != Type::kList) return false;
    in.read_list(Type::kStruct, [&] {
      Chunk& chunk = group.chunks.emplace_back();
      bool any = false;
      in.read_struct([&](int64_t inner, Type kind) {
        if (inner == 1 && kind == Type::kBinary) {
          chunk.in_other_file = !in.read_binary().empty();
        } else if (inner == 3 && kind == Type::kStruct) {
          read_chunk_metadata(in, chunk);
          any = true;
        } else {
          chunk.is_encrypted |= inner == 8;
          return false;
        }
        return true;
      });
      if (!any || chunk.is_encrypted || chunk.in_other_file) return;
      const bool inside = chunk.begin >= 0 && chunk.begin <= file_bytes && chunk.end >= 0 &&
                          chunk.end <= file_bytes - chunk.begin && chunk.values >= 0;
      if (!inside) throw Damage{"a column of it lies outside of the file"};
      chunk.end += chunk.begin;
    });
    return true;
  });
  return group;
}

// What the writer says that the numbers or bytes are; "" if it says nothing.
std::string meaning_of(const Node& node) {
  if (node.logical >= 0) return name_in(kLogical, node.logical, "logical type");
  return node.converted >= 0 ? name_in(kConverted, node.converted, "converted type") : "";
}

}  // namespace

bool Node::is_list() const {
  return !is_leaf() && (converted == kList || logical == kListType) && children.size() == 1 &&
         children.front().repetition == Repetition::kRepeated;
}

bool Node::is_map() const {
  return !is_leaf() && (converted == kMap || converted == kMapKeyValue || logical == kMapType);
}

std::string Node::kind() const {
  if (!is_leaf()) return is_map() ? "a MAP" : "a group";
  const std::string physical_name = kPhysical[static_cast<size_t>(physical)];
  const std::string meaning = meaning_of(*this);
  return meaning.empty() ? physical_name : concat(meaning, " (", physical_name, ')');
}

std::string Node::unread() const {
  if (!is_leaf()) return is_map() ? kind() : "";
  if (physical == Physical::kInt96 || physical == Physical::kFixedByteArray) return kind();
  if (logical == kNothing) return "";  // nothing but nulls
  static constexpr std::string_view kRead[] = {"STRING",  "UTF8",    "ENUM",   "JSON",   "INTEGER",
                                               "INT_8",   "INT_16",  "INT_32", "INT_64", "UINT_8",
                                               "UINT_16", "UINT_32", "UINT_64"};
  const std::string meaning = meaning_of(*this);
  const bool read = meaning.empty() || std::ranges::find(kRead, meaning) != std::end(kRead);
  return read ? "" : kind();
}

Footer read_footer(std::string_view metadata, int64_t file_bytes) {
  ThriftReader in(metadata);
  std::vector<Element> elements;
  Footer footer;
  in.read_struct([&](int64_t number, Type type) {
    if (type != Type::kList || (number != 2 && number != 4)) return false;
    in.read_list(Type::kStruct, [&] {
      if (number == 2) {
        elements.push_back(read_element(in));
      } else {
        footer.groups.push_back(read_group(in, file_bytes));
      }
    });
    return true;
  });
  size_t at = 0;
  footer.root = grow(elements, at, 0, 0, 0, footer.leaves);
  if (at != elements.size()) throw Damage{"its columns are no tree"};
  for (const RowGroup& group : footer.groups) {
    if (std::ssize(group.chunks) != footer.leaves) {
      throw Damage{"a row group of it lacks columns"};
    }
  }
  return footer;
}

std::string codec_name(int64_t codec) {
  static constexpr const char* kNames[] = {"UNCOMPRESSED", "SNAPPY", "GZIP", "LZO",
                                           "BROTLI",       "LZ4",    "ZSTD", "LZ4_RAW"};
  return name_in(kNames, codec, "codec");
}

std::string encoding_name(int64_t encoding) {
  static constexpr const char* kNames[] = {"PLAIN",
                                           "",
                                           "PLAIN_DICTIONARY",
                                           "RLE",
                                           "BIT_PACKED",
                                           "DELTA_BINARY_PACKED",
                                           "DELTA_LENGTH_BYTE_ARRAY",
                                           "DELTA_BYTE_ARRAY",
                                           "RLE_DICTIONARY",
                                           "BYTE_STREAM_SPLIT"};
  return name_in(kNames, encoding, "encoding");
}

}  // namespace tapestry::parquet
