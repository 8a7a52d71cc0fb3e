#include "berth/jinja/parser.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "berth/base/strings.h"
#include "berth/jinja/builtins.h"
#include "berth/jinja/lexer.h"

namespace berth::jinja {
namespace {

constexpr uint32_t kMaxTreeDepth = 300;    // of the tree: long chains of operators, filters, elif
constexpr uint32_t kMaxParserDepth = 100;  // brackets and blocks in one another; Python's Jinja ends near 70

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

  // --- statements ---

  // Statements up to a block that opens with one of `ends`, whose name stays the current token.
  Result<Body> statements(const std::vector<std::string_view>& ends) {
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

  static std::string tag_list(const std::vector<std::string_view>& ends) {
    std::string out;
    for (const std::string_view e : ends) out += (out.empty() ? "'" : " or '") + std::string(e) + "'";
    return out;
  }

  Status end_of_tag() { return expect(TokenKind::kBlockEnd, "end of statement block"); }

  // The body up to one of `ends`; the end's name and, where it is the last one, its tag's end are consumed.
  Result<Body> body_until(const std::vector<std::string_view>& ends, std::string* which = nullptr) {
    skip_op(":");  // as Python writes it
    TRY_STATUS(end_of_tag());
    TRY(Body body, statements(ends));
    if (which) *which = now().text;
    advance();
    return body;
  }
  Result<Body> whole_body(std::string_view end) {
    TRY(Body body, body_until({end}));
    TRY_STATUS(end_of_tag());
    return body;
  }

  Result<StatementPtr> tag() {
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

  Result<StatementPtr> if_tag(StatementPtr s) {
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

  Result<StatementPtr> for_tag(StatementPtr s) {
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

  Result<StatementPtr> set_tag(StatementPtr s) {
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

  Status signature(MacroDefinition& m) {
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

  // The names a macro's body mentions decide whether it takes more arguments than it lists.
  Status macro_body(MacroDefinition& m, std::string_view end) {
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

  Result<StatementPtr> macro_tag(StatementPtr s) {
    s->kind = StatementKind::kMacro;
    s->macro = std::make_unique<MacroDefinition>();
    TRY(s->macro->name, expect_name());
    TRY_STATUS(signature(*s->macro));
    TRY_STATUS(macro_body(*s->macro, "endmacro"));
    return s;
  }

  Result<StatementPtr> call_tag(StatementPtr s) {
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

  Result<StatementPtr> with_tag(StatementPtr s) {
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

  // A name, a tuple of names (`with_tuple`) or ns.attribute (`with_namespace`), up to `end`.
  Made assignment_target(bool with_tuple, bool with_namespace, std::string_view end = "") {
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
  static bool assignable(const Expression& e) {
    if (e.kind == ExpressionKind::kName) return e.name != "true" && e.name != "false" && e.name != "none";
    return e.kind == ExpressionKind::kTuple && !e.items.empty() &&
           std::all_of(e.items.begin(), e.items.end(), [](const auto& i) { return assignable(*i); });
  }

  // --- expressions ---

  Made expression() {
    const Level level(level_);
    if (level_ > kMaxParserDepth) return fail("an expression is nested deeper than 100");
    return conditional();
  }

  // Comma-separated expressions make a tuple. `simple`: primaries only (loop targets). Ends before `end`.
  Made tuple(bool conditional_allowed, std::string_view end = "", bool simple = false) {
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
  bool tuple_ends(std::string_view end) const {
    return now().kind == TokenKind::kOutputEnd || now().kind == TokenKind::kBlockEnd || now().is_op(")") ||
           (!end.empty() && now().is_name(end));
  }
  // In "for x in a if b", the "if" belongs to the loop.
  Made without_conditional() {
    const Level level(level_);
    if (level_ > kMaxParserDepth) return fail("an expression is nested deeper than 100");
    return logical_or();
  }

  Made conditional() {
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

  Made logical_or() {
    TRY(auto e, logical_and());
    while (skip_name("or")) {
      TRY(auto right, logical_and());
      TRY(e, binary(ExpressionKind::kOr, std::move(e), std::move(right)));
    }
    return e;
  }
  Made logical_and() {
    TRY(auto e, logical_not());
    while (skip_name("and")) {
      TRY(auto right, logical_not());
      TRY(e, binary(ExpressionKind::kAnd, std::move(e), std::move(right)));
    }
    return e;
  }
  Made logical_not() {
    if (now().is_name("not")) {
      const Level level(level_);
      if (level_ > kMaxParserDepth) return fail("an expression is nested deeper than 100");
      advance();
      TRY(auto e, logical_not());
      return unary(ExpressionKind::kNot, std::move(e));
    }
    return comparison();
  }

  Made comparison() {
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

  Made sum() {
    TRY(auto e, concatenation());
    while (now().is_op("+") || now().is_op("-")) {
      std::string op = now().text;
      advance();
      TRY(auto right, concatenation());
      TRY(e, binary(ExpressionKind::kBinary, std::move(e), std::move(right), std::move(op)));
    }
    return e;
  }
  Made concatenation() {
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
  Made product() {
    TRY(auto e, power());
    while (now().is_op("*") || now().is_op("/") || now().is_op("//") || now().is_op("%")) {
      std::string op = now().text;
      advance();
      TRY(auto right, power());
      TRY(e, binary(ExpressionKind::kBinary, std::move(e), std::move(right), std::move(op)));
    }
    return e;
  }
  Made power() {
    TRY(auto e, signed_value(true));
    while (skip_op("**")) {
      TRY(auto right, signed_value(true));
      TRY(e, binary(ExpressionKind::kBinary, std::move(e), std::move(right), "**"));
    }
    return e;
  }
  Made signed_value(bool with_filter) {
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

  void note_name(const std::string& name) {
    if (!names_.empty()) names_.back().insert(name);
  }

  Made primary() {
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

  Result<Value> integer_constant(const Token& token) const {
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

  Made parenthesized() {
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
  Made list() {
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
  Made dict() {
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

  Made postfixed(ExpressionPtr e) {
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
  Made filtered(ExpressionPtr e) {
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

  Made dotted(ExpressionPtr object) {
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

  Made subscript(ExpressionPtr object) {
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
  Made slice_or_index() {
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

  // The arguments in parentheses at the current token, into `e`.
  Status arguments(Expression& e) {
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

  Made call(ExpressionPtr callee) {
    auto e = node(ExpressionKind::kCall);
    e->items.push_back(std::move(callee));
    TRY_STATUS(arguments(*e));
    return finished(std::move(e));
  }

  Result<std::string> dotted_name() {
    TRY(std::string name, expect_name());
    while (skip_op(".")) {
      TRY(const std::string part, expect_name());
      name += "." + part;
    }
    return name;
  }

  // | name(args) | name..., on `e` (null in filter blocks). `inline_start`: the first name stands without "|".
  Made filter_chain(ExpressionPtr e, bool inline_start) {
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

  Made test(ExpressionPtr operand) {
    advance();
    const bool negated = skip_name("not");
    auto t = node(ExpressionKind::kTest);
    TRY(t->name, dotted_name());
    if (!is_test(t->name) && conditional_ == 0)
      return syntax_error(t->line, "No test named " + quoted(t->name, 60) + ".");
    t->items.push_back(std::move(operand));
    const bool starts_value = now().kind == TokenKind::kName || now().kind == TokenKind::kText ||
                              now().kind == TokenKind::kInteger || now().kind == TokenKind::kFloat ||
                              now().is_op("[") || now().is_op("{");
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

  std::vector<Token> tokens_;
  size_t at_ = 0;
  uint32_t level_ = 0;
  int loops_ = 0;
  int conditional_ = 0;                       // inside what may never run, unknown filters are only found when it does
  std::vector<std::set<std::string>> names_;  // mentioned in the macros around
};

}  // namespace

Result<Body> parse(std::string_view source) {
  TRY(auto tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace berth::jinja
