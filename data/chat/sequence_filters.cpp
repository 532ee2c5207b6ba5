// Filters of lists and dictionaries.
#include <algorithm>
#include <functional>

#include "core/base/error.h"
#include "data/chat/functions.h"
#include "data/chat/text_functions.h"
#include "data/chat/value_text.h"

namespace tapestry::jinja {
namespace {

Value length(const Value& self, const Bound&) { return length_of(self); }

Value first(const Value& self, const Bound&) {
  const Values items = items_of(self);
  return items.empty() ? Value(Undefined{"no first item of nothing"}) : items.front();
}

Value last(const Value& self, const Bound&) {
  const Values items = items_of(self);
  return items.empty() ? Value(Undefined{"no last item of nothing"}) : items.back();
}

// The item, or its attribute, by which sort, unique and their like look at it.
Value key_of(const Value& item, const Value& attribute, bool case_sensitive) {
  Value key = item;
  if (attribute.get<std::string>() != nullptr) key = at_path(item, *attribute.get<std::string>());
  const std::string* const text = key.get<std::string>();
  return text != nullptr && !case_sensitive ? Value(with_case(*text, Case::kLower)) : key;
}

Value join(const Value& self, const Bound& arguments) {
  const std::string separator = arguments.text(0, "");
  std::string text;
  bool is_first = true;
  for (const Value& item : items_of(self)) {
    if (!is_first) text += separator;
    is_first = false;
    text += to_text(key_of(item, arguments[1], true));
    if (std::ssize(text) > kMaxTextBytes) throw Problem("the text is too long");
  }
  return text;
}

Values sorted(Values items, bool reverse, const std::function<Value(const Value&)>& key) {
  // Equal ones keep their order in either direction, as Python's sort() does.
  std::ranges::stable_sort(items, [&](const Value& a, const Value& b) {
    return reverse ? compare(key(b), key(a)) < 0 : compare(key(a), key(b)) < 0;
  });
  return items;
}

Value sort(const Value& self, const Bound& arguments) {
  return Value::list(sorted(items_of(self), arguments.flag(0, false), [&](const Value& item) {
    return key_of(item, arguments[2], arguments.flag(1, false));
  }));
}

Value dictsort(const Value& self, const Bound& arguments) {
  const std::string by = arguments.text(1, "key");
  if (by != "key" && by != "value") throw Problem("'dictsort' sorts by key or value");
  const Method* const items = method_of(self, "items");
  if (items == nullptr)
    throw Problem(concat("'dictsort' sorts dictionaries, got ", type_name(self)));
  return Value::list(
      sorted(items_of((*items)(self, {})), arguments.flag(2, false), [&](const Value& pair) {
        return key_of(pair.as_list()->items[by == "key" ? 0 : 1], {}, arguments.flag(0, false));
      }));
}

Value unique(const Value& self, const Bound& arguments) {
  Values kept, keys;
  for (const Value& item : items_of(self)) {
    const Value key = key_of(item, arguments[1], arguments.flag(0, false));
    if (std::ranges::any_of(keys, [&](const Value& other) { return equal(key, other); })) continue;
    keys.push_back(key);
    kept.push_back(item);
  }
  return Value::list(std::move(kept));
}

Value extreme(const Value& self, const Bound& arguments, int sign) {
  const Values items = items_of(self);
  if (items.empty()) return Undefined{"no item of nothing"};
  const auto key = [&](const Value& item) {
    return key_of(item, arguments[1], arguments.flag(0, false));
  };
  Value best = items.front();
  for (const Value& item : items) {
    if (sign * compare(key(item), key(best)) > 0) best = item;
  }
  return best;
}

Value sum(const Value& self, const Bound& arguments) {
  int64_t whole = arguments.integer(1, 0);
  double real = 0;
  bool is_whole = true;
  for (const Value& item : items_of(self)) {
    const Value value = key_of(item, arguments[0], true);
    int64_t number = 0;
    double part = 0;
    if (to_integer(value, number)) {
      if (__builtin_add_overflow(whole, number, &whole)) {
        throw Problem("the number has more than 64 bits");
      }
    } else if (to_number(value, part)) {
      real += part;
      is_whole = false;
    } else {
      throw Problem(concat("'sum' adds numbers, got ", type_name(value)));
    }
  }
  return is_whole ? Value(whole) : Value(static_cast<double>(whole) + real);
}

Value reverse(const Value& self, const Bound&) {
  Values items = items_of(self);
  std::ranges::reverse(items);
  if (self.get<std::string>() == nullptr) return Value::list(std::move(items));
  std::string text;
  for (const Value& character : items) text += text_of(character);
  return text;
}

Value items(const Value& self, const Bound&) {
  if (self.is_undefined()) return Value::list({});
  const Method* const method = self.as_dict() != nullptr ? method_of(self, "items") : nullptr;
  if (method == nullptr) throw Problem(concat("'items' takes a dictionary, got ", type_name(self)));
  return (*method)(self, {});
}

const Method kSequenceFilters[] = {
    {"length", {}, 0, length},
    {"count", {}, 0, length},
    {"first", {}, 0, first},
    {"last", {}, 0, last},
    {"list", {}, 0, [](const Value& self, const Bound&) { return Value::list(items_of(self)); }},
    {"items", {}, 0, items},
    {"join", {"d", "attribute"}, 0, join},
    {"sort", {"reverse", "case_sensitive", "attribute"}, 0, sort},
    {"dictsort", {"case_sensitive", "by", "reverse"}, 0, dictsort},
    {"unique", {"case_sensitive", "attribute"}, 0, unique},
    {"max",
     {"case_sensitive", "attribute"},
     0,
     [](const Value& self, const Bound& a) { return extreme(self, a, 1); }},
    {"min",
     {"case_sensitive", "attribute"},
     0,
     [](const Value& self, const Bound& a) { return extreme(self, a, -1); }},
    {"sum", {"attribute", "start"}, 0, sum},
    {"reverse", {}, 0, reverse},
};

// The arguments behind the first `count`, for the filter or the test that those name.
Arguments behind(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  const auto given = std::min(count, rest.positional.size());
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(given));
  return rest;
}

Value map(const Value& self, const Arguments& arguments) {
  Values results;
  if (arguments.positional.empty()) {
    const Bound bound("map", {"attribute", "default"}, 1, arguments);
    for (const Value& item : items_of(self)) {
      const Value value = bound[0].get<std::string>() != nullptr ? at_path(item, bound.text(0))
                                                                 : item_of(item, bound[0]);
      results.push_back(value.is_undefined() && bound.has(1) ? bound[1] : value);
    }
  } else {
    const std::string& name = text_of(arguments.positional.front());
    const Arguments rest = behind(arguments, 1);
    for (const Value& item : items_of(self)) results.push_back(apply_filter(name, item, rest));
  }
  return Value::list(std::move(results));
}

// select(TEST ...) and selectattr(ATTRIBUTE, TEST ...); without a test it is the truth.
Value select(const Value& self, const Arguments& arguments, bool by_attribute, bool wanted) {
  const size_t names = by_attribute ? 1 : 0;
  if (arguments.positional.size() < names) throw Problem("the name of an attribute is missing");
  const bool has_test = arguments.positional.size() > names;
  const Arguments rest = behind(arguments, names + 1);
  Values kept;
  for (const Value& item : items_of(self)) {
    const Value value = by_attribute ? at_path(item, text_of(arguments.positional.front())) : item;
    const bool holds =
        has_test ? apply_test(text_of(arguments.positional[names]), value, rest) : truth(value);
    if (holds == wanted) kept.push_back(item);
  }
  return Value::list(std::move(kept));
}

}  // namespace

std::span<const Method> sequence_filters() { return kSequenceFilters; }

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments) {
  for (const auto& filters : {value_filters(), sequence_filters()}) {
    const auto found = std::ranges::find(filters, name, &Method::name);
    if (found != filters.end()) return (*found)(value, arguments);
  }
  if (name == "map") return map(value, arguments);
  if (name == "select") return select(value, arguments, false, true);
  if (name == "reject") return select(value, arguments, false, false);
  if (name == "selectattr") return select(value, arguments, true, true);
  if (name == "rejectattr") return select(value, arguments, true, false);
  throw Problem(concat("there is no filter '", name, "'"));
}

}  // namespace tapestry::jinja
