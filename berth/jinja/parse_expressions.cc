// jinja/parse_expressions.cc — expressions, by precedence from the loosest operator to the tightest.
#include <array>
#include <charconv>

#include "berth/jinja/builtins.h"
#include "berth/jinja/grammar.h"

namespace berth::jinja {

Made Parser::expression() {
  const Level level(level_);
  if (level_ > kMaxParserDepth) return fail("an expression is nested deeper than 100");
  return conditional();
}

Made Parser::tuple(bool conditional_allowed, std::string_view end, bool simple) {
  const uint32_t line = now().line;
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) TRY_STATUS(expect_op(","));
    if (tuple_ends(end)) break;
    auto item = simple ? primary() : conditional_allowed ? expression() : without_conditional();
    if (!item) return item;
    items.push_back(*std::move(item));
    if (!now().is_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    return fail("Expected an expression, got " + now().shown());
  }
  auto e = node(ExpressionKind::kTuple);
  e->line = line;
  e->items = std::move(items);
  return finished(std::move(e));
}

bool Parser::tuple_ends(std::string_view end) const {
  return now().kind == TokenKind::kOutputEnd || now().kind == TokenKind::kBlockEnd || now().is_op(")") ||
         (!end.empty() && now().is_name(end));
}

Made Parser::without_conditional() {
  const Level level(level_);
  if (level_ > kMaxParserDepth) return fail("an expression is nested deeper than 100");
  return logical_or();
}

Made Parser::conditional() {
  TRY(auto e, logical_or());
  while (skip_name("if")) {
    auto c = node(ExpressionKind::kConditional);
    ++conditional_;
    TRY(auto condition, logical_or());
    ExpressionPtr otherwise;
    if (skip_name("else")) {
      TRY(otherwise, expression());
    }
    --conditional_;
    c->items.push_back(std::move(e));
    c->items.push_back(std::move(condition));
    c->items.push_back(std::move(otherwise));
    TRY(e, finished(std::move(c)));
  }
  return e;
}

Made Parser::logical_or() {
  TRY(auto e, logical_and());
  while (skip_name("or")) {
    TRY(auto right, logical_and());
    TRY(e, binary(ExpressionKind::kOr, std::move(e), std::move(right)));
  }
  return e;
}

Made Parser::logical_and() {
  TRY(auto e, logical_not());
  while (skip_name("and")) {
    TRY(auto right, logical_not());
    TRY(e, binary(ExpressionKind::kAnd, std::move(e), std::move(right)));
  }
  return e;
}

Made Parser::logical_not() {
  if (now().is_name("not")) {
    const Level level(level_);
    if (level_ > kMaxParserDepth) return fail("an expression is nested deeper than 100");
    advance();
    TRY(auto e, logical_not());
    return unary(ExpressionKind::kNot, std::move(e));
  }
  return comparison();
}

Made Parser::comparison() {
  TRY(auto first, sum());
  constexpr std::array<std::string_view, 6> kOps{"==", "!=", "<", "<=", ">", ">="};
  auto e = node(ExpressionKind::kCompare);
  e->items.push_back(std::move(first));
  while (true) {
    std::string op;
    if (now().kind == TokenKind::kOperator && std::find(kOps.begin(), kOps.end(), now().text) != kOps.end()) {
      op = now().text;
      advance();
    } else if (now().is_name("in")) {
      op = "in";
      advance();
    } else if (now().is_name("not") && next().is_name("in")) {
      op = "not in";
      advance();
      advance();
    } else {
      break;
    }
    TRY(auto right, sum());
    e->operators.push_back(std::move(op));
    e->items.push_back(std::move(right));
  }
  if (e->operators.empty()) return std::move(e->items[0]);
  return finished(std::move(e));
}

Made Parser::sum() {
  TRY(auto e, concatenation());
  while (now().is_op("+") || now().is_op("-")) {
    std::string op = now().text;
    advance();
    TRY(auto right, concatenation());
    TRY(e, binary(ExpressionKind::kBinary, std::move(e), std::move(right), std::move(op)));
  }
  return e;
}

Made Parser::concatenation() {
  TRY(auto first, product());
  if (!now().is_op("~")) return first;
  auto e = node(ExpressionKind::kConcat);
  e->items.push_back(std::move(first));
  while (skip_op("~")) {
    TRY(auto item, product());
    e->items.push_back(std::move(item));
  }
  return finished(std::move(e));
}

Made Parser::product() {
  TRY(auto e, power());
  while (now().is_op("*") || now().is_op("/") || now().is_op("//") || now().is_op("%")) {
    std::string op = now().text;
    advance();
    TRY(auto right, power());
    TRY(e, binary(ExpressionKind::kBinary, std::move(e), std::move(right), std::move(op)));
  }
  return e;
}

Made Parser::power() {
  TRY(auto e, signed_value(true));
  while (skip_op("**")) {
    TRY(auto right, signed_value(true));
    TRY(e, binary(ExpressionKind::kBinary, std::move(e), std::move(right), "**"));
  }
  return e;
}

Made Parser::signed_value(bool with_filter) {
  if (now().is_op("-") || now().is_op("+")) {
    const Level level(level_);
    if (level_ > kMaxParserDepth) return fail("an expression is nested deeper than 100");
    const bool minus = now().is_op("-");
    advance();
    TRY(auto e, signed_value(false));
    TRY(e, unary(minus ? ExpressionKind::kNegative : ExpressionKind::kPositive, std::move(e)));
    return with_filter ? filtered(std::move(e)) : postfixed(std::move(e));
  }
  TRY(auto e, primary());
  TRY(e, postfixed(std::move(e)));
  return with_filter ? filtered(std::move(e)) : Made(std::move(e));
}

void Parser::note_name(const std::string& name) {
  if (!names_.empty()) names_.back().insert(name);
}

Made Parser::primary() {
  const Token token = now();
  auto e = node(ExpressionKind::kConstant);
  switch (token.kind) {
    case TokenKind::kName:
      advance();
      if (token.text == "true" || token.text == "True") {
        e->value = true;
      } else if (token.text == "false" || token.text == "False") {
        e->value = false;
      } else if (token.text == "none" || token.text == "None") {
        e->value = None{};
      } else {
        e->kind = ExpressionKind::kName;
        e->name = token.text;
        note_name(token.text);
      }
      return e;
    case TokenKind::kText: {
      std::string text;
      while (now().kind == TokenKind::kText) {
        text += now().text;
        advance();
      }
      e->value = std::move(text);
      return e;
    }
    case TokenKind::kInteger: {
      TRY(e->value, integer_constant(token));
      advance();
      return e;
    }
    case TokenKind::kFloat: {
      double d = 0;
      std::from_chars(token.text.data(), token.text.data() + token.text.size(), d);
      e->value = d;
      advance();
      return e;
    }
    case TokenKind::kOperator:
      if (token.text == "(") return parenthesized();
      if (token.text == "[") return list();
      if (token.text == "{") return dict();
      [[fallthrough]];
    default:
      return fail((token.kind == TokenKind::kOutputEnd || token.kind == TokenKind::kBlockEnd
                       ? "Expected an expression, got "
                       : "unexpected ") +
                  token.shown());
  }
}

Result<Value> Parser::integer_constant(const Token& token) const {
  std::string_view digits = token.text;
  Integer base = 10;
  if (digits.size() > 1 && digits[0] == '0') {
    const char b = digits[1];
    if (b == 'x' || b == 'X') base = 16;
    if (b == 'o' || b == 'O') base = 8;
    if (b == 'b' || b == 'B') base = 2;
    if (base != 10) digits.remove_prefix(2);
  }
  Integer n = 0;
  for (const char c : digits) {
    const int v = c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
    if (v >= base || __builtin_mul_overflow(n, base, &n) || __builtin_add_overflow(n, static_cast<Integer>(v), &n))
      return fail("the number " + quoted(token.text, 50) + " is malformed or has over 127 bits");
  }
  if (digits.empty()) return fail("the number " + quoted(token.text, 50) + " is malformed");
  return Value(n);
}

Made Parser::parenthesized() {
  const Level level(level_);
  if (level_ > kMaxParserDepth) return fail("an expression is nested deeper than 100");
  advance();
  if (now().is_op(")")) {
    auto e = node(ExpressionKind::kTuple);
    advance();
    return finished(std::move(e));
  }
  TRY(auto e, tuple(true));
  TRY_STATUS(expect_op(")"));
  return e;
}

Made Parser::list() {
  auto e = node(ExpressionKind::kList);
  advance();
  while (!now().is_op("]")) {
    if (!e->items.empty()) TRY_STATUS(expect_op(","));
    if (now().is_op("]")) break;
    TRY(auto item, expression());
    e->items.push_back(std::move(item));
  }
  advance();
  return finished(std::move(e));
}

Made Parser::dict() {
  auto e = node(ExpressionKind::kDict);
  advance();
  while (!now().is_op("}")) {
    if (!e->items.empty()) TRY_STATUS(expect_op(","));
    if (now().is_op("}")) break;
    TRY(auto key, expression());
    TRY_STATUS(expect_op(":"));
    TRY(auto value, expression());
    e->items.push_back(std::move(key));
    e->items.push_back(std::move(value));
  }
  advance();
  return finished(std::move(e));
}

Made Parser::postfixed(ExpressionPtr e) {
  while (true) {
    if (now().is_op(".")) {
      TRY(e, dotted(std::move(e)));
    } else if (now().is_op("[")) {
      TRY(e, subscript(std::move(e)));
    } else if (now().is_op("(")) {
      TRY(e, call(std::move(e)));
    } else {
      return e;
    }
  }
}

Made Parser::filtered(ExpressionPtr e) {
  while (true) {
    if (now().is_op("|")) {
      TRY(e, filter_chain(std::move(e), false));
    } else if (now().is_name("is")) {
      TRY(e, test(std::move(e)));
    } else if (now().is_op("(")) {
      TRY(e, call(std::move(e)));
    } else {
      return e;
    }
  }
}

Made Parser::dotted(ExpressionPtr object) {
  auto e = node(ExpressionKind::kAttribute);
  advance();
  if (now().kind == TokenKind::kName) {
    e->name = now().text;
  } else if (now().kind == TokenKind::kInteger) {
    e->kind = ExpressionKind::kItem;
  } else {
    return fail("expected name or number");
  }
  e->items.push_back(std::move(object));
  if (e->kind == ExpressionKind::kItem) {
    auto index = node(ExpressionKind::kConstant);
    TRY(index->value, integer_constant(now()));
    e->items.push_back(std::move(index));
  }
  advance();
  return finished(std::move(e));
}

Made Parser::subscript(ExpressionPtr object) {
  auto e = node(ExpressionKind::kItem);
  advance();
  std::vector<ExpressionPtr> indices;
  while (!now().is_op("]")) {
    if (!indices.empty()) TRY_STATUS(expect_op(","));
    TRY(auto index, slice_or_index());
    indices.push_back(std::move(index));
  }
  advance();
  e->items.push_back(std::move(object));
  if (indices.size() == 1) {
    e->items.push_back(std::move(indices[0]));
  } else {
    auto all = node(ExpressionKind::kTuple);
    all->items = std::move(indices);
    TRY(all, finished(std::move(all)));
    e->items.push_back(std::move(all));
  }
  return finished(std::move(e));
}

Made Parser::slice_or_index() {
  std::vector<ExpressionPtr> parts(3);
  size_t part = 0;
  bool is_slice = false;
  if (!now().is_op(":")) {
    TRY(parts[0], expression());
    if (!now().is_op(":")) return std::move(parts[0]);
  }
  auto e = node(ExpressionKind::kSlice);
  while (now().is_op(":") && part < 2) {
    is_slice = true;
    advance();
    ++part;
    if (now().is_op(":") || now().is_op("]") || now().is_op(",")) continue;
    TRY(parts[part], expression());
  }
  if (!is_slice) return fail("expected a slice");
  e->items = std::move(parts);
  return finished(std::move(e));
}

Status Parser::arguments(Expression& e) {
  advance();
  bool first = true;
  while (!now().is_op(")")) {
    if (!first) TRY_STATUS(expect_op(","));
    if (now().is_op(")")) break;
    first = false;
    if (skip_op("*")) {
      if (e.star || e.star_star) return fail("invalid syntax for function call expression");
      TRY(e.star, expression());
    } else if (skip_op("**")) {
      if (e.star_star) return fail("invalid syntax for function call expression");
      TRY(e.star_star, expression());
    } else if (now().kind == TokenKind::kName && next().is_op("=")) {
      if (e.star_star) return fail("invalid syntax for function call expression");
      std::string name = now().text;
      advance();
      advance();
      TRY(auto value, expression());
      e.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (e.star || e.star_star || !e.named.empty()) return fail("invalid syntax for function call expression");
      TRY(auto value, expression());
      e.items.push_back(std::move(value));
    }
  }
  advance();
  return {};
}

Made Parser::call(ExpressionPtr callee) {
  auto e = node(ExpressionKind::kCall);
  e->items.push_back(std::move(callee));
  TRY_STATUS(arguments(*e));
  return finished(std::move(e));
}

Result<std::string> Parser::dotted_name() {
  TRY(std::string name, expect_name());
  while (skip_op(".")) {
    TRY(const std::string part, expect_name());
    name += "." + part;
  }
  return name;
}

Made Parser::filter_chain(ExpressionPtr e, bool inline_start) {
  while (inline_start || now().is_op("|")) {
    if (!inline_start) advance();
    inline_start = false;
    auto f = node(ExpressionKind::kFilter);
    TRY(f->name, dotted_name());
    if (!is_filter(f->name) && conditional_ == 0)
      return syntax_error(f->line, "No filter named " + quoted(f->name, 60) + ".");
    f->items.push_back(std::move(e));
    if (now().is_op("(")) TRY_STATUS(arguments(*f));
    TRY(e, finished(std::move(f)));
  }
  return e;
}

Made Parser::test(ExpressionPtr operand) {
  advance();
  const bool negated = skip_name("not");
  auto t = node(ExpressionKind::kTest);
  TRY(t->name, dotted_name());
  if (!is_test(t->name) && conditional_ == 0)
    return syntax_error(t->line, "No test named " + quoted(t->name, 60) + ".");
  t->items.push_back(std::move(operand));
  const bool starts_value = now().kind == TokenKind::kName || now().kind == TokenKind::kText ||
                            now().kind == TokenKind::kInteger || now().kind == TokenKind::kFloat || now().is_op("[") ||
                            now().is_op("{");
  if (now().is_op("(")) {
    TRY_STATUS(arguments(*t));
  } else if (starts_value && !now().is_name("else") && !now().is_name("or") && !now().is_name("and")) {
    if (now().is_name("is")) return fail("You cannot chain multiple tests with is");
    TRY(auto argument, primary());
    TRY(argument, postfixed(std::move(argument)));
    t->items.push_back(std::move(argument));
  }
  TRY(auto e, finished(std::move(t)));
  return negated ? unary(ExpressionKind::kNot, std::move(e)) : Made(std::move(e));
}

}  // namespace berth::jinja
