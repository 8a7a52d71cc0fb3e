// jinja/grammar.h — the parser's own class: what statements and expressions share. Only parser.cc (statements) and
// parse_expressions.cc include it.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "berth/base/strings.h"
#include "berth/jinja/ast.h"
#include "berth/jinja/lexer.h"

namespace berth::jinja {

inline constexpr uint32_t kMaxTreeDepth = 300;    // of the tree: long chains of operators, filters, elif
inline constexpr uint32_t kMaxParserDepth = 100;  // brackets and blocks in one another; Python's Jinja ends near 70

using Made = Result<ExpressionPtr>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<Body> run() {
    TRY(Body body, statements({}));
    if (now().kind != TokenKind::kEnd) return fail("unexpected " + now().shown());
    return body;
  }

 private:
  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void advance() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool skip_op(std::string_view op) {
    if (!now().is_op(op)) return false;
    advance();
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!now().is_name(name)) return false;
    advance();
    return true;
  }
  Error fail(const std::string& what) const { return syntax_error(now().line, what); }
  Status expect_op(std::string_view op) {
    if (skip_op(op)) return {};
    return fail("expected token '" + std::string(op) + "', got " + now().shown());
  }
  Result<std::string> expect_name() {
    if (now().kind != TokenKind::kName) return fail("expected token 'name', got " + now().shown());
    std::string name = now().text;
    advance();
    return name;
  }
  Status expect(TokenKind kind, const std::string& what) {
    if (now().kind != kind) {
      if (now().kind == TokenKind::kEnd) return fail("unexpected end of template, expected '" + what + "'");
      return fail("expected token '" + what + "', got " + now().shown());
    }
    advance();
    return {};
  }

  // --- making nodes, with their depth bounded ---

  Made finished(ExpressionPtr e) const {
    uint32_t depth = 0;
    for (const auto& item : e->items)
      if (item) depth = std::max(depth, item->depth);
    for (const auto& [name, item] : e->named) depth = std::max(depth, item->depth);
    if (e->star) depth = std::max(depth, e->star->depth);
    if (e->star_star) depth = std::max(depth, e->star_star->depth);
    e->depth = depth + 1;
    if (e->depth > kMaxTreeDepth) return syntax_error(e->line, "an expression is nested deeper than 300");
    return e;
  }
  ExpressionPtr node(ExpressionKind kind, std::string name = "") const {
    auto e = std::make_unique<Expression>();
    e->kind = kind;
    e->line = now().line;
    e->name = std::move(name);
    return e;
  }
  Made unary(ExpressionKind kind, ExpressionPtr a) const {
    auto e = node(kind);
    e->items.push_back(std::move(a));
    return finished(std::move(e));
  }
  Made binary(ExpressionKind kind, ExpressionPtr a, ExpressionPtr b, std::string name = "") const {
    auto e = node(kind, std::move(name));
    e->items.push_back(std::move(a));
    e->items.push_back(std::move(b));
    return finished(std::move(e));
  }
  Result<StatementPtr> finished(StatementPtr s) const {
    uint32_t depth = 0;
    const auto over = [&](const Body& body) {
      for (const auto& b : body) depth = std::max(depth, b->depth);
    };
    over(s->body);
    over(s->otherwise);
    if (s->macro) over(s->macro->body);
    s->depth = depth + 1;
    if (s->depth > kMaxTreeDepth) return syntax_error(s->line, "statements are nested deeper than 300");
    return s;
  }
  StatementPtr statement(StatementKind kind) const {
    auto s = std::make_unique<Statement>();
    s->kind = kind;
    s->line = now().line;
    return s;
  }
  // Guards the recursion of the parser itself.
  struct Level {
    explicit Level(uint32_t& depth) : depth_(depth) { ++depth_; }
    ~Level() { --depth_; }
    uint32_t& depth_;
  };

  // --- statements (parser.cc) ---

  // Statements up to a block that opens with one of `ends`, whose name stays the current token.
  Result<Body> statements(const std::vector<std::string_view>& ends);
  static std::string tag_list(const std::vector<std::string_view>& ends);
  Status end_of_tag();
  // The body up to one of `ends`; the end's name and, where it is the last one, its tag's end are consumed.
  Result<Body> body_until(const std::vector<std::string_view>& ends, std::string* which = nullptr);
  Result<Body> whole_body(std::string_view end);
  Result<StatementPtr> tag();
  Result<StatementPtr> if_tag(StatementPtr s);
  Result<StatementPtr> for_tag(StatementPtr s);
  Result<StatementPtr> set_tag(StatementPtr s);
  Status signature(MacroDefinition& m);
  // The names a macro's body mentions decide whether it takes more arguments than it lists.
  Status macro_body(MacroDefinition& m, std::string_view end);
  Result<StatementPtr> macro_tag(StatementPtr s);
  Result<StatementPtr> call_tag(StatementPtr s);
  Result<StatementPtr> with_tag(StatementPtr s);
  // A name, a tuple of names (`with_tuple`) or ns.attribute (`with_namespace`), up to `end`.
  Made assignment_target(bool with_tuple, bool with_namespace, std::string_view end = "");
  static bool assignable(const Expression& e);

  // --- expressions (parse_expressions.cc) ---

  Made expression();
  // Comma-separated expressions make a tuple. `simple`: primaries only (loop targets). Ends before `end`.
  Made tuple(bool conditional_allowed, std::string_view end = "", bool simple = false);
  bool tuple_ends(std::string_view end) const;
  // In "for x in a if b", the "if" belongs to the loop.
  Made without_conditional();
  Made conditional();
  Made logical_or();
  Made logical_and();
  Made logical_not();
  Made comparison();
  Made sum();
  Made concatenation();
  Made product();
  Made power();
  Made signed_value(bool with_filter);
  void note_name(const std::string& name);
  Made primary();
  Result<Value> integer_constant(const Token& token) const;
  Made parenthesized();
  Made list();
  Made dict();
  Made postfixed(ExpressionPtr e);
  Made filtered(ExpressionPtr e);
  Made dotted(ExpressionPtr object);
  Made subscript(ExpressionPtr object);
  Made slice_or_index();
  // The arguments in parentheses at the current token, into `e`.
  Status arguments(Expression& e);
  Made call(ExpressionPtr callee);
  Result<std::string> dotted_name();
  // | name(args) | name..., on `e` (null in filter blocks). `inline_start`: the first name stands without "|".
  Made filter_chain(ExpressionPtr e, bool inline_start);
  Made test(ExpressionPtr operand);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  uint32_t level_ = 0;
  int loops_ = 0;
  int conditional_ = 0;                       // inside what may never run, unknown filters are only found when it does
  std::vector<std::set<std::string>> names_;  // mentioned in the macros around
};

}  // namespace berth::jinja
