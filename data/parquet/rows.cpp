#include "data/parquet/rows.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "data/parquet/thrift.h"

namespace tapestry::parquet {
namespace {

constexpr std::string_view kMagic = "PAR1", kMagicOfEncrypted = "PARE";
constexpr int64_t kTail = 8;  // the size of the footer, and the magic

uint32_t little_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>(bytes[i])} << 8 * i;
  return value;
}

Footer footer_of(Source& source) {
  constexpr int64_t kMostFooter = int64_t{1} << 28;
  std::string head, tail, metadata;
  const int64_t size = source.size(), magic = std::ssize(kMagic);
  if (size < magic + kTail) source.fail_here("is no Parquet file: it is too short");
  source.read(0, magic, head);
  if (head == kMagicOfEncrypted) source.fail_here("is an encrypted Parquet file");
  if (head != kMagic) source.fail_here("is no Parquet file: it does not begin with PAR1");
  source.read(size - kTail, kTail, tail);
  if (tail.substr(kTail - magic) == kMagicOfEncrypted) {
    source.fail_here("is an encrypted Parquet file");
  }
  if (tail.substr(kTail - magic) != kMagic) {
    source.fail_here("is a Parquet file that is cut short: it does not end with PAR1");
  }
  const int64_t bytes = little_endian(tail);
  if (bytes > size - kTail - magic || bytes > kMostFooter) {
    source.fail_here("is a damaged Parquet file: its footer has no place in it");
  }
  source.read(size - kTail - bytes, bytes, metadata);
  try {
    return read_footer(metadata, size);
  } catch (const ThriftReader::Damage& damage) {
    source.fail_here(concat("is a damaged Parquet file: ", damage.what));
  }
}

std::string below(const std::string& path, const Node& node) {
  return path.empty() ? node.name : concat(path, '.', node.name);
}

// What the items of a list are: Parquet puts one or two levels between (LogicalTypes.md, backward
// compatibility).
bool items_are_inside(const Node& list, const Node& repeated) {
  return repeated.children.size() == 1 && repeated.name != "array" &&
         repeated.name != list.name + "_tuple";
}

}  // namespace

RowReader::RowReader(const std::string& path, const std::vector<std::string>& fields)
    : source_(path), fields_(fields), footer_(footer_of(source_)) {
  leaf_names_.resize(static_cast<size_t>(footer_.leaves));
  columns_.resize(static_cast<size_t>(footer_.leaves));
  for (const Node& child : footer_.root.children) list_names(child, child.name);
  for (Node& child : footer_.root.children) {
    choose(child, child.name, fields_.empty(), /*is_item=*/false);
  }
}

// Names of JSON end at a list.
void RowReader::list_names(const Node& node, const std::string& path) {
  if (node.is_leaf() || node.is_list() || node.is_map() ||
      node.repetition == Repetition::kRepeated) {
    names_.push_back(path);
    return;
  }
  for (const Node& child : node.children) list_names(child, below(path, child));
}

bool RowReader::choose(Node& node, const std::string& path, bool wanted, bool is_item) {
  const bool named = !is_item && std::ranges::find(fields_, path) != fields_.end();
  wanted = wanted || named;
  if (const std::string kind = node.unread(); wanted && !kind.empty()) {
    // Nobody asked for this one by its name.
    if (fields_.empty()) return false;
    source_.fail_here(concat("has a column '", path, "' that is ", kind,
                             ", of which no reader is here; texts, whole numbers, floats, doubles "
                             "and booleans are read, also in lists and groups"));
  }
  if (node.is_leaf()) {
    if (!wanted) return false;
    node.first = node.leaf;
    leaf_names_[static_cast<size_t>(node.leaf)] = path;
    for (const RowGroup& group : footer_.groups) {
      const Chunk& chunk = group.chunks[static_cast<size_t>(node.leaf)];
      const auto refuse = [&](const std::string& what) {
        source_.fail_here(concat("has a column '", path, "' that ", what));
      };
      if (chunk.is_encrypted) refuse("is encrypted");
      if (chunk.in_other_file) refuse("lies in another file");
      if (!is_known_codec(chunk.codec)) {
        refuse(concat("is packed by ", codec_name(chunk.codec),
                      ", of which no reader is here; SNAPPY, GZIP, ZSTD and UNCOMPRESSED are "
                      "read"));
      }
    }
    return true;
  }
  if (node.is_map()) return false;
  // An item has the list's name. If it is a group, its members have names below, as in its JSON.
  if (node.is_list()) {
    Node& repeated = node.children.front();
    Node& item = items_are_inside(node, repeated) ? repeated.children.front() : repeated;
    if (choose(item, path, wanted, /*is_item=*/true)) node.first = repeated.first = item.first;
    return node.first >= 0;
  }
  for (Node& child : node.children) {
    const bool any = choose(child, below(path, child), wanted, /*is_item=*/false);
    if (any && node.first < 0) node.first = child.first;
  }
  return node.first >= 0;
}

void RowReader::begin_group() {
  const RowGroup& group = footer_.groups[group_++];
  left_ = group.rows;
  for (auto& column : columns_) column.reset();
  const auto open = [&](auto&& self, const Node& node) -> void {
    if (node.first < 0) return;
    for (const Node& child : node.children) self(self, child);
    if (!node.is_leaf()) return;
    const auto i = static_cast<size_t>(node.leaf);
    columns_[i] = std::make_unique<ColumnReader>(source_, node, group.chunks[i], leaf_names_[i]);
  };
  for (const Node& child : footer_.root.children) {
    if (left_ > 0) open(open, child);
  }
}

bool RowReader::next(std::string& json) {
  while (left_ == 0) {
    if (group_ == footer_.groups.size()) return false;
    begin_group();
  }
  --left_;
  ++row_;
  too_long_ = false;
  json.clear();
  write_group(footer_.root, json);
  for (const auto& column : columns_) {
    if (column == nullptr) continue;
    if (!column->ended() && (column->repeated() != 0 || left_ == 0)) {
      column->fail_here("it has more values than rows");
    }
  }
  if (std::ssize(json) > kMostRowBytes) too_long_ = true;
  return true;
}

void RowReader::write_group(const Node& node, std::string& json) {
  json += '{';
  bool is_first = true;
  for (const Node& child : node.children) {
    if (child.first < 0) continue;
    if (!is_first) json += ',';
    is_first = false;
    append_json_text(json, child.name);
    json += ':';
    write_value(child, json);
  }
  json += '}';
}

void RowReader::write_value(const Node& node, std::string& json) {
  if (node.repetition == Repetition::kRepeated) return write_items(node, node, json);
  ColumnReader& first = first_of(node);
  if (first.ended()) first.fail_here("it has fewer values than rows");
  if (node.repetition == Repetition::kOptional && first.defined() < node.most_defined) {
    json += "null";
    return pass(node);
  }
  write_content(node, json);
}

void RowReader::write_content(const Node& node, std::string& json) {
  if (node.is_list()) return write_items(node, node.children.front(), json);
  if (!node.is_leaf()) return write_group(node, json);
  ColumnReader& column = first_of(node);
  if (column.ended()) column.fail_here("it has fewer values than rows");
  if (column.defined() < node.most_defined) column.fail_here("it lacks a value that it must have");
  column.append_json(json);
  column.advance();
}

// `repeated` may be the list itself.
void RowReader::write_items(const Node& list, const Node& repeated, std::string& json) {
  ColumnReader& first = first_of(repeated);
  if (first.ended()) first.fail_here("it has fewer values than rows");
  json += '[';
  if (first.defined() < repeated.most_defined) {
    pass(repeated);
  } else {
    bool is_first = true;
    const bool inside = &list != &repeated && items_are_inside(list, repeated);
    do {
      if (std::ssize(json) > kMostRowBytes) {
        source_.fail_here(concat("has a list of more than ", kMostRowBytes >> 20, " MiB in row ",
                                 row_, ", column '",
                                 leaf_names_[static_cast<size_t>(repeated.first)], '\''));
      }
      if (!is_first) json += ',';
      is_first = false;
      if (inside) {
        write_value(repeated.children.front(), json);
      } else {
        write_content(repeated, json);
      }
    } while (!first.ended() && first.repeated() == repeated.most_repeated);
  }
  json += ']';
}

void RowReader::pass(const Node& node) {
  if (node.first < 0) return;
  for (const Node& child : node.children) pass(child);
  if (!node.is_leaf()) return;
  ColumnReader& column = first_of(node);
  if (column.ended()) column.fail_here("it has fewer values than rows");
  column.advance();
}

}  // namespace tapestry::parquet
