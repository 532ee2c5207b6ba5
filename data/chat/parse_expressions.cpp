#include <algorithm>
#include <charconv>

#include "core/base/error.h"
#include "data/chat/parser.h"

namespace tapestry::jinja {

using TokenKind = Token::Kind;

Token TokenStream::take() {
  Token token = current();
  if (token.kind != TokenKind::kEnd) ++at_;
  return token;
}

bool TokenStream::skip_operator(std::string_view text) {
  const bool found = is_operator(text);
  if (found) ++at_;
  return found;
}

bool TokenStream::skip_name(std::string_view text) {
  const bool found = is_name(text);
  if (found) ++at_;
  return found;
}

void TokenStream::expect_operator(std::string_view text) {
  if (!skip_operator(text)) fail_expected(concat("'", std::string(text), "'"));
}

Token TokenStream::expect(TokenKind kind, const char* what) {
  if (!is(kind)) fail_expected(what);
  return take();
}

void TokenStream::fail_expected(const std::string& what) const {
  throw PlacedProblem{current().place, concat("expected ", what, ", got ", current().shown(), '.')};
}

void ExpressionParser::limit(int depth) const {
  if (depth <= kMaxSyntaxDepth) return;
  throw PlacedProblem{tokens_.current().place,
                      concat("expressions may be nested ", kMaxSyntaxDepth, " deep, not more.")};
}

ExpressionParser::Node ExpressionParser::make(Kind kind) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->place = tokens_.current().place;
  return node;
}

void ExpressionParser::add(Expression& node, ExpressionPtr operand) const {
  if (operand != nullptr) {
    node.depth = std::max(node.depth, operand->depth + 1);
    limit(node.depth);
  }
  node.operands.push_back(std::move(operand));
}

ExpressionPtr ExpressionParser::expression() {
  const Level level(*this);
  ExpressionPtr value = either();
  while (tokens_.is_name("if")) {
    Node choice = make(Kind::kChoice);
    tokens_.take();
    add(*choice, std::move(value));
    add(*choice, either());
    add(*choice, tokens_.skip_name("else") ? expression() : nullptr);
    value = std::move(choice);
  }
  return value;
}

ExpressionPtr ExpressionParser::without_choice() {
  const Level level(*this);
  return either();
}

ExpressionPtr ExpressionParser::maybe_tuple(bool with_choice) {
  const auto next = [&] { return with_choice ? expression() : without_choice(); };
  Node tuple = make(Kind::kTuple);
  ExpressionPtr first = next();
  if (!tokens_.is_operator(",")) return first;
  add(*tuple, std::move(first));
  while (tokens_.skip_operator(",")) {
    if (tokens_.is(TokenKind::kBlockEnd) || tokens_.is(TokenKind::kVariableEnd)) break;
    add(*tuple, next());
  }
  return tuple;
}

ExpressionPtr ExpressionParser::either() {
  ExpressionPtr value = both();
  while (tokens_.is_name("or")) {
    Node node = make(Kind::kOr);
    tokens_.take();
    add(*node, std::move(value));
    add(*node, both());
    value = std::move(node);
  }
  return value;
}

ExpressionPtr ExpressionParser::both() {
  ExpressionPtr value = negation();
  while (tokens_.is_name("and")) {
    Node node = make(Kind::kAnd);
    tokens_.take();
    add(*node, std::move(value));
    add(*node, negation());
    value = std::move(node);
  }
  return value;
}

ExpressionPtr ExpressionParser::negation() {
  if (!tokens_.is_name("not")) return comparison();
  const Level level(*this);
  Node node = make(Kind::kNot);
  tokens_.take();
  add(*node, negation());
  return node;
}

ExpressionPtr ExpressionParser::comparison() {
  Node node = make(Kind::kCompare);
  ExpressionPtr first = sum();
  const auto operator_here = [&]() -> std::string {
    for (const char* const name : {"==", "!=", "<", "<=", ">", ">="}) {
      if (tokens_.skip_operator(name)) return name;
    }
    if (tokens_.skip_name("in")) return "in";
    const Token& ahead = tokens_.ahead();
    if (!tokens_.is_name("not") || ahead.kind != TokenKind::kName || ahead.text != "in") return "";
    tokens_.take();
    tokens_.take();
    return "not in";
  };
  std::string name = operator_here();
  if (name.empty()) return first;
  add(*node, std::move(first));
  for (; !name.empty(); name = operator_here()) {
    node->names.push_back(name);
    add(*node, sum());
  }
  return node;
}

ExpressionPtr ExpressionParser::from_left(std::initializer_list<std::string_view> operators,
                                          Next next) {
  ExpressionPtr value = (this->*next)();
  const auto found = [&] {
    return std::ranges::any_of(operators,
                               [&](std::string_view name) { return tokens_.is_operator(name); });
  };
  while (found()) {
    Node node = make(Kind::kBinary);
    node->name = tokens_.take().text;
    add(*node, std::move(value));
    add(*node, (this->*next)());
    value = std::move(node);
  }
  return value;
}

ExpressionPtr ExpressionParser::sum() {
  return from_left({"+", "-"}, &ExpressionParser::concatenation);
}

ExpressionPtr ExpressionParser::concatenation() {
  Node node = make(Kind::kConcat);
  ExpressionPtr first = product();
  if (!tokens_.is_operator("~")) return first;
  add(*node, std::move(first));
  while (tokens_.skip_operator("~")) add(*node, product());
  return node;
}

ExpressionPtr ExpressionParser::product() {
  return from_left({"*", "//", "/", "%"}, &ExpressionParser::power);
}

ExpressionPtr ExpressionParser::power() {
  return from_left({"**"}, &ExpressionParser::signed_value);
}

ExpressionPtr ExpressionParser::with_sign(bool with_filters) {
  ExpressionPtr value;
  if (tokens_.is_operator("-") || tokens_.is_operator("+")) {
    const Level level(*this);
    Node node = make(tokens_.is_operator("-") ? Kind::kNegative : Kind::kPositive);
    tokens_.take();
    add(*node, with_sign(false));
    value = std::move(node);
  } else {
    value = with_postfixes(primary());
  }
  return with_filters ? with_filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::primary() {
  if (tokens_.is_operator("(")) return in_parentheses();
  if (tokens_.is_operator("[")) return list();
  if (tokens_.is_operator("{")) return dict();
  return name_or_constant();
}

ExpressionPtr ExpressionParser::name_or_constant() {
  Node node = make(Kind::kConstant);
  const Token token = tokens_.current();
  if (token.kind == TokenKind::kString) {
    std::string text;
    while (tokens_.is(TokenKind::kString)) text += tokens_.take().text;
    node->value = std::move(text);
    return node;
  }
  const char *const begin = token.text.data(), *const end = begin + token.text.size();
  if (token.kind == TokenKind::kInteger) {
    int64_t number = 0;
    if (std::from_chars(begin, end, number).ec != std::errc()) {
      tokens_.fail_expected("an integer of 64 bits");
    }
    node->value = number;
  } else if (token.kind == TokenKind::kFloat) {
    double number = 0;
    std::from_chars(begin, end, number);
    node->value = number;
  } else if (token.kind != TokenKind::kName) {
    tokens_.fail_expected("an expression");
  } else if (token.text == "true" || token.text == "True") {
    node->value = true;
  } else if (token.text == "false" || token.text == "False") {
    node->value = false;
  } else if (token.text == "none" || token.text == "None") {
    node->value = None{};
  } else {
    node->kind = Kind::kName;
    node->name = token.text;
    loop_names_ += token.text == "loop" ? 1 : 0;
  }
  tokens_.take();
  return node;
}

ExpressionPtr ExpressionParser::in_parentheses() {
  const Level level(*this);
  Node tuple = make(Kind::kTuple);
  tokens_.take();
  bool has_comma = false;
  while (!tokens_.is_operator(")")) {
    add(*tuple, expression());
    if (!tokens_.skip_operator(",")) break;
    has_comma = true;
  }
  tokens_.expect_operator(")");
  if (has_comma || tuple->operands.empty()) return tuple;
  return std::move(tuple->operands.front());
}

ExpressionPtr ExpressionParser::list() {
  const Level level(*this);
  Node node = make(Kind::kList);
  tokens_.take();
  while (!tokens_.is_operator("]")) {
    add(*node, expression());
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator("]");
  return node;
}

ExpressionPtr ExpressionParser::dict() {
  const Level level(*this);
  Node node = make(Kind::kDict);
  tokens_.take();
  while (!tokens_.is_operator("}")) {
    add(*node, expression());
    tokens_.expect_operator(":");
    add(*node, expression());
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator("}");
  return node;
}

}  // namespace tapestry::jinja
