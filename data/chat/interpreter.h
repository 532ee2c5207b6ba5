// Runs the syntax tree of a chat template; private to data/chat/.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/chat/syntax.h"
#include "data/chat/value.h"

namespace tapestry::jinja {

/// Names and their values. A scope that lacks a name asks the one around it.
struct Scope {
  Members variables;
  std::shared_ptr<Scope> around;
};

/// A macro with the scope in which it was made.
struct Macro {
  const Statement* statement;
  std::shared_ptr<Scope> scope;
};

struct Rendered {
  std::string text;
  /// Bytes of the text inside of generation blocks: begin and end.
  std::vector<std::pair<int64_t, int64_t>> generated;
};

/// Renders once. Throws PlacedProblem; a template has neither files nor anything else outside of
/// its values, and ends after kMaxSteps.
class Interpreter {
 public:
  /// Expressions, statements and items of loops; 16 bytes of a text count as one, too.
  static constexpr int64_t kMaxSteps = 20'000'000;
  /// Calls, expressions and statements inside of each other.
  static constexpr int kMaxDepth = 1000;

  Interpreter(Members globals, std::time_t now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Rendered render(const Statements& statements);

 private:
  enum class Flow { kOn, kBreak, kContinue };
  class Deeper;

  // Statements (interpreter.cpp).
  Flow run(const Statements& statements);
  Flow run_one(const Statement& statement);
  Flow loop(const Statement& statement);
  Flow choose(const Statement& statement);
  Value loop_of(const Values& items, size_t i) const;
  void set(const Statement& statement, const Value& value);
  void set_one(const Target& target, Value value);
  void set_block(const Statement& statement);
  void generate(const Statement& statement);
  void define_macro(const Statement& statement);
  std::string captured(const Statements& body);
  void write(std::string_view text);
  void enter();
  void leave();

  // Expressions (evaluate.cpp).
  Value evaluate(const Expression& expression);
  Value value_of(const Expression& expression);
  Value operand(const Expression& expression, size_t i) {
    return evaluate(*expression.operands[i]);
  }
  Values all_operands(const Expression& expression);
  Value look_up(const std::string& name) const;
  Value attribute(const Value& value, const std::string& name) const;
  Value dict(const Expression& expression);
  Value item(const Expression& expression);
  Value slice(const Expression& expression);
  Value negative(const Expression& expression);
  Value comparison(const Expression& expression);
  Value concatenation(const Expression& expression);
  Value filter(const Expression& expression);
  Value call(const Expression& expression);
  Value call_macro(const Macro& macro, const Arguments& arguments);
  Arguments arguments_of(const Expression& expression);
  Value filtered(const Expression& expression, const Value& first);

  // Global functions (globals.cpp).
  Value call_global(const std::string& name, const Arguments& arguments);

  void spend(int64_t steps);

  std::shared_ptr<Scope> scope_;
  std::string* out_ = nullptr;
  Rendered rendered_;
  int64_t steps_ = 0;
  int depth_ = 0;
  std::time_t now_;
  // What may point at each other in a circle is emptied at the end.
  std::vector<std::unique_ptr<Macro>> macros_;
  std::vector<std::shared_ptr<Scope>> kept_scopes_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

/// One step deeper, for as long as it lives.
class Interpreter::Deeper {
 public:
  explicit Deeper(Interpreter& interpreter);
  ~Deeper() { --interpreter_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Interpreter& interpreter_;
};

/// a + b and the other operators of two values. Throws Problem.
Value binary(const std::string& name, const Value& a, const Value& b);
/// Python's a[begin:end:step]; undefined for what is left out.
Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step);
/// True for the names that call_global() knows.
bool is_global(std::string_view name);

}  // namespace tapestry::jinja
