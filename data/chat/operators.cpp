// Operators of two values, and slices.
#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "data/chat/functions.h"
#include "data/chat/interpreter.h"

namespace tapestry::jinja {
namespace {

[[noreturn]] void fail_operands(const std::string& name, const Value& a, const Value& b) {
  check_defined(a);
  check_defined(b);
  throw Problem(
      concat("'", name, "' has no meaning for '", type_name(a), "' and '", type_name(b), "'"));
}

void check_fits(bool overflows) {
  if (overflows) throw Problem("the number has more than 64 bits");
}

int64_t floor_divided(int64_t a, int64_t b) {
  check_fits(a == INT64_MIN && b == -1);
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t power_of(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0 && base != 1; --exponent) {
    check_fits(__builtin_mul_overflow(result, base, &result));
    if (result == 0) break;
  }
  return result;
}

Value whole_numbers(const std::string& name, int64_t a, int64_t b) {
  int64_t result = 0;
  if (name == "+") check_fits(__builtin_add_overflow(a, b, &result));
  if (name == "-") check_fits(__builtin_sub_overflow(a, b, &result));
  if (name == "*") check_fits(__builtin_mul_overflow(a, b, &result));
  if (name == "**") {
    if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
    if (a == -1) return int64_t{b % 2 == 0 ? 1 : -1};
    result = power_of(a, b);
  }
  if (name != "/" && name != "//" && name != "%") return result;
  if (b == 0) throw Problem("division by zero");
  if (name == "/") return static_cast<double>(a) / static_cast<double>(b);
  const int64_t quotient = floor_divided(a, b);
  return name == "//" ? quotient : a - quotient * b;
}

Value real_numbers(const std::string& name, double a, double b) {
  if (name == "+") return a + b;
  if (name == "-") return a - b;
  if (name == "*") return a * b;
  if (name == "**") return std::pow(a, b);
  if (b == 0) throw Problem("division by zero");
  if (name == "/") return a / b;
  const double quotient = std::floor(a / b);
  return name == "//" ? quotient : a - quotient * b;
}

Value repeated(const Value& value, int64_t count) {
  count = std::max<int64_t>(count, 0);
  const int64_t length =
      value.as_list() != nullptr ? std::ssize(value.as_list()->items) : std::ssize(text_of(value));
  if (length > 0 && count > kMaxTextBytes / length / 16) throw Problem("the result is too long");
  if (const List* const list = value.as_list()) {
    Values items;
    for (int64_t i = 0; i < count; ++i) {
      items.insert(items.end(), list->items.begin(), list->items.end());
    }
    return Value::list(std::move(items), list->is_tuple);
  }
  std::string text;
  for (int64_t i = 0; length > 0 && i < count; ++i) text += text_of(value);
  return text;
}

Value joined(const List& a, const List& b) {
  Values items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return Value::list(std::move(items), a.is_tuple);
}

}  // namespace

Value binary(const std::string& name, const Value& a, const Value& b) {
  int64_t i = 0, j = 0;
  double x = 0, y = 0;
  if (to_integer(a, i) && to_integer(b, j)) return whole_numbers(name, i, j);
  if (to_number(a, x) && to_number(b, y)) return real_numbers(name, x, y);
  const std::string *const s = a.get<std::string>(), *const t = b.get<std::string>();
  const List *const l = a.as_list(), *const m = b.as_list();
  if (name == "+" && s != nullptr && t != nullptr) return *s + *t;
  if (name == "+" && l != nullptr && m != nullptr && l->is_tuple == m->is_tuple) {
    return joined(*l, *m);
  }
  if (name == "*" && (s != nullptr || l != nullptr) && to_integer(b, j)) return repeated(a, j);
  if (name == "*" && (t != nullptr || m != nullptr) && to_integer(a, i)) return repeated(b, i);
  fail_operands(name, a, b);
}

Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step) {
  check_defined(value);
  const bool is_text = value.get<std::string>() != nullptr;
  if (!is_text && value.as_list() == nullptr) {
    throw Problem(concat("'", type_name(value), "' has no slices"));
  }
  const auto number = [](const Value& part, int64_t absent) {
    int64_t result = absent;
    if (!part.is_none() && !to_integer(part, result)) {
      check_defined(part);
      throw Problem(concat("the bounds of a slice must be integers, got ", type_name(part)));
    }
    return result;
  };
  const int64_t stride = number(step, 1);
  if (stride == 0) throw Problem("the step of a slice is zero");
  const Values items = items_of(value);
  const int64_t count = std::ssize(items), low = stride > 0 ? 0 : -1;
  const auto bound = [&](const Value& part, int64_t absent) {
    if (part.is_none()) return absent;
    const int64_t place = number(part, absent);
    return std::clamp(place < 0 ? place + count : place, low, stride > 0 ? count : count - 1);
  };
  const int64_t first = bound(begin, stride > 0 ? 0 : count - 1);
  const int64_t last = bound(end, stride > 0 ? count : -1);
  Values kept;
  for (int64_t i = first; stride > 0 ? i < last : i > last;) {
    kept.push_back(items[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, stride, &i)) break;
  }
  if (!is_text) return Value::list(std::move(kept), value.as_list()->is_tuple);
  std::string text;
  for (const Value& character : kept) text += text_of(character);
  return text;
}

}  // namespace tapestry::jinja
