// The text side of the config tree: numbers in, YAML and JSON out.
#include <yaml-cpp/emitter.h>
#include <yaml-cpp/emittermanip.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/config/tree.h"
#include "core/base/error.h"

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
  if (text == "...") return false;  // ends a document
  if (text[0] == '-' || is_digit(text[0])) return false;
  std::string lower = text;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* word : kReserved) {
    if (lower == word) return false;
  }
  double number = 0;
  return !parse_yaml_double(text, number) && lower != ".inf" && lower != ".nan";
}

bool is_leaf(const ConfigNode& node) {
  return node.kind == ConfigNode::Kind::kNull || node.kind == ConfigNode::Kind::kScalar;
}

void emit_scalar(YAML::Emitter& out, const std::string& text, bool is_string) {
  if (is_string && !is_plain_string(text)) out << YAML::DoubleQuoted;
  out << text;
}

void emit(YAML::Emitter& out, const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::kNull:
      out << YAML::Null;
      return;
    case ConfigNode::Kind::kScalar:
      emit_scalar(out, node.text, node.quoted);
      return;
    case ConfigNode::Kind::kList:
      if (std::all_of(node.items.begin(), node.items.end(), is_leaf)) out << YAML::Flow;
      out << YAML::BeginSeq;
      for (const ConfigNode& item : node.items) emit(out, item);
      out << YAML::EndSeq;
      return;
    case ConfigNode::Kind::kMap:
      if (node.entries.empty()) out << YAML::Flow;
      out << YAML::BeginMap;
      for (const ConfigEntry& entry : node.entries) {
        out << YAML::Key;
        emit_scalar(out, entry.key, /*is_string=*/true);
        out << YAML::Value;
        emit(out, entry.value);
      }
      out << YAML::EndMap;
      return;
  }
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
  YAML::Emitter out;
  out.SetNullFormat(YAML::LowerNull);
  emit(out, node);
  check(out.good(), "config", "cannot be written as YAML: ", out.GetLastError(), '.');
  return std::string(out.c_str(), out.size()) + '\n';
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
