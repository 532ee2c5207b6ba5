// Values of keys: numbers with their bounds, texts, lists, choices, columns.
#include "apps/config/session.h"

namespace tapestry {

ConfigRange positive() {
  ConfigRange range;
  range.low = 0;
  range.low_open = true;
  range.text = "positive";
  return range;
}

ConfigRange at_least(double low) {
  ConfigRange range;
  range.low = low;
  range.text = "at least " + shortest(low);
  return range;
}

ConfigRange between(double low, double high) {
  ConfigRange range;
  range.low = low;
  range.high = high;
  range.text = concat("in [", shortest(low), ", ", shortest(high), ']');
  return range;
}

ConfigRange from_up_to_below(double low, double high) {
  ConfigRange range = between(low, high);
  range.high_open = true;
  range.text = concat("in [", shortest(low), ", ", shortest(high), ')');
  return range;
}

ConfigRange above_up_to(double low, double high) {
  ConfigRange range = between(low, high);
  range.low_open = true;
  range.text = concat("in (", shortest(low), ", ", shortest(high), ']');
  return range;
}

void ConfigSection::mistyped(const std::string& key, const char* expected, const ConfigNode& got) {
  complain_at(got.location,
              concat('\'', full_name(key), "' must be ", expected, ", got ", got.describe(), '.'));
}

bool ConfigSection::in_range(const std::string& key, double value, const std::string& text,
                             const ConfigRange& range) {
  if (range.contains(value)) return true;
  complain(key, '\'', full_name(key), "' must be ", range.text, ", got ", text, '.');
  return false;
}

void ConfigSection::read_integer(const std::string& key, int64_t& value, int64_t low, int64_t high,
                                 const ConfigRange& range) {
  if (const ConfigNode* node = take(key)) {
    int64_t given = 0;
    if (node->kind != ConfigNode::Kind::kScalar || node->quoted ||
        !parse_yaml_integer(node->text, given)) {
      mistyped(key, "an integer", *node);
    } else if (given < low || given > high) {
      complain(key, '\'', full_name(key), "' must be in [", low, ", ", high, "], got ", given, '.');
    } else if (in_range(key, static_cast<double>(given), std::to_string(given), range)) {
      value = given;
    }
  }
  put(key, number_node(std::to_string(value)));
}

void ConfigSection::read_double(const std::string& key, double& value, const ConfigRange& range) {
  if (const ConfigNode* node = take(key)) {
    double given = 0;
    if (node->kind != ConfigNode::Kind::kScalar || node->quoted ||
        !parse_yaml_double(node->text, given)) {
      mistyped(key, "a number", *node);
    } else if (in_range(key, given, node->text, range)) {
      value = given;
    }
  }
  put(key, number_node(shortest(value)));
}

void ConfigSection::read_bool(const std::string& key, bool& value) {
  const ConfigNode* node = take(key);
  if (node != nullptr) {
    const std::string text = node->quoted ? "" : node->text;
    const bool yes = text == "true" || text == "True" || text == "TRUE";  // as YAML 1.2 has it
    const bool no = text == "false" || text == "False" || text == "FALSE";
    if (yes || no) {
      value = yes;
    } else {
      mistyped(key, "true or false", *node);
    }
  }
  put(key, number_node(value ? "true" : "false"));
}

void ConfigSection::read_string(const std::string& key, std::string& value) {
  const ConfigNode* node = take(key);
  if (node != nullptr) {
    if (node->kind == ConfigNode::Kind::kScalar) {
      value = node->text;
    } else {
      mistyped(key, "a text", *node);
    }
  }
  put(key, string_node(value));
}

void ConfigSection::read_list(const std::string& key, std::vector<double>& values,
                              const ConfigRange& range) {
  const ConfigNode* node = take(key);
  if (node != nullptr && node->kind != ConfigNode::Kind::kList) {
    mistyped(key, "a list of numbers", *node);
  } else if (node != nullptr) {
    std::vector<double> given;
    for (const ConfigNode& item : node->items) {
      double value = 0;
      const bool plain = item.kind == ConfigNode::Kind::kScalar && !item.quoted;
      if (!plain || !parse_yaml_double(item.text, value)) {
        mistyped(key, "a list of numbers", item);
      } else if (!range.contains(value)) {
        complain_at(item.location, concat("every number of '", full_name(key), "' must be ",
                                          range.text, ", got ", item.text, '.'));
      } else {
        given.push_back(value);
      }
    }
    if (given.size() == node->items.size()) values = std::move(given);
  }
  ConfigNode list = ConfigNode::list();
  for (const double value : values) list.items.push_back(number_node(shortest(value)));
  put(key, std::move(list));
}

void ConfigSection::read_list(const std::string& key, std::vector<std::string>& values) {
  const ConfigNode* node = take(key);
  if (node != nullptr && node->kind != ConfigNode::Kind::kList) {
    mistyped(key, "a list of texts", *node);
  } else if (node != nullptr) {
    std::vector<std::string> given;
    for (const ConfigNode& item : node->items) {
      if (item.kind == ConfigNode::Kind::kScalar) {
        given.push_back(item.text);
      } else {
        mistyped(key, "a list of texts", item);
      }
    }
    if (given.size() == node->items.size()) values = std::move(given);
  }
  ConfigNode list = ConfigNode::list();
  for (const std::string& value : values) list.items.push_back(string_node(value));
  put(key, std::move(list));
}

size_t ConfigSection::read_choice_index(const std::string& key,
                                        const std::vector<std::string>& names, size_t current,
                                        const std::string& with) {
  const ConfigNode* node = take(key);
  size_t chosen = current;
  if (node != nullptr) {
    const bool text = node->kind == ConfigNode::Kind::kScalar;
    const auto found = std::find(names.begin(), names.end(), text ? node->text : "");
    if (found != names.end()) {
      chosen = static_cast<size_t>(found - names.begin());
    } else {
      const std::string nearest = text ? nearest_name(node->text, names) : "";
      complain(key, '\'', full_name(key), "' must be ", names.size() == 1 ? "" : "one of ",
               join(names, ", "), with.empty() ? "" : " ", with, ", got ", node->describe(), '.',
               nearest.empty() ? "" : concat(" Did you mean '", nearest, "'?"));
    }
  }
  put(key, string_node(names[chosen]));
  return chosen;
}

void ConfigSection::read_column(const std::string& key, std::string& value, const char* meaning) {
  note(key, "column", meaning);
  if (const ConfigNode* node = take(key)) {
    if (node->kind != ConfigNode::Kind::kScalar || node->text.empty()) {
      mistyped(key, "the number or the name of a column", *node);
    } else {
      value = node->text;
    }
  }
  int64_t number = 0;
  const bool counts = parse_yaml_integer(value, number) && std::to_string(number) == value;
  put(key, counts ? number_node(value) : string_node(value));
}

void ConfigSection::read_optional_list(const std::string& key, std::vector<std::string>& values,
                                       const char* meaning) {
  const char* const kind = type_name<std::vector<std::string>>();
  if (reads_optional(true, "", key, kind, !values.empty(), meaning)) read(key, values, meaning);
}

bool ConfigSection::reads_optional(bool applies, const std::string& why, const std::string& key,
                                   const char* kind, bool has_value, const char* meaning) {
  if (applies && (given(key) || has_value)) return true;
  note(key, kind, meaning);
  session_.note_value(full_name(key), nullptr);
  applies ? know(key) : refuse(key, why);
  return false;
}

void ConfigSection::read_column_if(bool applies, const std::string& why, const std::string& key,
                                   std::string& value, const char* meaning) {
  if (reads_optional(applies, why, key, "column", !value.empty(), meaning))
    read_column(key, value, meaning);
}

}  // namespace tapestry
