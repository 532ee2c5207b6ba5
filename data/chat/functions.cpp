#include "data/chat/functions.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/chat/text_functions.h"

namespace tapestry::jinja {

Bound::Bound(std::string_view who, const ParameterNames& parameters, int required,
             const Arguments& arguments)
    : who_(who), values_(parameters.size()) {
  const auto end = std::ranges::find(parameters, nullptr);
  if (std::ssize(arguments.positional) > end - parameters.begin()) {
    throw Problem(concat("'", who_, "' takes ", end - parameters.begin(),
                         " arguments at most, got ", arguments.positional.size()));
  }
  std::ranges::copy(arguments.positional, values_.begin());
  for (const Member& member : arguments.named) {
    const auto found = std::find(parameters.begin(), end, member.first);
    if (found == end) throw Problem(concat("'", who_, "' has no argument '", member.first, "'"));
    values_[static_cast<size_t>(found - parameters.begin())] = member.second;
  }
  for (size_t i = arguments.positional.size(); i < static_cast<size_t>(required); ++i) {
    if (!has(i)) throw Problem(concat("'", who_, "' needs the argument '", parameters[i], "'"));
  }
}

std::string Bound::text(size_t i) const {
  const std::string* const text = values_[i].get<std::string>();
  if (text != nullptr) return *text;
  throw Problem(concat("'", who_, "' takes a text, got ", type_name(values_[i])));
}

int64_t Bound::integer(size_t i, int64_t absent) const {
  int64_t number = absent;
  if (has(i) && !to_integer(values_[i], number)) {
    throw Problem(concat("'", who_, "' takes an integer, got ", type_name(values_[i])));
  }
  return number;
}

const std::string& text_of(const Value& value) {
  const std::string* const text = value.get<std::string>();
  if (text != nullptr) return *text;
  check_defined(value);
  throw Problem(concat("expected a text, got ", type_name(value)));
}

Value list_of(std::vector<std::string> texts) {
  return Value::list(
      {std::make_move_iterator(texts.begin()), std::make_move_iterator(texts.end())});
}

Value item_of(const Value& value, const Value& name) {
  check_defined(value);
  const std::string* const text = name.get<std::string>();
  if (const Dict* const dict = value.as_dict(); dict != nullptr && text != nullptr) {
    const Value* const found = dict->find(*text);
    return found != nullptr ? *found
                            : Value(Undefined{concat("the dictionary has no '", *text, "'")});
  }
  if (const Namespace* const space = value.as_namespace(); space != nullptr && text != nullptr) {
    const auto found = std::ranges::find(space->members, *text, &Member::first);
    if (found != space->members.end()) return found->second;
    return Undefined{concat("the namespace has no '", *text, "'")};
  }
  int64_t index = 0;
  const bool is_sequence = value.as_list() != nullptr || value.get<std::string>() != nullptr;
  if (is_sequence && to_integer(name, index)) {
    const int64_t length = length_of(value);
    if (index < 0) index += length;
    if (index < 0 || index >= length) {
      return Undefined{concat("the ", type_name(value), " of length ", length, " has no item ",
                              index < 0 ? index - length : index)};
    }
    if (const List* const list = value.as_list()) return list->items[static_cast<size_t>(index)];
    return items_of(value)[static_cast<size_t>(index)];
  }
  return Undefined{concat("'", type_name(value), "' has no ", text != nullptr ? "'" : "such ",
                          text != nullptr ? *text + "'" : std::string("item"))};
}

Value at_path(const Value& value, const std::string& path) {
  Value at = value;
  for (const std::string& name : split(path, ".", -1, false)) {
    const bool is_number =
        !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
    at =
        item_of(at, is_number && name.size() < 18 ? Value(int64_t{std::stoll(name)}) : Value(name));
  }
  return at;
}

namespace {

Value strip_method(const Value& self, const Bound& arguments, bool left, bool right) {
  const std::string set = arguments[0].is_none() ? "" : arguments.text(0, "");
  const bool has_set = arguments.has(0) && !arguments[0].is_none();
  return stripped(text_of(self), has_set ? &set : nullptr, left, right);
}

Value split_method(const Value& self, const Bound& arguments, bool from_right) {
  const int64_t most = arguments.integer(1, -1);
  const bool on_space = !arguments.has(0) || arguments[0].is_none();
  if (on_space && from_right && most >= 0) {
    throw Problem("'rsplit' with a number of cuts needs a separator");
  }
  if (on_space) return list_of(split_on_space(text_of(self), most));
  const std::string separator = arguments.text(0);
  if (separator.empty()) throw Problem("the separator is empty");
  return list_of(split(text_of(self), separator, most, from_right));
}

// A text, or any of a tuple of texts.
Value at_end(const Value& self, const Bound& arguments,
             bool (*matches)(const std::string&, const std::string&)) {
  const std::string& text = text_of(self);
  if (const List* const list = arguments[0].as_list()) {
    return std::ranges::any_of(list->items,
                               [&](const Value& end) { return matches(text, text_of(end)); });
  }
  return matches(text, arguments.text(0));
}

Value find_method(const Value& self, const Bound& arguments, bool last) {
  const std::string &text = text_of(self), part = arguments.text(0);
  const size_t at = last ? text.rfind(part) : text.find(part);
  if (at == std::string::npos) return int64_t{-1};
  return length_of(text.substr(0, at));
}

Value count_method(const Value& self, const Bound& arguments) {
  const std::string &text = text_of(self), part = arguments.text(0);
  if (part.empty()) return length_of(self) + 1;
  return std::ssize(split(text, part, -1, false)) - 1;
}

bool all_of_kind(const Value& self, bool (*belongs)(unsigned char)) {
  const std::string& text = text_of(self);
  return !text.empty() &&
         std::ranges::all_of(text, [&](char c) { return belongs(static_cast<unsigned char>(c)); });
}

const Method kTextMethods[] = {
    {"strip",
     {"chars"},
     0,
     [](const Value& v, const Bound& a) { return strip_method(v, a, true, true); }},
    {"lstrip",
     {"chars"},
     0,
     [](const Value& v, const Bound& a) { return strip_method(v, a, true, false); }},
    {"rstrip",
     {"chars"},
     0,
     [](const Value& v, const Bound& a) { return strip_method(v, a, false, true); }},
    {"split",
     {"sep", "maxsplit"},
     0,
     [](const Value& v, const Bound& a) { return split_method(v, a, false); }},
    {"rsplit",
     {"sep", "maxsplit"},
     0,
     [](const Value& v, const Bound& a) { return split_method(v, a, true); }},
    {"splitlines",
     {},
     0,
     [](const Value& v, const Bound&) { return list_of(lines_of(text_of(v))); }},
    {"startswith",
     {"prefix"},
     1,
     [](const Value& v, const Bound& a) {
       return at_end(v, a, [](const std::string& text, const std::string& end) {
         return text.starts_with(end);
       });
     }},
    {"endswith",
     {"suffix"},
     1,
     [](const Value& v, const Bound& a) {
       return at_end(v, a, [](const std::string& text, const std::string& end) {
         return text.ends_with(end);
       });
     }},
    {"replace",
     {"old", "new", "count"},
     2,
     [](const Value& v, const Bound& a) -> Value {
       return replaced(text_of(v), a.text(0), a.text(1), a.integer(2, -1));
     }},
    {"removeprefix",
     {"prefix"},
     1,
     [](const Value& v, const Bound& a) -> Value {
       const std::string &text = text_of(v), end = a.text(0);
       return text.starts_with(end) ? text.substr(end.size()) : text;
     }},
    {"removesuffix",
     {"suffix"},
     1,
     [](const Value& v, const Bound& a) -> Value {
       const std::string &text = text_of(v), end = a.text(0);
       return text.ends_with(end) ? text.substr(0, text.size() - end.size()) : text;
     }},
    {"find", {"sub"}, 1, [](const Value& v, const Bound& a) { return find_method(v, a, false); }},
    {"rfind", {"sub"}, 1, [](const Value& v, const Bound& a) { return find_method(v, a, true); }},
    {"count", {"sub"}, 1, count_method},
    {"lower",
     {},
     0,
     [](const Value& v, const Bound&) -> Value { return with_case(text_of(v), Case::kLower); }},
    {"upper",
     {},
     0,
     [](const Value& v, const Bound&) -> Value { return with_case(text_of(v), Case::kUpper); }},
    {"title",
     {},
     0,
     [](const Value& v, const Bound&) -> Value { return with_case(text_of(v), Case::kTitle); }},
    {"capitalize",
     {},
     0,
     [](const Value& v, const Bound&) -> Value {
       return with_case(text_of(v), Case::kCapitalized);
     }},
    {"isdigit",
     {},
     0,
     [](const Value& v, const Bound&) -> Value {
       return all_of_kind(v, [](unsigned char c) { return c >= '0' && c <= '9'; });
     }},
    {"join",
     {"iterable"},
     1,
     [](const Value& v, const Bound& a) -> Value {
       std::string text;
       bool is_first = true;
       for (const Value& item : items_of(a[0])) {
         if (!is_first) text += text_of(v);
         is_first = false;
         text += text_of(item);
       }
       return text;
     }},
};

const Method kDictMethods[] = {
    {"get",
     {"key", "default"},
     1,
     [](const Value& v, const Bound& a) -> Value {
       const std::string* const name = a[0].get<std::string>();
       const Value* const found = name != nullptr ? v.as_dict()->find(*name) : nullptr;
       if (found != nullptr) return *found;
       return a.has(1) ? a[1] : Value(None{});
     }},
    {"items",
     {},
     0,
     [](const Value& v, const Bound&) {
       Values items;
       for (const Member& member : v.as_dict()->members) {
         items.push_back(Value::list({member.first, member.second}, true));
       }
       return Value::list(std::move(items));
     }},
    {"keys", {}, 0, [](const Value& v, const Bound&) { return Value::list(items_of(v)); }},
    {"values",
     {},
     0,
     [](const Value& v, const Bound&) {
       Values items;
       for (const Member& member : v.as_dict()->members) items.push_back(member.second);
       return Value::list(std::move(items));
     }},
};

const Method kListMethods[] = {
    {"index",
     {"value"},
     1,
     [](const Value& v, const Bound& a) -> Value {
       const Values& items = v.as_list()->items;
       const auto found =
           std::ranges::find_if(items, [&](const Value& x) { return equal(x, a[0]); });
       if (found == items.end()) throw Problem("the value is not in the list");
       return int64_t{found - items.begin()};
     }},
    {"count",
     {"value"},
     1,
     [](const Value& v, const Bound& a) -> Value {
       return int64_t{std::ranges::count_if(v.as_list()->items,
                                            [&](const Value& x) { return equal(x, a[0]); })};
     }},
};

}  // namespace

const Method* method_of(const Value& value, std::string_view name) {
  std::span<const Method> methods;
  if (value.get<std::string>() != nullptr) methods = kTextMethods;
  if (value.as_dict() != nullptr) methods = kDictMethods;
  if (value.as_list() != nullptr) methods = kListMethods;
  const auto found = std::ranges::find(methods, name, &Method::name);
  return found != methods.end() ? &*found : nullptr;
}

}  // namespace tapestry::jinja
