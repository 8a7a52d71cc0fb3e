// jinja/globals.cc — the functions that templates find by name.
#include "berth/jinja/builtins.h"
#include "berth/jinja/interpreter.h"

namespace berth::jinja {

Result<Value> make_namespace(Interpreter& interpreter, Dict values);  // interpreter.cc

namespace {

constexpr Integer kMaxRange = 100000;  // as the sandbox has it

class Function final : public Object {
 public:
  using Body = Result<Value> (*)(Interpreter&, Arguments);
  Function(std::string name, Body body) : name_(std::move(name)), body_(body) {}
  std::string type_name() const override { return "function"; }
  std::string repr() const override { return "<function " + name_ + ">"; }
  Result<Value> call(Interpreter& in, Arguments a) override { return body_(in, std::move(a)); }

 private:
  std::string name_;
  Body body_;
};

Result<Value> range(Interpreter& in, Arguments a) {
  TRY(const Bound b, bind("range", a, {"start", "stop", "step"}, 1));
  Integer n[3] = {0, 0, 1};
  for (size_t i = 0; i < 3; ++i) {
    if (!b[i]) continue;
    const auto v = b[i]->integer();
    if (!v) return type_error("'" + b[i]->type_name() + "' object cannot be interpreted as an integer");
    n[i] = *v;
  }
  const Integer limit = Integer{1} << 100;
  for (const Integer v : n)
    if (v > limit || v < -limit) return Error(ErrorCode::kInvalidArgument, "range() got a number of over 100 bits");
  Sequence s;
  s.kind = SequenceKind::kRange;
  s.start = b[1] ? n[0] : 0;
  s.stop = b[1] ? n[1] : n[0];
  s.step = n[2];
  if (s.step == 0) return Error(ErrorCode::kInvalidArgument, "range() arg 3 must not be zero");
  const Integer span = s.step > 0 ? s.stop - s.start : s.start - s.stop;
  const Integer step = s.step > 0 ? s.step : -s.step;
  const Integer count = span <= 0 ? 0 : (span + step - 1) / step;
  if (count > kMaxRange)
    return Error(ErrorCode::kInvalidArgument,
                 "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  TRY_STATUS(in.charge(static_cast<size_t>(count) * sizeof(Value)));
  TRY_STATUS(in.work(static_cast<size_t>(count)));
  for (Integer i = 0; i < count; ++i) s.items.emplace_back(s.start + i * s.step);
  s.weight = s.items.size() + 1;
  return Value(std::make_shared<const Sequence>(std::move(s)));
}

// dict(mapping or pairs, key=value...), also what namespace() takes.
Result<Dict> dict_of(Interpreter& in, const std::string& who, Arguments& a) {
  Dict d;
  if (a.positional.size() > 1) return type_error(who + " expected at most 1 argument");
  if (a.positional.size() == 1) {
    const Value& from = a.positional[0];
    TRY_STATUS(in.charge(from.weight() * sizeof(Value)));
    if (from.is_dict()) {
      for (const auto& [key, value] : from.as_dict().items) d.set(key, value);
    } else {
      TRY(const Values pairs, in.iterate(from));
      for (const Value& p : pairs) {
        TRY(const Values pair, in.iterate(p));
        if (pair.size() != 2) return type_error("a " + who + " is made of pairs");
        if (!hashable(pair[0])) return type_error("unhashable type: '" + pair[0].type_name() + "'");
        TRY_STATUS(in.work(d.items.size()));
        d.set(pair[0], pair[1]);
      }
    }
  }
  for (auto& [name, value] : a.named) d.set(name, std::move(value));
  return d;
}

Result<Value> dict(Interpreter& in, Arguments a) {
  TRY(Dict d, dict_of(in, "dict", a));
  return Dict::make(std::move(d));
}

Result<Value> name_space(Interpreter& in, Arguments a) {
  TRY(Dict d, dict_of(in, "namespace", a));
  return make_namespace(in, std::move(d));
}

class Cycler final : public Object {
 public:
  explicit Cycler(Values items) : items_(std::move(items)) {}
  std::string type_name() const override { return "Cycler"; }
  bool callable() const override { return false; }
  Result<Value> call(Interpreter&, Arguments) override { return type_error("'Cycler' object is not callable"); }
  std::optional<Value> attribute(std::string_view name) const override {
    if (name == "current") return items_[at_];
    if (name == "next") return next;
    if (name == "reset") return reset;
    return std::nullopt;
  }
  Value advance() {
    const Value now = items_[at_];
    at_ = (at_ + 1) % items_.size();
    return now;
  }
  void restart() { at_ = 0; }
  Value next, reset;

 private:
  Values items_;
  size_t at_ = 0;
};

class CyclerMethod final : public Object {
 public:
  CyclerMethod(Cycler* cycler, bool resets) : cycler_(cycler), resets_(resets) {}
  std::string type_name() const override { return "method"; }
  Result<Value> call(Interpreter&, Arguments) override {
    if (!resets_) return cycler_->advance();
    cycler_->restart();
    return Value(None{});
  }

 private:
  Cycler* cycler_;
  bool resets_;
};

Result<Value> cycler(Interpreter& in, Arguments a) {
  if (a.positional.empty() || !a.named.empty()) return type_error("at least one item has to be provided");
  TRY(const Value made, in.make<Cycler>(std::move(a.positional)));
  auto* c = static_cast<Cycler*>(made.as_object());
  TRY(c->next, in.make<CyclerMethod>(c, false));
  TRY(c->reset, in.make<CyclerMethod>(c, true));
  return made;
}

class Joiner final : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string type_name() const override { return "Joiner"; }
  Result<Value> call(Interpreter&, Arguments) override { return std::exchange(used_, true) ? separator_ : Value(""); }

 private:
  Value separator_;
  bool used_ = false;
};

Result<Value> joiner(Interpreter& in, Arguments a) {
  TRY(const Bound b, bind("joiner", a, {"sep"}));
  return in.make<Joiner>(b[0] ? *b[0] : Value(", "));
}

Result<Value> lipsum(Interpreter&, Arguments) {
  return Error(ErrorCode::kUnsupported, "lipsum() makes random text and is not supported");
}

Result<Value> raise_exception(Interpreter& in, Arguments a) {
  TRY(const Bound b, bind("raise_exception", a, {"message"}, 1));
  return in.raised(b[0]->text());
}

Result<Value> strftime_now(Interpreter& in, Arguments a) {
  TRY(const Bound b, bind("strftime_now", a, {"format"}, 1));
  if (!b[0]->is_text()) return type_error("strftime_now() takes a string");
  TRY_STATUS(in.charge(b[0]->as_text().size() * 8));
  return Value(strftime_text(b[0]->as_text(), in.options().now ? *in.options().now : clock_now()));
}

}  // namespace

Result<std::vector<std::pair<std::string, Value>>> make_globals(Interpreter& in) {
  constexpr std::pair<const char*, Function::Body> kFunctions[] = {{"range", range},
                                                                   {"dict", dict},
                                                                   {"namespace", name_space},
                                                                   {"cycler", cycler},
                                                                   {"joiner", joiner},
                                                                   {"lipsum", lipsum},
                                                                   {"raise_exception", raise_exception},
                                                                   {"strftime_now", strftime_now}};
  std::vector<std::pair<std::string, Value>> globals;
  for (const auto& [name, body] : kFunctions) {
    TRY(Value f, in.make<Function>(name, body));
    globals.emplace_back(name, std::move(f));
  }
  return globals;
}

}  // namespace berth::jinja
