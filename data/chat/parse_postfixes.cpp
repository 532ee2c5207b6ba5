#include <algorithm>
#include <charconv>

#include "core/base/error.h"
#include "data/chat/parser.h"

namespace tapestry::jinja {

using TokenKind = Token::Kind;

ExpressionPtr ExpressionParser::with_postfixes(ExpressionPtr value) {
  while (true) {
    if (tokens_.is_operator(".")) {
      value = attribute(std::move(value));
    } else if (tokens_.is_operator("[")) {
      value = subscript(std::move(value));
    } else if (tokens_.is_operator("(")) {
      Node call = make(Kind::kCall);
      add(*call, std::move(value));
      read_arguments(*call);
      value = std::move(call);
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::attribute(ExpressionPtr value) {
  tokens_.take();
  Node node = make(Kind::kAttribute);
  add(*node, std::move(value));
  if (!tokens_.is(TokenKind::kInteger)) {
    node->name = tokens_.expect(TokenKind::kName, "a name after '.'").text;
    return node;
  }
  Node number = make(Kind::kConstant);  // x.0 is x[0]
  const std::string digits = tokens_.take().text;
  int64_t index = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), index);
  number->value = index;
  node->kind = Kind::kItem;
  add(*node, std::move(number));
  return node;
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr value) {
  const Level level(*this);
  Node node = make(Kind::kItem);
  tokens_.take();
  add(*node, std::move(value));
  const auto ends = [&] { return tokens_.is_operator(":") || tokens_.is_operator("]"); };
  add(*node, ends() ? nullptr : expression());
  if (tokens_.is_operator(":")) {
    node->kind = Kind::kSlice;
    for (int part = 0; part < 2; ++part) {
      const bool has_part = tokens_.skip_operator(":") && !ends();
      add(*node, has_part ? expression() : nullptr);
    }
  } else if (node->operands.back() == nullptr) {
    tokens_.fail_expected("an expression between '[' and ']'");
  }
  tokens_.expect_operator("]");
  return node;
}

ExpressionPtr ExpressionParser::with_filters_and_tests(ExpressionPtr value) {
  while (true) {
    if (tokens_.is_operator("|")) {
      value = filter(std::move(value));
    } else if (tokens_.is_name("is")) {
      value = test(std::move(value));
    } else if (tokens_.is_operator("(")) {  // (x | f)(...), as Jinja reads it
      Node call = make(Kind::kCall);
      add(*call, std::move(value));
      read_arguments(*call);
      value = std::move(call);
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr value) {
  tokens_.take();
  Node node = make(Kind::kFilter);
  node->name = tokens_.expect(TokenKind::kName, "the name of a filter").text;
  if (value != nullptr) add(*node, std::move(value));
  if (tokens_.is_operator("(")) read_arguments(*node);
  return node;
}

ExpressionPtr ExpressionParser::filters_on_nothing() {
  ExpressionPtr value;
  while (tokens_.is_operator("|")) value = filter(std::move(value));
  return value;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr value) {
  tokens_.take();
  const bool is_negated = tokens_.skip_name("not");
  Node node = make(Kind::kTest);
  node->name = tokens_.expect(TokenKind::kName, "the name of a test").text;
  add(*node, std::move(value));
  const auto begins_operand = [&] {
    if (tokens_.is(TokenKind::kName)) {
      return !tokens_.is_name("else") && !tokens_.is_name("or") && !tokens_.is_name("and") &&
             !tokens_.is_name("is") && !tokens_.is_name("if") && !tokens_.is_name("not") &&
             !tokens_.is_name("in");
    }
    return tokens_.is(TokenKind::kString) || tokens_.is(TokenKind::kInteger) ||
           tokens_.is(TokenKind::kFloat) || tokens_.is_operator("[") || tokens_.is_operator("{");
  };
  if (tokens_.is_operator("(")) {
    read_arguments(*node);
  } else if (begins_operand()) {  // "x is divisibleby 3"
    const Level level(*this);
    ExpressionPtr operand = with_postfixes(primary());
    node->depth = std::max(node->depth, operand->depth + 1);
    limit(node->depth);
    node->arguments.emplace_back("", std::move(operand));
  }
  if (!is_negated) return node;
  Node negation = make(Kind::kNot);
  negation->place = node->place;
  add(*negation, std::move(node));
  return negation;
}

void ExpressionParser::read_arguments(Expression& call) {
  const Level level(*this);
  tokens_.expect_operator("(");
  while (!tokens_.is_operator(")")) {
    std::string name;
    if (tokens_.is_operator("*") || tokens_.is_operator("**")) {
      name = tokens_.take().text;
    } else if (tokens_.is(TokenKind::kName) && tokens_.ahead().kind == TokenKind::kOperator &&
               tokens_.ahead().text == "=") {
      name = tokens_.take().text;
      tokens_.take();
    } else if (!call.arguments.empty() && !call.arguments.back().first.empty() &&
               call.arguments.back().first != "*") {
      tokens_.fail_expected("a named argument after named ones");
    }
    ExpressionPtr value = expression();
    call.depth = std::max(call.depth, value->depth + 1);
    limit(call.depth);
    call.arguments.emplace_back(std::move(name), std::move(value));
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator(")");
}

}  // namespace tapestry::jinja
