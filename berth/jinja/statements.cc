// jinja/statements.cc — the interpreter's way through statements: output, loops, assignments.
#include <algorithm>

#include "berth/base/strings.h"
#include "berth/base/utf8.h"
#include "berth/jinja/builtins.h"
#include "berth/jinja/objects.h"

namespace berth::jinja {

Status Interpreter::write_text(std::string_view text) {
  TRY_STATUS(charge(text.size()));
  if (text.size() > options_.max_output_bytes - std::min(options_.max_output_bytes, out_->size()))
    return Error(ErrorCode::kUnsupported,
                 "expected at most " + std::to_string(options_.max_output_bytes) + " bytes of output, found more");
  *out_ += text;
  return {};
}

Status Interpreter::write(const Value& value) {
  if (value.is_text() && (!autoescape_ || value.is_safe())) return write_text(value.as_text());
  TRY_STATUS(work(value.weight()));
  const std::string text = value.text();
  return write_text(autoescape_ && !value.is_safe() ? html_escaped(text) : text);
}

Result<std::string> Interpreter::captured(const Body& body) {
  std::string text;
  std::string* const out = std::exchange(out_, &text);
  const auto scope = std::exchange(scope_, std::make_shared<Scope>(scope_));
  auto flow = execute(body);
  out_ = out;
  scope_ = scope;
  if (!flow) return flow.error();
  return text;
}

Status Interpreter::assign(const Expression& target, Value value) {
  if (target.kind == ExpressionKind::kName) {
    scope_->set(target.name, std::move(value));
    return {};
  }
  if (target.kind == ExpressionKind::kAttribute) {
    TRY(const Value object, look_up(target.items[0]->name));
    auto* ns = object.is_object() ? dynamic_cast<Namespace*>(object.as_object()) : nullptr;
    if (!ns) return type_error("cannot assign attribute on non-namespace object");
    if (target.name.starts_with('_'))
      return type_error("Chat templates cannot store underscore-prefixed attributes on a namespace, but got " +
                        text_repr(target.name) + ". Please rename the attribute.");
    TRY_STATUS(charge(2 * sizeof(Value)));
    ns->set(target.name, std::move(value));
    return {};
  }
  TRY(const Values items, iterate(value));
  if (items.size() != target.items.size())
    return Error(ErrorCode::kInvalidArgument, (items.size() < target.items.size() ? "not enough" : "too many") +
                                                  std::string(" values to unpack (expected ") +
                                                  std::to_string(target.items.size()) + ", got " +
                                                  std::to_string(items.size()) + ")");
  for (size_t i = 0; i < items.size(); ++i) TRY_STATUS(assign(*target.items[i], items[i]));
  return {};
}

Result<Interpreter::Flow> Interpreter::execute(const Body& body) {
  for (const auto& s : body) {
    if (depth_ >= kMaxDepth) {
      locate(s->line);
      return Error(ErrorCode::kUnsupported, "expected at most 500 nested calls, found more (endless recursion?)");
    }
    ++depth_;
    auto status = work(1);
    auto flow = status ? execute(*s) : Result<Flow>(status.error());
    --depth_;
    if (!flow) locate(s->line);
    if (!flow || *flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute_for(const Statement& s, const Value& iterated, size_t depth) {
  TRY(Values items, iterate(iterated));
  const ScopePtr outer = scope_;
  const auto restore = [&] { scope_ = outer; };
  if (s.expressions[1]) {
    Values kept;
    for (Value& v : items) {
      scope_ = std::make_shared<Scope>(outer);
      auto status = assign(*s.targets[0], v);
      auto condition = status ? evaluate(*s.expressions[1]) : Result<Value>(status.error());
      restore();
      if (!condition) return condition.error();
      if (condition->truthy()) kept.push_back(std::move(v));
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    scope_ = std::make_shared<Scope>(outer);
    auto flow = execute(s.otherwise);
    restore();
    return flow;
  }
  TRY(const Value loop_value, make<LoopObject>(s, outer, std::move(items), depth));
  auto* loop = static_cast<LoopObject*>(loop_value.as_object());
  TRY(loop->cycle, make<LoopCycle>(loop));
  TRY(loop->changed, make<LoopChanged>(loop));
  for (size_t i = 0; i < loop->items().size(); ++i) {
    TRY_STATUS(work(1));
    loop->move_to(i);
    scope_ = std::make_shared<Scope>(outer);
    scope_->set("loop", loop_value);
    auto status = assign(*s.targets[0], loop->items()[i]);
    auto flow = status ? execute(s.body) : Result<Flow>(status.error());
    restore();
    if (!flow) return flow;
    if (*flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

Status Interpreter::execute_output(const Statement& s) {
  TRY(const Value v, evaluate(*s.expressions[0]));
  return write(v);
}

Result<Interpreter::Flow> Interpreter::execute_if(const Statement& s) {
  bool holds = false;
  {
    TRY(const Value condition, evaluate(*s.expressions[0]));
    holds = condition.truthy();
  }
  return execute(holds ? s.body : s.otherwise);
}

Status Interpreter::execute_set(const Statement& s) {
  if (s.kind == StatementKind::kSet) {
    TRY(Value v, evaluate(*s.expressions[0]));
    return assign(*s.targets[0], std::move(v));
  }
  TRY(std::string text, captured(s.body));
  Value value = autoescape_ ? Value::markup(std::move(text)) : Value(std::move(text));
  if (s.expressions[0]) {
    TRY(value, evaluate_filter(*s.expressions[0], std::move(value)));
  }
  return assign(*s.targets[0], std::move(value));
}

Status Interpreter::execute_call_block(const Statement& s) {
  TRY(const Value caller, make<Macro>(*s.macro, scope_));
  const Expression& e = *s.expressions[0];
  TRY(const Value callee, evaluate(*e.items[0]));
  TRY(Arguments arguments, evaluate_arguments(e));
  arguments.named.emplace_back("caller", caller);
  TRY(const Value v, call(callee, std::move(arguments)));
  return write(v);
}

Status Interpreter::execute_filter_block(const Statement& s) {
  TRY(std::string text, captured(s.body));
  TRY(const Value v, evaluate_filter(*s.expressions[0], Value(std::move(text))));
  return write(v);
}

Result<Interpreter::Flow> Interpreter::execute_with(const Statement& s) {
  const ScopePtr outer = scope_;
  auto inner = std::make_shared<Scope>(outer);
  for (size_t i = 0; i < s.targets.size(); ++i) {
    TRY(Value v, evaluate(*s.expressions[i]));
    scope_ = inner;
    auto status = assign(*s.targets[i], std::move(v));
    scope_ = outer;
    TRY_STATUS(status);
  }
  scope_ = inner;
  auto flow = execute(s.body);
  scope_ = outer;
  return flow;
}

// A body in a scope of its own; for autoescape with that switched.
Result<Interpreter::Flow> Interpreter::execute_scope(const Statement& s) {
  const bool before = autoescape_;
  if (s.kind == StatementKind::kAutoescape) {
    TRY(const Value on, evaluate(*s.expressions[0]));
    autoescape_ = on.truthy();
  }
  const ScopePtr outer = std::exchange(scope_, std::make_shared<Scope>(scope_));
  auto flow = execute(s.body);
  autoescape_ = before;
  scope_ = outer;
  return flow;
}

// Only the dispatch, as evaluate_kind().
Result<Interpreter::Flow> Interpreter::execute(const Statement& s) {
  Status status;
  switch (s.kind) {
    case StatementKind::kText:
      status = write_text(s.text);
      break;
    case StatementKind::kOutput:
      status = execute_output(s);
      break;
    case StatementKind::kIf:
      return execute_if(s);
    case StatementKind::kFor: {
      TRY(const Value iterated, evaluate(*s.expressions[0]));
      return execute_for(s, iterated, 1);
    }
    case StatementKind::kSet:
    case StatementKind::kSetBlock:
      status = execute_set(s);
      break;
    case StatementKind::kMacro: {
      TRY(const Value macro, make<Macro>(*s.macro, scope_));
      scope_->set(s.macro->name, macro);
      break;
    }
    case StatementKind::kCallBlock:
      status = execute_call_block(s);
      break;
    case StatementKind::kFilterBlock:
      status = execute_filter_block(s);
      break;
    case StatementKind::kWith:
      return execute_with(s);
    case StatementKind::kAutoescape:
    case StatementKind::kScope:
      return execute_scope(s);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  if (!status) return status.error();
  return Flow::kNext;
}

}  // namespace berth::jinja
