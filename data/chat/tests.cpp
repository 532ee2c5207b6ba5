// The tests behind "is".
#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "data/chat/functions.h"
#include "data/chat/text_functions.h"

namespace tapestry::jinja {
namespace {

using Holds = bool (*)(const Value& self, const Value& operand);

struct Test {
  std::array<const char*, 3> names;
  int operands;
  Holds holds;
};

bool is_integer(const Value& value) { return value.get<int64_t>() != nullptr; }
bool is_sequence(const Value& value) {
  return value.is_undefined() || value.get<std::string>() != nullptr ||
         value.as_list() != nullptr || value.as_dict() != nullptr;
}

int64_t remainder_of(const Value& value, int64_t divisor) {
  int64_t number = 0;
  check_defined(value);
  if (!to_integer(value, number))
    throw Problem(concat("expected an integer, got ", type_name(value)));
  if (divisor == 0) throw Problem("division by zero");
  return divisor == -1 ? 0 : number % divisor;
}

// Python's islower() and isupper(): letters of one case only.
bool has_case(const Value& value, Case wanted, Case other) {
  const std::string& text = text_of(value);
  return with_case(text, wanted) == text && with_case(text, other) != text;
}

bool contains(const Value& container, const Value& item) {
  if (const std::string* const text = container.get<std::string>()) {
    return text->find(text_of(item)) != std::string::npos;
  }
  const Values items = items_of(container);
  return std::ranges::any_of(items, [&](const Value& other) { return equal(item, other); });
}

const Test kTests[] = {
    {{"defined"}, 0, [](const Value& v, const Value&) { return !v.is_undefined(); }},
    {{"undefined"}, 0, [](const Value& v, const Value&) { return v.is_undefined(); }},
    {{"none"}, 0, [](const Value& v, const Value&) { return v.is_none(); }},
    {{"boolean"}, 0, [](const Value& v, const Value&) { return v.get<bool>() != nullptr; }},
    {{"true"},
     0,
     [](const Value& v, const Value&) { return v.get<bool>() != nullptr && truth(v); }},
    {{"false"},
     0,
     [](const Value& v, const Value&) { return v.get<bool>() != nullptr && !truth(v); }},
    {{"integer"}, 0, [](const Value& v, const Value&) { return is_integer(v); }},
    {{"float"}, 0, [](const Value& v, const Value&) { return v.get<double>() != nullptr; }},
    {{"number"},
     0,
     [](const Value& v, const Value&) {
       double number = 0;
       return to_number(v, number);
     }},
    {{"string"}, 0, [](const Value& v, const Value&) { return v.get<std::string>() != nullptr; }},
    {{"mapping"}, 0, [](const Value& v, const Value&) { return v.as_dict() != nullptr; }},
    {{"iterable"}, 0, [](const Value& v, const Value&) { return is_sequence(v); }},
    {{"sequence"}, 0, [](const Value& v, const Value&) { return is_sequence(v); }},
    {{"callable"}, 0, [](const Value& v, const Value&) { return v.as_callable() != nullptr; }},
    {{"lower"},
     0,
     [](const Value& v, const Value&) { return has_case(v, Case::kLower, Case::kUpper); }},
    {{"upper"},
     0,
     [](const Value& v, const Value&) { return has_case(v, Case::kUpper, Case::kLower); }},
    {{"even"}, 0, [](const Value& v, const Value&) { return remainder_of(v, 2) == 0; }},
    {{"odd"}, 0, [](const Value& v, const Value&) { return remainder_of(v, 2) != 0; }},
    {{"divisibleby"},
     1,
     [](const Value& v, const Value& by) {
       int64_t divisor = 0;
       if (!to_integer(by, divisor)) throw Problem("'divisibleby' takes an integer");
       return remainder_of(v, divisor) == 0;
     }},
    {{"equalto", "eq", "=="}, 1, [](const Value& v, const Value& w) { return equal(v, w); }},
    {{"ne", "!="}, 1, [](const Value& v, const Value& w) { return !equal(v, w); }},
    {{"lessthan", "lt", "<"}, 1, [](const Value& v, const Value& w) { return compare(v, w) < 0; }},
    {{"greaterthan", "gt", ">"},
     1,
     [](const Value& v, const Value& w) { return compare(v, w) > 0; }},
    {{"le", "<="}, 1, [](const Value& v, const Value& w) { return compare(v, w) <= 0; }},
    {{"ge", ">="}, 1, [](const Value& v, const Value& w) { return compare(v, w) >= 0; }},
    {{"sameas"},
     1,
     [](const Value& v, const Value& w) { return type_name(v) == type_name(w) && equal(v, w); }},
    {{"in"}, 1, [](const Value& v, const Value& w) { return contains(w, v); }},
};

}  // namespace

bool apply_test(const std::string& name, const Value& value, const Arguments& arguments) {
  const auto found = std::ranges::find_if(kTests, [&](const Test& test) {
    return std::ranges::any_of(
        test.names, [&](const char* known) { return known != nullptr && name == known; });
  });
  if (found == std::end(kTests)) throw Problem(concat("there is no test '", name, "'"));
  if (std::ssize(arguments.positional) != found->operands || !arguments.named.empty()) {
    throw Problem(concat("the test '", name, "' takes ", found->operands, " operands, got ",
                         arguments.positional.size() + arguments.named.size()));
  }
  return found->holds(value, found->operands > 0 ? arguments.positional.front() : Value());
}

}  // namespace tapestry::jinja
