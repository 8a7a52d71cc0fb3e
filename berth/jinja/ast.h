// jinja/ast.h — a parsed template: expressions and statements as trees. Plain data; parser.h makes it, interpreter.h
// walks it. Depth is bounded by the parser, so that walking and destroying it needs bounded stack.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "berth/jinja/value.h"

namespace berth::jinja {

enum class ExpressionKind {
  kConstant,     // value
  kName,         // name
  kList,         // items
  kTuple,        // items
  kDict,         // items: key, value, key, value...
  kAttribute,    // items[0].name
  kItem,         // items[0][items[1]]
  kSlice,        // items: start, stop, step; each may be null
  kCall,         // items[0](items[1..], named, *star, **star_star)
  kFilter,       // items[0] | name(items[1..], named); items[0] is null in filter blocks
  kTest,         // items[0] is name(items[1..], named)
  kNot,          // items[0]
  kNegative,     // items[0]
  kPositive,     // items[0]
  kAnd,          // items[0], items[1]
  kOr,           // items[0], items[1]
  kBinary,       // items[0] name items[1]
  kConcat,       // items, joined as texts
  kCompare,      // items[0] operators[0] items[1] operators[1] items[2]...
  kConditional,  // items[0] if items[1] else items[2] (may be null)
};

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  uint32_t line = 1;
  uint32_t depth = 1;
  std::string name;
  Value value;
  std::vector<ExpressionPtr> items;
  std::vector<std::string> operators;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star, star_star;
};

enum class StatementKind {
  kText,         // text
  kOutput,       // expressions[0]
  kIf,           // expressions[0], body, otherwise
  kFor,          // target in expressions[0] [if expressions[1]], body, otherwise, recursive
  kSet,          // target = expressions[0]
  kSetBlock,     // target = body | filter (expressions[0], may be null)
  kMacro,        // macro
  kCallBlock,    // expressions[0]: the call; macro: the caller
  kFilterBlock,  // expressions[0]: the filters over body
  kWith,         // targets[i] = expressions[i], body
  kAutoescape,   // expressions[0], body
  kScope,        // body in a scope of its own (block, generation)
  kBreak,
  kContinue,
};

struct Statement;
using StatementPtr = std::unique_ptr<Statement>;
using Body = std::vector<StatementPtr>;

struct MacroDefinition {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  Body body;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  uint32_t line = 1;
  uint32_t depth = 1;
  std::string text;
  std::vector<ExpressionPtr> targets;  // names, tuples of them, or namespace attributes
  std::vector<ExpressionPtr> expressions;
  Body body, otherwise;
  std::unique_ptr<MacroDefinition> macro;
  bool recursive = false;
};

}  // namespace berth::jinja
