// Values of chat templates, which mean what Python's values mean in Jinja.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tapestry::jinja {

/// What is wrong with a template or with its data. Whoever knows the place adds it.
class Problem : public std::runtime_error {
 public:
  explicit Problem(const std::string& message) : std::runtime_error(message) {}
};

/// A name, member or argument that does not exist. `why` says which: "'x' is undefined".
struct Undefined {
  std::string why = {};
};
struct None {};
struct List;
struct Dict;
struct Namespace;
struct Callable;

class Value {
 public:
  Value() = default;
  Value(Undefined undefined) : value_(std::move(undefined)) {}
  Value(None none) : value_(none) {}
  Value(bool truth) : value_(truth) {}
  Value(int64_t number) : value_(number) {}
  Value(double number) : value_(number) {}
  Value(std::string text) : value_(std::move(text)) {}
  Value(const char* text) : value_(std::string(text)) {}
  Value(std::shared_ptr<Namespace> space) : value_(std::move(space)) {}
  Value(std::shared_ptr<const Callable> callable) : value_(std::move(callable)) {}
  static Value list(std::vector<Value> items, bool is_tuple = false);
  static Value dict(std::vector<std::pair<std::string, Value>> members);

  template <class T>
  const T* get() const {
    return std::get_if<T>(&value_);
  }
  const List* as_list() const;
  const Dict* as_dict() const;
  Namespace* as_namespace() const;
  const Callable* as_callable() const;
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_none() const { return get<None>() != nullptr; }

 private:
  std::variant<Undefined, None, bool, int64_t, double, std::string, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
               std::shared_ptr<const Callable>>
      value_;
};

using Values = std::vector<Value>;
using Member = std::pair<std::string, Value>;
using Members = std::vector<Member>;

/// Deeper lists and dictionaries are refused: they are walked by recursion.
inline constexpr int kMaxValueDepth = 100;
/// No text of a template may become longer.
inline constexpr int64_t kMaxTextBytes = int64_t{64} << 20;

struct List {
  Values items;
  bool is_tuple = false;
  int depth = 1;
};

/// In the order in which members were added, as Python's.
struct Dict {
  Members members;
  int depth = 1;

  const Value* find(std::string_view name) const;
};

/// The only value that changes: namespace().
struct Namespace {
  Members members;
};

/// Positional and named arguments of a call.
struct Arguments {
  Values positional;
  Members named;
};

struct Macro;   // interpreter.h
struct Method;  // functions.h

/// A macro, a global function or a method with its object.
struct Callable {
  std::string name;
  const Macro* macro = nullptr;
  const Method* method = nullptr;
  Value self = {};
};

/// The name of the type as Python's messages have it: "dict", "str".
std::string type_name(const Value& value);
/// Throws Problem if the value is undefined.
void check_defined(const Value& value);

bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
/// Negative, 0 or positive. Throws Problem for values without an order.
int compare(const Value& a, const Value& b);
/// Numbers of all kinds, true and false included; false for other values.
bool to_number(const Value& value, double& number);
/// Whole numbers, true and false included; false for other values.
bool to_integer(const Value& value, int64_t& number);
/// What a loop walks over: items, the names of a dictionary, the characters of a text, nothing for
/// an undefined value. Throws Problem for other values.
Values items_of(const Value& value);
/// Python's len(). Throws Problem for values without one.
int64_t length_of(const Value& value);

}  // namespace tapestry::jinja
