#include "data/chat/value.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/chat/value_text.h"
#include "data/files/utf8.h"

namespace tapestry::jinja {
namespace {

int depth_of(const Value& value) {
  if (const List* const list = value.as_list()) return list->depth;
  if (const Dict* const dict = value.as_dict()) return dict->depth;
  return 0;
}

int checked_depth(int depth) {
  if (depth > kMaxValueDepth) {
    throw Problem(concat("lists and dictionaries may be ", kMaxValueDepth, " deep, not more"));
  }
  return depth;
}

[[noreturn]] void fail_order(const Value& a, const Value& b) {
  check_defined(a);
  check_defined(b);
  throw Problem(concat("'", type_name(a), "' and '", type_name(b), "' have no order"));
}

template <class T>
int sign(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

bool equal_members(const Dict& a, const Dict& b) {
  return a.members.size() == b.members.size() &&
         std::ranges::all_of(a.members, [&](const Member& member) {
           const Value* const other = b.find(member.first);
           return other != nullptr && equal(member.second, *other);
         });
}

}  // namespace

Value Value::list(std::vector<Value> items, bool is_tuple) {
  auto list = std::make_shared<List>(List{std::move(items), is_tuple});
  for (const Value& item : list->items) list->depth = std::max(list->depth, depth_of(item) + 1);
  checked_depth(list->depth);
  Value value;
  value.value_ = std::shared_ptr<const List>(std::move(list));
  return value;
}

Value Value::dict(std::vector<std::pair<std::string, Value>> members) {
  auto dict = std::make_shared<Dict>(Dict{std::move(members)});
  for (const Member& member : dict->members) {
    dict->depth = std::max(dict->depth, depth_of(member.second) + 1);
  }
  checked_depth(dict->depth);
  Value value;
  value.value_ = std::shared_ptr<const Dict>(std::move(dict));
  return value;
}

const List* Value::as_list() const {
  const auto* const list = get<std::shared_ptr<const List>>();
  return list != nullptr ? list->get() : nullptr;
}
const Dict* Value::as_dict() const {
  const auto* const dict = get<std::shared_ptr<const Dict>>();
  return dict != nullptr ? dict->get() : nullptr;
}
Namespace* Value::as_namespace() const {
  const auto* const space = get<std::shared_ptr<Namespace>>();
  return space != nullptr ? space->get() : nullptr;
}
const Callable* Value::as_callable() const {
  const auto* const callable = get<std::shared_ptr<const Callable>>();
  return callable != nullptr ? callable->get() : nullptr;
}

const Value* Dict::find(std::string_view name) const {
  const auto found = std::ranges::find(members, name, &Member::first);
  return found != members.end() ? &found->second : nullptr;
}

std::string type_name(const Value& value) {
  if (value.is_undefined()) return "undefined";
  if (value.is_none()) return "None";
  if (value.get<bool>() != nullptr) return "bool";
  if (value.get<int64_t>() != nullptr) return "int";
  if (value.get<double>() != nullptr) return "float";
  if (value.get<std::string>() != nullptr) return "str";
  if (const List* const list = value.as_list()) return list->is_tuple ? "tuple" : "list";
  if (value.as_dict() != nullptr) return "dict";
  return value.as_namespace() != nullptr ? "namespace" : "function";
}

void check_defined(const Value& value) {
  const Undefined* const undefined = value.get<Undefined>();
  if (undefined != nullptr) {
    throw Problem(undefined->why.empty() ? "the value is undefined" : undefined->why);
  }
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const bool* const flag = value.get<bool>()) return *flag;
  if (const int64_t* const number = value.get<int64_t>()) return *number != 0;
  if (const double* const number = value.get<double>()) return *number != 0;
  if (const std::string* const text = value.get<std::string>()) return !text->empty();
  if (const List* const list = value.as_list()) return !list->items.empty();
  if (const Dict* const dict = value.as_dict()) return !dict->members.empty();
  return true;
}

bool to_integer(const Value& value, int64_t& number) {
  if (const bool* const flag = value.get<bool>()) {
    number = *flag ? 1 : 0;
  } else if (const int64_t* const whole = value.get<int64_t>()) {
    number = *whole;
  } else {
    return false;
  }
  return true;
}

bool to_number(const Value& value, double& number) {
  int64_t whole = 0;
  if (to_integer(value, whole)) {
    number = static_cast<double>(whole);
  } else if (const double* const real = value.get<double>()) {
    number = *real;
  } else {
    return false;
  }
  return true;
}

bool equal(const Value& a, const Value& b) {
  int64_t i = 0, j = 0;
  if (to_integer(a, i) && to_integer(b, j)) return i == j;
  double x = 0, y = 0;
  if (to_number(a, x) && to_number(b, y)) return x == y;
  if (type_name(a) != type_name(b)) return false;
  if (const std::string* const text = a.get<std::string>()) return *text == *b.get<std::string>();
  if (const List* const list = a.as_list()) {
    return std::ranges::equal(list->items, b.as_list()->items, equal);
  }
  if (const Dict* const dict = a.as_dict()) return equal_members(*dict, *b.as_dict());
  if (a.as_namespace() != nullptr) return a.as_namespace() == b.as_namespace();
  if (a.as_callable() != nullptr) return a.as_callable() == b.as_callable();
  return true;  // undefined, None
}

int compare(const Value& a, const Value& b) {
  int64_t i = 0, j = 0;
  if (to_integer(a, i) && to_integer(b, j)) return sign(i, j);
  double x = 0, y = 0;
  if (to_number(a, x) && to_number(b, y)) return sign(x, y);
  const std::string *const s = a.get<std::string>(), *const t = b.get<std::string>();
  if (s != nullptr && t != nullptr) return s->compare(*t);  // UTF-8 keeps the order of code points
  const List *const l = a.as_list(), *const m = b.as_list();
  if (l == nullptr || m == nullptr || l->is_tuple != m->is_tuple) fail_order(a, b);
  for (size_t k = 0; k < std::min(l->items.size(), m->items.size()); ++k) {
    if (!equal(l->items[k], m->items[k])) return compare(l->items[k], m->items[k]);
  }
  return sign(l->items.size(), m->items.size());
}

Values items_of(const Value& value) {
  if (value.is_undefined()) return {};
  if (const List* const list = value.as_list()) return list->items;
  Values items;
  if (const Dict* const dict = value.as_dict()) {
    for (const Member& member : dict->members) items.emplace_back(member.first);
    return items;
  }
  const std::string* const text = value.get<std::string>();
  if (text == nullptr) throw Problem(concat("'", type_name(value), "' cannot be iterated over"));
  for (size_t at = 0; at < text->size();) {
    const size_t begin = at;
    next_code_point(*text, at);
    items.emplace_back(text->substr(begin, at - begin));
  }
  return items;
}

int64_t length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const std::string* const text = value.get<std::string>()) return count_code_points(*text);
  if (const List* const list = value.as_list()) return std::ssize(list->items);
  if (const Dict* const dict = value.as_dict()) return std::ssize(dict->members);
  throw Problem(concat("'", type_name(value), "' has no length"));
}

}  // namespace tapestry::jinja
