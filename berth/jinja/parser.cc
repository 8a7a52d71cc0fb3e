// jinja/parser.cc — see parser.h. Statements; expressions are in parse_expressions.cc.
#include "berth/jinja/parser.h"

#include <array>

#include "berth/jinja/builtins.h"
#include "berth/jinja/grammar.h"

namespace berth::jinja {

Result<Body> Parser::statements(const std::vector<std::string_view>& ends) {
  const Level level(level_);
  if (level_ > kMaxParserDepth) return fail("statements are nested deeper than 100");
  Body body;
  const uint32_t opened = now().line;
  while (true) {
    if (now().kind == TokenKind::kEnd) {
      if (ends.empty()) return body;
      return syntax_error(
          opened, "Unexpected end of template. Jinja was looking for the following tags: " + tag_list(ends) + ".");
    }
    if (now().kind == TokenKind::kData) {
      auto s = statement(StatementKind::kText);
      s->text = now().text;
      advance();
      body.push_back(std::move(s));
      continue;
    }
    if (now().kind == TokenKind::kOutputBegin) {
      auto s = statement(StatementKind::kOutput);
      advance();
      TRY(auto e, tuple(true));
      s->expressions.push_back(std::move(e));
      TRY_STATUS(expect(TokenKind::kOutputEnd, "end of print statement"));
      body.push_back(std::move(s));
      continue;
    }
    if (now().kind != TokenKind::kBlockBegin) return fail("unexpected " + now().shown());
    advance();
    if (now().kind != TokenKind::kName) return fail("tag name expected");
    if (std::find(ends.begin(), ends.end(), now().text) != ends.end()) return body;
    TRY(StatementPtr s, tag());
    if (s) {
      TRY(s, finished(std::move(s)));
      body.push_back(std::move(s));
    }
  }
}

std::string Parser::tag_list(const std::vector<std::string_view>& ends) {
  std::string out;
  for (const std::string_view e : ends) out += (out.empty() ? "'" : " or '") + std::string(e) + "'";
  return out;
}

Status Parser::end_of_tag() { return expect(TokenKind::kBlockEnd, "end of statement block"); }

Result<Body> Parser::body_until(const std::vector<std::string_view>& ends, std::string* which) {
  skip_op(":");  // as Python writes it
  TRY_STATUS(end_of_tag());
  TRY(Body body, statements(ends));
  if (which) *which = now().text;
  advance();
  return body;
}

Result<Body> Parser::whole_body(std::string_view end) {
  TRY(Body body, body_until({end}));
  TRY_STATUS(end_of_tag());
  return body;
}

Result<StatementPtr> Parser::tag() {
  const std::string name = now().text;
  auto s = statement(StatementKind::kText);
  advance();
  if (name == "if") return if_tag(std::move(s));
  if (name == "for") return for_tag(std::move(s));
  if (name == "set") return set_tag(std::move(s));
  if (name == "macro") return macro_tag(std::move(s));
  if (name == "call") return call_tag(std::move(s));
  if (name == "with") return with_tag(std::move(s));
  if (name == "print") {
    s->kind = StatementKind::kOutput;
    TRY(auto e, tuple(true));
    s->expressions.push_back(std::move(e));
    TRY_STATUS(end_of_tag());
    return s;
  }
  if (name == "filter") {
    s->kind = StatementKind::kFilterBlock;
    TRY(auto filters, filter_chain(nullptr, true));
    s->expressions.push_back(std::move(filters));
    TRY(s->body, whole_body("endfilter"));
    return s;
  }
  if (name == "autoescape") {
    s->kind = StatementKind::kAutoescape;
    TRY(auto e, expression());
    s->expressions.push_back(std::move(e));
    TRY(s->body, whole_body("endautoescape"));
    return s;
  }
  if (name == "generation") {
    s->kind = StatementKind::kScope;
    TRY(s->body, whole_body("endgeneration"));
    return s;
  }
  if (name == "block") {
    s->kind = StatementKind::kScope;
    TRY(s->text, expect_name());
    if (!skip_name("scoped")) skip_name("required");
    TRY(s->body, body_until({"endblock"}));
    if (now().is_name(s->text)) advance();
    TRY_STATUS(end_of_tag());
    return s;
  }
  if (name == "break" || name == "continue") {
    if (loops_ == 0) return syntax_error(s->line, "'" + name + "' outside of a loop");
    s->kind = name == "break" ? StatementKind::kBreak : StatementKind::kContinue;
    TRY_STATUS(end_of_tag());
    return s;
  }
  if (name == "include" || name == "import" || name == "from" || name == "extends")
    return Error(ErrorCode::kUnsupported, "in the chat template, line " + std::to_string(s->line) + ": '" + name +
                                              "' reads another template, and there is none to read");
  return syntax_error(s->line, "Encountered unknown tag " + quoted(name, 40) + ".");
}

Result<StatementPtr> Parser::if_tag(StatementPtr s) {
  std::vector<StatementPtr> branches;  // "if", then every "elif"
  branches.push_back(std::move(s));
  std::string which = "elif";
  ++conditional_;
  while (true) {
    Statement& branch = *branches.back();
    branch.kind = StatementKind::kIf;
    TRY(auto condition, tuple(false));
    branch.expressions.push_back(std::move(condition));
    TRY(branch.body, body_until({"elif", "else", "endif"}, &which));
    if (which != "elif") break;
    branches.push_back(statement(StatementKind::kIf));
  }
  if (which == "else") {
    TRY(branches.back()->otherwise, whole_body("endif"));
  } else {
    TRY_STATUS(end_of_tag());
  }
  --conditional_;
  // An "elif" is an "if" in the "else" of the one before it.
  while (branches.size() > 1) {
    TRY(auto last, finished(std::move(branches.back())));
    branches.pop_back();
    branches.back()->otherwise.push_back(std::move(last));
  }
  return std::move(branches.front());
}

Result<StatementPtr> Parser::for_tag(StatementPtr s) {
  s->kind = StatementKind::kFor;
  TRY(auto target, assignment_target(true, false, "in"));
  s->targets.push_back(std::move(target));
  if (!skip_name("in")) return fail("expected token 'in', got " + now().shown());
  TRY(auto iterated, tuple(false, "recursive"));
  s->expressions.push_back(std::move(iterated));
  s->expressions.push_back(nullptr);
  if (skip_name("if")) {
    TRY(s->expressions[1], expression());
  }
  s->recursive = skip_name("recursive");
  std::string which;
  ++loops_;
  auto body = body_until({"endfor", "else"}, &which);
  --loops_;
  if (!body) return body.error();
  s->body = std::move(*body);
  if (which == "else") {
    TRY(s->otherwise, whole_body("endfor"));
  } else {
    TRY_STATUS(end_of_tag());
  }
  return s;
}

Result<StatementPtr> Parser::set_tag(StatementPtr s) {
  s->kind = StatementKind::kSet;
  TRY(auto target, assignment_target(true, true));
  s->targets.push_back(std::move(target));
  if (skip_op("=")) {
    TRY(auto e, tuple(true));
    s->expressions.push_back(std::move(e));
    TRY_STATUS(end_of_tag());
    return s;
  }
  s->kind = StatementKind::kSetBlock;
  TRY(auto filters, filter_chain(nullptr, false));
  s->expressions.push_back(std::move(filters));
  TRY(s->body, whole_body("endset"));
  return s;
}

Status Parser::signature(MacroDefinition& m) {
  TRY_STATUS(expect_op("("));
  while (!now().is_op(")")) {
    if (!m.parameters.empty()) TRY_STATUS(expect_op(","));
    if (now().is_op(")")) break;
    TRY(auto name, expect_name());
    m.parameters.push_back(std::move(name));
    if (skip_op("=")) {
      TRY(auto e, expression());
      m.defaults.push_back(std::move(e));
    } else if (!m.defaults.empty()) {
      return fail("non-default argument follows default argument");
    }
    if (m.parameters.size() > 255) return fail("a macro has more than 255 parameters");
  }
  advance();
  return {};
}

Status Parser::macro_body(MacroDefinition& m, std::string_view end) {
  names_.emplace_back();
  const int loops = std::exchange(loops_, 0);
  auto body = whole_body(end);
  loops_ = loops;
  const std::set<std::string> names = std::move(names_.back());
  names_.pop_back();
  if (!names_.empty()) names_.back().insert(names.begin(), names.end());
  if (!body) return body.error();
  m.body = std::move(*body);
  m.uses_varargs = names.contains("varargs");
  m.uses_kwargs = names.contains("kwargs");
  m.uses_caller = names.contains("caller");
  return {};
}

Result<StatementPtr> Parser::macro_tag(StatementPtr s) {
  s->kind = StatementKind::kMacro;
  s->macro = std::make_unique<MacroDefinition>();
  TRY(s->macro->name, expect_name());
  TRY_STATUS(signature(*s->macro));
  TRY_STATUS(macro_body(*s->macro, "endmacro"));
  return s;
}

Result<StatementPtr> Parser::call_tag(StatementPtr s) {
  s->kind = StatementKind::kCallBlock;
  s->macro = std::make_unique<MacroDefinition>();
  s->macro->name = "caller";
  if (now().is_op("(")) TRY_STATUS(signature(*s->macro));
  TRY(auto call, expression());
  if (call->kind != ExpressionKind::kCall) return syntax_error(s->line, "expected call");
  s->expressions.push_back(std::move(call));
  TRY_STATUS(macro_body(*s->macro, "endcall"));
  return s;
}

Result<StatementPtr> Parser::with_tag(StatementPtr s) {
  s->kind = StatementKind::kWith;
  while (now().kind != TokenKind::kBlockEnd) {
    if (!s->targets.empty()) TRY_STATUS(expect_op(","));
    TRY(auto target, assignment_target(true, false));
    s->targets.push_back(std::move(target));
    TRY_STATUS(expect_op("="));
    TRY(auto e, expression());
    s->expressions.push_back(std::move(e));
  }
  TRY(s->body, whole_body("endwith"));
  return s;
}

Made Parser::assignment_target(bool with_tuple, bool with_namespace, std::string_view end) {
  if (with_namespace && now().kind == TokenKind::kName && next().is_op(".")) {
    auto e = node(ExpressionKind::kAttribute);
    auto ns = node(ExpressionKind::kName, now().text);
    note_name(now().text);
    e->items.push_back(std::move(ns));
    advance();
    advance();
    TRY(e->name, expect_name());
    return finished(std::move(e));
  }
  TRY(auto target, tuple(false, end, true));
  if (!with_tuple || !assignable(*target)) return fail("can't assign to that");
  return target;
}

bool Parser::assignable(const Expression& e) {
  if (e.kind == ExpressionKind::kName) return e.name != "true" && e.name != "false" && e.name != "none";
  return e.kind == ExpressionKind::kTuple && !e.items.empty() &&
         std::all_of(e.items.begin(), e.items.end(), [](const auto& i) { return assignable(*i); });
}

Result<Body> parse(std::string_view source) {
  TRY(auto tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace berth::jinja
