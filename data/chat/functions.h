// The tables of filters, tests and methods of chat templates; private to data/chat/. A new one is a
// row.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "data/chat/value.h"

namespace tapestry::jinja {

/// The names of a function's parameters, null behind the last.
using ParameterNames = std::array<const char*, 5>;

/// The arguments of a call by the order of the parameters. What was not given is undefined.
class Bound {
 public:
  /// Throws Problem if there are too many, unknown or missing ones.
  Bound(std::string_view who, const ParameterNames& parameters, int required,
        const Arguments& arguments);

  const Value& operator[](size_t i) const { return values_[i]; }
  bool has(size_t i) const { return !values_[i].is_undefined(); }
  /// Throw Problem if the argument is of another kind.
  std::string text(size_t i) const;
  std::string text(size_t i, const char* absent) const { return has(i) ? text(i) : absent; }
  int64_t integer(size_t i, int64_t absent) const;
  bool flag(size_t i, bool absent) const { return has(i) ? truth(values_[i]) : absent; }

 private:
  std::string who_;
  Values values_;
};

/// A function of a value. `parameters` are those of its arguments, the first `required` of which
/// must be given.
struct Method {
  const char* name;
  ParameterNames parameters;
  int required;
  Value (*apply)(const Value& self, const Bound& arguments);

  Value operator()(const Value& self, const Arguments& arguments) const {
    return apply(self, Bound(name, parameters, required, arguments));
  }
};

/// The text of a value that must be one. Throws Problem.
const std::string& text_of(const Value& value);
Value list_of(std::vector<std::string> texts);
/// A member of a dictionary or namespace, an item of a list by a number, or undefined.
Value item_of(const Value& value, const Value& name);
/// item_of() along a path: "function.name".
Value at_path(const Value& value, const std::string& path);

std::span<const Method> value_filters();
std::span<const Method> sequence_filters();
/// All filters, with map, select and their like, which call other filters or tests. Throw Problem,
/// also for a name that is none.
Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments);
bool apply_test(const std::string& name, const Value& value, const Arguments& arguments);

/// The method of this kind of value; null if there is none.
const Method* method_of(const Value& value, std::string_view name);

}  // namespace tapestry::jinja
