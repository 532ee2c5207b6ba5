#include "data/chat/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/chat/clock.h"
#include "data/chat/interpreter.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

jinja::Value value_of(const Json& json, int depth) {
  if (depth > jinja::kMaxValueDepth) {
    throw jinja::Problem(concat("values may be ", jinja::kMaxValueDepth, " deep, not more"));
  }
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return json.get<int64_t>();
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return json.get<double>();
      return json.get<int64_t>();
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return json.get<std::string>();
    case Json::value_t::array: {
      jinja::Values items;
      for (const Json& item : json) items.push_back(value_of(item, depth + 1));
      return jinja::Value::list(std::move(items));
    }
    case Json::value_t::object: {
      jinja::Members members;
      for (const auto& [name, member] : json.items()) {
        members.emplace_back(name, value_of(member, depth + 1));
      }
      return jinja::Value::dict(std::move(members));
    }
    default:
      return jinja::None{};
  }
}

// Generation blocks stand on their own level, in loops and conditions.
bool has_generation(const jinja::Statements& statements) {
  return std::ranges::any_of(statements, [](const jinja::Statement& statement) {
    return statement.kind == jinja::Statement::Kind::kGeneration ||
           has_generation(statement.body) || has_generation(statement.otherwise) ||
           std::ranges::any_of(statement.branches, [](const jinja::Branch& branch) {
             return has_generation(branch.body);
           });
  });
}

}  // namespace

bool is_template_function(std::string_view name) { return jinja::is_global(name); }

struct ChatTemplate::Parsed {
  jinja::Statements statements;
};

ChatTemplate::ChatTemplate(const std::string& source, std::string name)
    : source_(source), name_(std::move(name)) {
  if (find_invalid_utf8(source_) != std::string::npos) {
    fail(ErrorKind::kConfig, name_, ":1:1: the template is not UTF-8.");
  }
  try {
    parsed_ = std::make_shared<const Parsed>(Parsed{jinja::parse(source_)});
  } catch (const jinja::PlacedProblem& problem) {
    fail(ErrorKind::kConfig, name_, ':', problem.place.line, ':', problem.place.column, ": ",
         problem.message);
  }
  marks_answers_ = has_generation(parsed_->statements);
}

RenderedChat ChatTemplate::render(const Json& variables, std::time_t now) const {
  try {
    jinja::Members globals;
    for (const auto& [name, value] : variables.items()) {
      globals.emplace_back(name, value_of(value, 1));
    }
    jinja::Rendered rendered =
        jinja::Interpreter(std::move(globals), now).render(parsed_->statements);
    return {std::move(rendered.text), std::move(rendered.generated)};
  } catch (const jinja::PlacedProblem& problem) {
    fail(ErrorKind::kData, name_, ':', problem.place.line, ':', problem.place.column, ": ",
         problem.message);
  } catch (const jinja::Problem& problem) {
    fail(ErrorKind::kData, name_, ": ", problem.what(), '.');
  }
}

RenderedChat ChatTemplate::render(const Json& variables) const {
  return render(variables, time_of_talks());
}

}  // namespace tapestry
