// The syntax tree of a chat template; private to data/chat/.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/chat/lexer.h"
#include "data/chat/value.h"

namespace tapestry::jinja {

/// Deeper nesting is refused: trees are walked by recursion.
inline constexpr int kMaxSyntaxDepth = 200;

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Expression {
  enum class Kind {
    kConstant,   ///< value
    kName,       ///< name
    kList,       ///< operands
    kTuple,      ///< operands
    kDict,       ///< operands: name, value, name, value ...
    kAttribute,  ///< operands[0].name
    kItem,       ///< operands[0][operands[1]]
    kSlice,      ///< operands[0][operands[1]:operands[2]:operands[3]], null where left out
    kCall,       ///< operands[0](arguments)
    kFilter,     ///< operands[0] | name(arguments); no operand in {% set x | filter %}
    kTest,       ///< operands[0] is name(arguments)
    kNot,
    kNegative,
    kPositive,
    kBinary,   ///< operands[0] name operands[1]
    kCompare,  ///< operands[0] names[0] operands[1] names[1] operands[2] ...
    kConcat,   ///< operands[0] ~ operands[1] ~ ...
    kAnd,
    kOr,
    kChoice,  ///< operands[0] if operands[1] else operands[2], which may be null
  };

  Kind kind = Kind::kConstant;
  Place place = {};
  std::string name = {};
  std::vector<std::string> names = {};
  Value value = {};
  std::vector<ExpressionPtr> operands = {};
  /// Of calls, filters and tests; "*" and "**" spread a list or a dictionary.
  std::vector<std::pair<std::string, ExpressionPtr>> arguments = {};
  int depth = 1;
};

struct Statement;
using Statements = std::vector<Statement>;

/// A name or the attribute of a namespace.
struct Target {
  std::string name;
  std::string attribute = {};
};

struct Branch {
  ExpressionPtr condition;
  Statements body;
};

struct Parameter {
  std::string name;
  ExpressionPtr usual = {};  ///< the default; may be null
};

struct Statement {
  enum class Kind {
    kText,        ///< text
    kOutput,      ///< value
    kFor,         ///< for targets in value if condition: body, otherwise
    kIf,          ///< branches, otherwise
    kSet,         ///< targets = value
    kSetBlock,    ///< targets[0] = body, through the filters of value
    kMacro,       ///< text(parameters): body
    kGeneration,  ///< body
    kBreak,
    kContinue,
  };

  Kind kind = Kind::kText;
  Place place = {};
  std::string text = {};
  ExpressionPtr value = {};
  ExpressionPtr condition = {};
  std::vector<Target> targets = {};
  bool unpacks = false;    ///< targets stand for the items of a list
  bool uses_loop = false;  ///< the body of a for reads `loop`
  std::vector<Branch> branches = {};
  std::vector<Parameter> parameters = {};
  Statements body = {};
  Statements otherwise = {};
};

/// Throws PlacedProblem.
Statements parse(std::string_view source);

}  // namespace tapestry::jinja
