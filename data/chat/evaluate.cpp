// Values of expressions.
#include <algorithm>

#include "core/base/error.h"
#include "data/chat/functions.h"
#include "data/chat/interpreter.h"
#include "data/chat/value_text.h"

namespace tapestry::jinja {

Value Interpreter::evaluate(const Expression& expression) {
  try {
    const Deeper deeper(*this);
    Value value = value_of(expression);
    const std::string* const text = value.get<std::string>();
    if (text != nullptr && std::ssize(*text) > kMaxTextBytes) throw Problem("the text is too long");
    spend(1 + (text != nullptr ? std::ssize(*text) / 16 : 0));
    return value;
  } catch (const Problem& problem) {
    throw PlacedProblem{expression.place, concat(problem.what(), '.')};
  }
}

Value Interpreter::value_of(const Expression& expression) {
  using Kind = Expression::Kind;
  switch (expression.kind) {
    case Kind::kConstant:
      return expression.value;
    case Kind::kName:
      return look_up(expression.name);
    case Kind::kList:
      return Value::list(all_operands(expression));
    case Kind::kTuple:
      return Value::list(all_operands(expression), true);
    case Kind::kDict:
      return dict(expression);
    case Kind::kAttribute:
      return attribute(operand(expression, 0), expression.name);
    case Kind::kItem:
      return item(expression);
    case Kind::kSlice:
      return slice(expression);
    case Kind::kCall:
      return call(expression);
    case Kind::kFilter:
      return filtered(expression, {});
    case Kind::kTest:
      return apply_test(expression.name, operand(expression, 0), arguments_of(expression));
    case Kind::kNot:
      return !truth(operand(expression, 0));
    case Kind::kNegative:
      return binary("-", int64_t{0}, operand(expression, 0));
    case Kind::kPositive:
      return binary("+", int64_t{0}, operand(expression, 0));
    case Kind::kBinary: {
      const Value first = operand(expression, 0);
      Value result = binary(expression.name, first, operand(expression, 1));
      if (const List* const list = result.as_list()) spend(std::ssize(list->items));
      return result;
    }
    case Kind::kCompare:
      return comparison(expression);
    case Kind::kConcat:
      return concatenation(expression);
    case Kind::kAnd: {
      Value first = operand(expression, 0);
      return truth(first) ? operand(expression, 1) : first;
    }
    case Kind::kOr: {
      Value first = operand(expression, 0);
      return truth(first) ? first : operand(expression, 1);
    }
    case Kind::kChoice:
      if (truth(operand(expression, 1))) return operand(expression, 0);
      if (expression.operands[2] != nullptr) return operand(expression, 2);
      return Undefined{"the condition is false and there is no 'else'"};
  }
  return {};
}

Values Interpreter::all_operands(const Expression& expression) {
  Values values;
  for (const ExpressionPtr& operand : expression.operands) values.push_back(evaluate(*operand));
  return values;
}

Value Interpreter::look_up(const std::string& name) const {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->around.get()) {
    const auto found = std::ranges::find(scope->variables, name, &Member::first);
    if (found != scope->variables.end()) return found->second;
  }
  if (is_global(name)) return std::make_shared<const Callable>(Callable{.name = name});
  return Undefined{concat("'", name, "' is undefined")};
}

// As Jinja: x.y is the method y before the member y, x['y'] the member before the method.
Value Interpreter::attribute(const Value& value, const std::string& name) const {
  check_defined(value);
  const Method* const method = method_of(value, name);
  if (method == nullptr) return item_of(value, name);
  return std::make_shared<const Callable>(Callable{.name = name, .method = method, .self = value});
}

Value Interpreter::item(const Expression& expression) {
  const Value value = operand(expression, 0), name = operand(expression, 1);
  Value found = item_of(value, name);
  const std::string* const text = name.get<std::string>();
  if (!found.is_undefined() || text == nullptr) return found;
  return method_of(value, *text) != nullptr ? attribute(value, *text) : found;
}

Value Interpreter::slice(const Expression& expression) {
  const auto part = [&](size_t i) {
    return expression.operands[i] != nullptr ? operand(expression, i) : Value(None{});
  };
  const Value value = operand(expression, 0), begin = part(1), end = part(2);
  Value result = slice_of(value, begin, end, part(3));
  spend(length_of(result));
  return result;
}

Value Interpreter::dict(const Expression& expression) {
  Members members;
  for (size_t i = 0; i < expression.operands.size(); i += 2) {
    const Value name = operand(expression, i);
    if (name.get<std::string>() == nullptr)
      throw Problem("the names of a dictionary must be texts");
    const auto found = std::ranges::find(members, text_of(name), &Member::first);
    if (found != members.end()) {
      found->second = operand(expression, i + 1);
    } else {
      members.emplace_back(text_of(name), operand(expression, i + 1));
    }
  }
  return Value::dict(std::move(members));
}

Value Interpreter::comparison(const Expression& expression) {
  Value left = operand(expression, 0);
  for (size_t i = 0; i < expression.names.size(); ++i) {
    Value right = operand(expression, i + 1);
    const std::string& name = expression.names[i];
    const bool is_negated = name == "not in";
    if (name.ends_with("in")) check_defined(left);
    const std::string test = is_negated ? "in" : name;
    if (apply_test(test, left, {.positional = {right}, .named = {}}) == is_negated) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::concatenation(const Expression& expression) {
  std::string text;
  for (const ExpressionPtr& part : expression.operands) {
    text += to_text(evaluate(*part));
    if (std::ssize(text) > kMaxTextBytes) throw Problem("the text is too long");
  }
  return text;
}

// Filters of {% set x | f | g %} begin with the text of the block.
Value Interpreter::filtered(const Expression& expression, const Value& first) {
  const bool has_operand = !expression.operands.empty();
  Value value = first;
  if (has_operand && expression.operands[0]->kind == Expression::Kind::kFilter) {
    value = filtered(*expression.operands[0], first);
  } else if (has_operand) {
    value = operand(expression, 0);
  }
  Value result = apply_filter(expression.name, value, arguments_of(expression));
  if (const List* const list = result.as_list()) spend(std::ssize(list->items));
  return result;
}

Arguments Interpreter::arguments_of(const Expression& expression) {
  Arguments arguments;
  for (const auto& [name, expression_of] : expression.arguments) {
    Value value = evaluate(*expression_of);
    if (name.empty()) {
      arguments.positional.push_back(std::move(value));
    } else if (name == "*") {
      for (Value& item : items_of(value)) arguments.positional.push_back(std::move(item));
    } else if (name == "**") {
      if (value.as_dict() == nullptr) throw Problem("'**' spreads a dictionary");
      for (const Member& member : value.as_dict()->members) arguments.named.push_back(member);
    } else {
      arguments.named.emplace_back(name, std::move(value));
    }
  }
  return arguments;
}

Value Interpreter::call(const Expression& expression) {
  const Value function = operand(expression, 0);
  check_defined(function);
  const Callable* const callable = function.as_callable();
  if (callable == nullptr) throw Problem(concat("'", type_name(function), "' cannot be called"));
  const Arguments arguments = arguments_of(expression);
  if (callable->macro != nullptr) return call_macro(*callable->macro, arguments);
  if (callable->method != nullptr) return (*callable->method)(callable->self, arguments);
  return call_global(callable->name, arguments);
}

Value Interpreter::call_macro(const Macro& macro, const Arguments& arguments) {
  const std::vector<Parameter>& parameters = macro.statement->parameters;
  const std::string& name = macro.statement->text;
  if (arguments.positional.size() > parameters.size()) {
    throw Problem(concat("'", name, "' takes ", parameters.size(), " arguments at most, got ",
                         arguments.positional.size()));
  }
  for (const Member& member : arguments.named) {
    if (std::ranges::find(parameters, member.first, &Parameter::name) == parameters.end()) {
      throw Problem(concat("'", name, "' has no argument '", member.first, "'"));
    }
  }
  const auto before = std::exchange(scope_, std::make_shared<Scope>(Scope{{}, macro.scope}));
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    const auto named = std::ranges::find(arguments.named, parameter.name, &Member::first);
    Value value =
        Undefined{concat("the argument '", parameter.name, "' of '", name, "' is undefined")};
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else if (named != arguments.named.end()) {
      value = named->second;
    } else if (parameter.usual != nullptr) {
      value = evaluate(*parameter.usual);
    }
    scope_->variables.emplace_back(parameter.name, std::move(value));
  }
  std::string text = captured(macro.statement->body);
  scope_ = before;
  return text;
}

}  // namespace tapestry::jinja
