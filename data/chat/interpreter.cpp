#include "data/chat/interpreter.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/chat/value_text.h"

namespace tapestry::jinja {

Interpreter::Interpreter(Members globals, std::time_t now)
    : scope_(std::make_shared<Scope>(Scope{std::move(globals), nullptr})), now_(now) {}

Interpreter::~Interpreter() {
  for (const auto& scope : kept_scopes_) scope->variables.clear();
  for (const auto& space : namespaces_) space->members.clear();
}

Interpreter::Deeper::Deeper(Interpreter& interpreter) : interpreter_(interpreter) {
  if (++interpreter_.depth_ <= kMaxDepth) return;
  --interpreter_.depth_;
  throw Problem(concat("calls may be ", kMaxDepth, " deep, not more"));
}

void Interpreter::spend(int64_t steps) {
  steps_ += steps;
  if (steps_ > kMaxSteps)
    throw Problem(concat("the template has not ended after ", kMaxSteps, " steps"));
}

Rendered Interpreter::render(const Statements& statements) {
  out_ = &rendered_.text;
  enter();
  run(statements);
  leave();
  return std::move(rendered_);
}

void Interpreter::enter() { scope_ = std::make_shared<Scope>(Scope{{}, scope_}); }
void Interpreter::leave() { scope_ = scope_->around; }

void Interpreter::write(std::string_view text) {
  spend(std::ssize(text) / 16);
  if (std::ssize(*out_) + std::ssize(text) > kMaxTextBytes) throw Problem("the text is too long");
  *out_ += text;
}

Interpreter::Flow Interpreter::run(const Statements& statements) {
  for (const Statement& statement : statements) {
    Flow flow = Flow::kOn;
    try {
      const Deeper deeper(*this);
      spend(1);
      flow = run_one(statement);
    } catch (const Problem& problem) {
      throw PlacedProblem{statement.place, concat(problem.what(), '.')};
    }
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::run_one(const Statement& statement) {
  using Kind = Statement::Kind;
  switch (statement.kind) {
    case Kind::kText:
      write(statement.text);
      break;
    case Kind::kOutput:
      write(to_text(evaluate(*statement.value)));
      break;
    case Kind::kFor:
      return loop(statement);
    case Kind::kIf:
      return choose(statement);
    case Kind::kSet:
      set(statement, evaluate(*statement.value));
      break;
    case Kind::kSetBlock:
      set_block(statement);
      break;
    case Kind::kMacro:
      define_macro(statement);
      break;
    case Kind::kGeneration:
      generate(statement);
      break;
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::choose(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    if (truth(evaluate(*branch.condition))) return run(branch.body);
  }
  return run(statement.otherwise);
}

Interpreter::Flow Interpreter::loop(const Statement& statement) {
  Values items = items_of(evaluate(*statement.value));
  spend(std::ssize(items));
  if (statement.condition != nullptr) {
    Values kept;
    for (Value& item : items) {
      enter();
      set(statement, item);
      if (truth(evaluate(*statement.condition))) kept.push_back(std::move(item));
      leave();
    }
    items = std::move(kept);
  }
  for (size_t i = 0; i < items.size(); ++i) {
    enter();
    set(statement, items[i]);
    if (statement.uses_loop) scope_->variables.emplace_back("loop", loop_of(items, i));
    const Flow flow = run(statement.body);
    leave();
    if (flow == Flow::kBreak) return Flow::kOn;
  }
  if (!items.empty()) return Flow::kOn;
  enter();
  const Flow flow = run(statement.otherwise);
  leave();
  return flow;
}

Value Interpreter::loop_of(const Values& items, size_t i) const {
  const auto at = static_cast<int64_t>(i), count = std::ssize(items);
  Members members{{"index", at + 1},        {"index0", at},
                  {"revindex", count - at}, {"revindex0", count - at - 1},
                  {"first", at == 0},       {"last", at + 1 == count},
                  {"length", count}};
  if (i > 0) members.emplace_back("previtem", items[i - 1]);
  if (i + 1 < items.size()) members.emplace_back("nextitem", items[i + 1]);
  return Value::dict(std::move(members));
}

void Interpreter::set(const Statement& statement, const Value& value) {
  const std::vector<Target>& targets = statement.targets;
  if (!statement.unpacks) return set_one(targets.front(), value);
  check_defined(value);
  Values items = items_of(value);
  if (items.size() != targets.size()) {
    throw Problem(concat(targets.size(), " names cannot take ", items.size(), " values"));
  }
  for (size_t i = 0; i < items.size(); ++i) set_one(targets[i], std::move(items[i]));
}

void Interpreter::set_one(const Target& target, Value value) {
  Members* members = &scope_->variables;
  if (!target.attribute.empty()) {
    const Value space = look_up(target.name);
    if (space.as_namespace() == nullptr) {
      check_defined(space);
      throw Problem(concat("'", target.name, "' is no namespace: its attributes cannot be set"));
    }
    members = &space.as_namespace()->members;
  }
  const std::string& name = target.attribute.empty() ? target.name : target.attribute;
  const auto found = std::ranges::find(*members, name, &Member::first);
  if (found != members->end()) {
    found->second = std::move(value);
  } else {
    members->emplace_back(name, std::move(value));
  }
}

std::string Interpreter::captured(const Statements& body) {
  std::string text;
  std::string* const before = std::exchange(out_, &text);
  enter();
  run(body);
  leave();
  out_ = before;
  return text;
}

void Interpreter::set_block(const Statement& statement) {
  Value value = captured(statement.body);
  if (statement.value != nullptr) value = filtered(*statement.value, value);
  set_one(statement.targets.front(), std::move(value));
}

void Interpreter::generate(const Statement& statement) {
  const int64_t begin = std::ssize(rendered_.text);
  enter();
  run(statement.body);
  leave();
  rendered_.generated.emplace_back(begin, std::ssize(rendered_.text));
}

void Interpreter::define_macro(const Statement& statement) {
  macros_.push_back(std::make_unique<Macro>(Macro{&statement, scope_}));
  for (auto scope = scope_; scope != nullptr; scope = scope->around) {
    if (std::ranges::count(kept_scopes_, scope) == 0) kept_scopes_.push_back(scope);
  }
  set_one({statement.text, ""}, std::make_shared<const Callable>(Callable{
                                    .name = statement.text, .macro = macros_.back().get()}));
}

}  // namespace tapestry::jinja
