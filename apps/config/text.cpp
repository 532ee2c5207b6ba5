// The text side of the config tree: numbers in, YAML and JSON out.
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/config/tree.h"

namespace tapestry {
namespace {

using nlohmann::ordered_json;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_plain_string(const std::string& text) {
  static const std::string kSafe =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
  static const char* const kReserved[] = {"true", "false", "null", "yes", "no",
                                          "on",   "off",   "y",    "n"};
  if (text.empty() || text.find_first_not_of(kSafe) != std::string::npos) return false;
  if (text[0] == '-' || is_digit(text[0])) return false;
  std::string lower = text;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* word : kReserved) {
    if (lower == word) return false;
  }
  double number = 0;
  return !parse_yaml_double(text, number) && lower != ".inf" && lower != ".nan";
}

std::string yaml_scalar(const ConfigNode& node) {
  if (!node.quoted || is_plain_string(node.text)) return node.text;
  std::string out = "\"";
  for (const char c : node.text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f) {
      static const char* const kHex = "0123456789abcdef";
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  return out + '"';
}

bool is_leaf(const ConfigNode& node) {
  return node.kind == ConfigNode::Kind::kNull || node.kind == ConfigNode::Kind::kScalar;
}

bool fits_one_line(const ConfigNode& node) {
  if (is_leaf(node)) return true;
  for (const ConfigNode& item : node.items) {
    if (!is_leaf(item)) return false;
  }
  return node.entries.empty();
}

std::string inline_yaml(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::kNull:
      return "null";
    case ConfigNode::Kind::kScalar:
      return yaml_scalar(node);
    case ConfigNode::Kind::kMap:
      return "{}";
    case ConfigNode::Kind::kList:
      break;
  }
  std::string out = "[";
  for (const ConfigNode& item : node.items) {
    if (out.size() > 1) out += ", ";
    out += inline_yaml(item);
  }
  return out + "]";
}

void write_yaml(const ConfigNode& node, const std::string& indent, std::string& out);

/// "key: value" or "key:" with the block below.
void write_member(const std::string& head, const ConfigNode& value, const std::string& indent,
                  std::string& out) {
  if (fits_one_line(value)) {
    out += head + " " + inline_yaml(value) + "\n";
  } else {
    out += head + "\n";
    write_yaml(value, indent, out);
  }
}

void write_yaml(const ConfigNode& node, const std::string& indent, std::string& out) {
  for (const ConfigEntry& entry : node.entries) {
    const std::string key = yaml_scalar(ConfigNode::scalar(entry.key, true));
    write_member(indent + key + ":", entry.value, indent + "  ", out);
  }
  for (const ConfigNode& item : node.items) write_member(indent + "-", item, indent + "  ", out);
}

ordered_json json_of(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::kNull:
      return nullptr;
    case ConfigNode::Kind::kScalar:
      return node.quoted ? ordered_json(node.text) : ordered_json::parse(node.text);
    case ConfigNode::Kind::kList: {
      ordered_json list = ordered_json::array();
      for (const ConfigNode& item : node.items) list.push_back(json_of(item));
      return list;
    }
    case ConfigNode::Kind::kMap:
      break;
  }
  ordered_json map = ordered_json::object();
  for (const ConfigEntry& entry : node.entries) map[entry.key] = json_of(entry.value);
  return map;
}

}  // namespace

std::string to_yaml(const ConfigNode& node) {
  if (fits_one_line(node)) return inline_yaml(node) + "\n";
  std::string out;
  write_yaml(node, "", out);
  return out;
}

std::string to_json(const ConfigNode& node) {
  const auto keep_bytes = ordered_json::error_handler_t::replace;
  return json_of(node).dump(2, ' ', false, keep_bytes) + "\n";
}

bool parse_yaml_integer(const std::string& text, int64_t& value) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  if (text.size() > 1 && text[0] == '+' && is_digit(text[1])) ++begin;
  const auto [stop, error] = std::from_chars(begin, end, value);
  return error == std::errc() && stop == end;
}

bool parse_yaml_double(const std::string& text, double& value) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  if (begin != end && *begin == '+') ++begin;
  // from_chars also reads "inf" and "nan", which YAML spells with a dot.
  const char* digits = begin != end && *begin == '-' && begin == text.data() ? begin + 1 : begin;
  if (digits == end || !(is_digit(*digits) || *digits == '.')) return false;
  const auto [stop, error] = std::from_chars(begin, end, value);
  return error == std::errc() && stop == end && std::isfinite(value);
}

std::string shortest(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  (void)error;  // the longest double takes 24 characters
  return {buffer, end};
}

}  // namespace tapestry
