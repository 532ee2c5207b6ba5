// Reads tokens into the syntax tree; private to data/chat/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/chat/lexer.h"
#include "data/chat/syntax.h"

namespace tapestry::jinja {

/// Walks over tokens. All failures are PlacedProblem.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token take();
  bool is(Token::Kind kind) const { return current().kind == kind; }
  bool is_operator(std::string_view text) const {
    return is(Token::Kind::kOperator) && current().text == text;
  }
  bool is_name(std::string_view text) const {
    return is(Token::Kind::kName) && current().text == text;
  }
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  void expect_operator(std::string_view text);
  Token expect(Token::Kind kind, const char* what);
  [[noreturn]] void fail_expected(const std::string& what) const;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

/// Expressions by descent, with Jinja's precedences: if, or, and, not, comparisons, + -, ~,
/// * / // %, **, signs, then filters and tests.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  ExpressionPtr expression();
  /// Without "if", which belongs to the statement: {% for x in y if z %}.
  ExpressionPtr without_choice();
  /// An expression, or several with commas between them, which are a tuple.
  ExpressionPtr maybe_tuple(bool with_choice = true);
  /// "| filter | filter" on nothing: null if there is none.
  ExpressionPtr filters_on_nothing();
  /// How often the name `loop` has been read.
  int loop_names() const { return loop_names_; }

 private:
  using Kind = Expression::Kind;
  using Node = std::unique_ptr<Expression>;
  using Next = ExpressionPtr (ExpressionParser::*)();

  /// Bounds the recursion.
  struct Level {
    explicit Level(ExpressionParser& of) : parser(of) { parser.limit(++parser.level_); }
    ~Level() { --parser.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ExpressionParser& parser;
  };

  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr signed_value() { return with_sign(true); }
  ExpressionPtr with_sign(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr name_or_constant();
  ExpressionPtr in_parentheses();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr with_postfixes(ExpressionPtr value);
  ExpressionPtr subscript(ExpressionPtr value);
  ExpressionPtr attribute(ExpressionPtr value);
  ExpressionPtr with_filters_and_tests(ExpressionPtr value);
  ExpressionPtr filter(ExpressionPtr value);
  ExpressionPtr test(ExpressionPtr value);
  void read_arguments(Expression& call);
  /// Operands between operators that bind equally, from the left.
  ExpressionPtr from_left(std::initializer_list<std::string_view> operators, Next next);

  Node make(Kind kind) const;
  /// Adds an operand; null where one is left out.
  void add(Expression& node, ExpressionPtr operand) const;
  void limit(int depth) const;

  TokenStream& tokens_;
  int level_ = 0;
  int loop_names_ = 0;
};

}  // namespace tapestry::jinja
