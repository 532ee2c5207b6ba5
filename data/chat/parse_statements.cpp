#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "data/chat/parser.h"

namespace tapestry::jinja {
namespace {

using Kind = Statement::Kind;
using TokenKind = Token::Kind;

class StatementParser {
 public:
  explicit StatementParser(std::string_view source)
      : tokens_(tokens_of(source)), expressions_(tokens_) {}

  Statements run() {
    Statements all = body({});
    if (!tokens_.is(TokenKind::kEnd)) tokens_.fail_expected("a tag that begins something");
    return all;
  }

 private:
  using Read = Statement (StatementParser::*)(Statement);
  struct Row {
    const char* name;
    Read read;
  };
  static const std::array<Row, 7>& rows() {
    static constexpr std::array<Row, 7> kRows = {{{"for", &StatementParser::for_},
                                                  {"if", &StatementParser::if_},
                                                  {"set", &StatementParser::set},
                                                  {"macro", &StatementParser::macro},
                                                  {"generation", &StatementParser::generation},
                                                  {"break", &StatementParser::jump},
                                                  {"continue", &StatementParser::jump}}};
    return kRows;
  }

  // Statements up to a tag that begins with one of the names, which is not read.
  Statements body(std::initializer_list<std::string_view> ends) {
    if (++level_ > kMaxSyntaxDepth / 2) {
      throw PlacedProblem{tokens_.current().place,
                          concat("tags may be nested ", kMaxSyntaxDepth / 2, " deep, not more.")};
    }
    Statements all;
    while (!tokens_.is(TokenKind::kEnd)) {
      const Token token = tokens_.current();
      if (token.kind == TokenKind::kBlockBegin) {
        const Token& name = tokens_.ahead();
        if (name.kind == TokenKind::kName && std::ranges::count(ends, name.text) > 0) break;
        if (name.kind == TokenKind::kName && name.text.starts_with("end")) {
          tokens_.take();
          tokens_.fail_expected("a tag that begins something");
        }
        all.push_back(tag());
      } else if (token.kind == TokenKind::kVariableBegin) {
        tokens_.take();
        Statement output{.kind = Kind::kOutput, .place = token.place};
        output.value = expressions_.maybe_tuple();
        tokens_.expect(TokenKind::kVariableEnd, "'}}'");
        all.push_back(std::move(output));
      } else {
        all.push_back({.kind = Kind::kText, .place = token.place, .text = tokens_.take().text});
      }
    }
    --level_;
    return all;
  }

  Statement tag() {
    tokens_.take();
    const Token name = tokens_.current();
    const auto row =
        std::ranges::find_if(rows(), [&](const Row& known) { return tokens_.is_name(known.name); });
    if (row == rows().end()) {
      tokens_.fail_expected("for, if, set, macro, generation, break or continue");
    }
    tokens_.take();
    Statement statement{.place = name.place, .text = name.text};
    return (this->*row->read)(std::move(statement));
  }

  void end_tag() { tokens_.expect(TokenKind::kBlockEnd, "'%}'"); }
  // Reads "{% NAME"; what opened it is named where it is missing.
  void begin_tag(const Statement& opened, std::initializer_list<const char*> names) {
    if (!tokens_.is(TokenKind::kBlockBegin)) {
      std::string wanted;
      for (const char* const name : names)
        wanted += concat(wanted.empty() ? "'" : " or '", name, "'");
      tokens_.fail_expected(
          concat(wanted, " for the '", opened.text, "' of line ", opened.place.line));
    }
    tokens_.take();
  }
  void close(const Statement& opened, const char* name) {
    begin_tag(opened, {name});
    if (!tokens_.skip_name(name)) tokens_.fail_expected(concat("'", name, "'"));
    end_tag();
  }

  std::vector<Target> targets(Statement& statement) {
    std::vector<Target> all;
    const bool has_parentheses = tokens_.skip_operator("(");
    do {
      if (!all.empty() && !tokens_.is(TokenKind::kName)) break;
      Target target{.name = tokens_.expect(TokenKind::kName, "a name").text};
      if (statement.text == "set" && tokens_.skip_operator(".")) {
        target.attribute = tokens_.expect(TokenKind::kName, "a name after '.'").text;
      }
      all.push_back(std::move(target));
      statement.unpacks = statement.unpacks || tokens_.is_operator(",");
    } while (tokens_.skip_operator(","));
    if (has_parentheses) tokens_.expect_operator(")");
    return all;
  }

  Statement for_(Statement statement) {
    statement.kind = Kind::kFor;
    statement.targets = targets(statement);
    if (!tokens_.skip_name("in")) tokens_.fail_expected("'in'");
    statement.value = expressions_.maybe_tuple(false);
    const int before = expressions_.loop_names();
    if (tokens_.skip_name("if")) statement.condition = expressions_.expression();
    end_tag();
    ++loops_;
    statement.body = body({"else", "endfor"});
    --loops_;
    statement.uses_loop = expressions_.loop_names() > before;
    begin_tag(statement, {"else", "endfor"});
    if (tokens_.skip_name("else")) {
      end_tag();
      statement.otherwise = body({"endfor"});
      begin_tag(statement, {"endfor"});
    }
    tokens_.take();
    end_tag();
    return statement;
  }

  Statement if_(Statement statement) {
    statement.kind = Kind::kIf;
    do {
      ExpressionPtr condition = expressions_.maybe_tuple();
      end_tag();
      statement.branches.push_back({std::move(condition), body({"elif", "else", "endif"})});
      begin_tag(statement, {"elif", "else", "endif"});
    } while (tokens_.skip_name("elif"));
    if (tokens_.skip_name("else")) {
      end_tag();
      statement.otherwise = body({"endif"});
      begin_tag(statement, {"endif"});
    }
    tokens_.take();
    end_tag();
    return statement;
  }

  Statement set(Statement statement) {
    statement.kind = Kind::kSet;
    statement.targets = targets(statement);
    if (tokens_.skip_operator("=")) {
      statement.value = expressions_.maybe_tuple();
      end_tag();
      return statement;
    }
    statement.kind = Kind::kSetBlock;
    if (statement.unpacks) tokens_.fail_expected("'='");
    statement.value = expressions_.filters_on_nothing();
    end_tag();
    statement.body = inside([&] { return body({"endset"}); });
    close(statement, "endset");
    return statement;
  }

  Statement macro(Statement statement) {
    statement.kind = Kind::kMacro;
    const std::string name = tokens_.expect(TokenKind::kName, "the name of the macro").text;
    tokens_.expect_operator("(");
    while (!tokens_.is_operator(")")) {
      Parameter parameter{.name = tokens_.expect(TokenKind::kName, "the name of a parameter").text};
      if (tokens_.skip_operator("=")) parameter.usual = expressions_.expression();
      statement.parameters.push_back(std::move(parameter));
      if (!tokens_.skip_operator(",")) break;
    }
    tokens_.expect_operator(")");
    end_tag();
    const int loops = std::exchange(loops_, 0);
    statement.body = inside([&] { return body({"endmacro"}); });
    loops_ = loops;
    close(statement, "endmacro");
    statement.text = name;
    return statement;
  }

  // The marks of what a model writes count bytes of the whole text, which only its own level knows.
  Statement generation(Statement statement) {
    if (inside_ > 0) {
      throw PlacedProblem{statement.place,
                          "'generation' must stand outside of macros, of 'set' with a body and of "
                          "other 'generation's."};
    }
    statement.kind = Kind::kGeneration;
    end_tag();
    const int loops = std::exchange(loops_, 0);
    statement.body = inside([&] { return body({"endgeneration"}); });
    loops_ = loops;
    close(statement, "endgeneration");
    return statement;
  }
  template <class Read>
  Statements inside(Read read) {
    ++inside_;
    Statements all = read();
    --inside_;
    return all;
  }

  Statement jump(Statement statement) {
    if (loops_ == 0) {
      throw PlacedProblem{statement.place, concat("'", statement.text, "' is in no loop.")};
    }
    statement.kind = statement.text == "break" ? Kind::kBreak : Kind::kContinue;
    end_tag();
    return statement;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int level_ = 0;
  int loops_ = 0;
  int inside_ = 0;
};

}  // namespace

Statements parse(std::string_view source) { return StatementParser(source).run(); }

}  // namespace tapestry::jinja
