// plan/explain/solve.cc — see solve.h.
#include "berth/plan/explain/solve.h"

#include <fmt/format.h>

#include "berth/base/bytes.h"
#include "berth/base/strings.h"

namespace berth::plan {
namespace {

struct QuestionInfo {
  Question question;
  std::string_view name, unit;
  bool upwards;  // the largest value that fits, else the smallest
};
constexpr QuestionInfo kQuestions[] = {{Question::kMaxCtx, "max-ctx", "tokens", true},
                                       {Question::kMinVram, "min-vram", "bytes", false},
                                       {Question::kMaxBatch, "max-batch", "sequences", true},
                                       {Question::kMinDevices, "min-devices", "accelerators", false}};

const QuestionInfo& info(Question question) { return kQuestions[static_cast<size_t>(question)]; }

}  // namespace

std::string_view question_name(Question question) { return info(question).name; }

Result<Question> parse_question(std::string_view text) {
  std::vector<std::string> names;
  for (const QuestionInfo& q : kQuestions) {
    if (q.name == text) return q.question;
    names.emplace_back(q.name);
  }
  return Error(ErrorCode::kInvalidArgument, fmt::format("solve: there is no question {}{}; there are {}", quoted(text),
                                                        did_you_mean(text, names), join(names, ", ")));
}

Result<Solution> solve(Question question, int64_t least, int64_t most, int64_t step, const Planner& planner) {
  if (least < 0 || most < least || step < 1)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("solve {}: nothing lies between {} and {}", info(question).name, least, most));
  const bool upwards = info(question).upwards;
  // Steps from the easiest value: 0 is easiest, `last` hardest.
  const int64_t last = (most - least) / step;
  const auto value_of = [&](int64_t k) { return upwards ? least + k * step : least + (last - k) * step; };
  // The hardest value that fits, -1 for none. Gallop, then halve: most answers are near neither end.
  const auto hardest = [&](const auto& fits) -> Result<int64_t> {
    int64_t good = -1, bad = last + 1;
    for (int64_t reach = 1; bad - good > 1;) {
      const int64_t k = bad > last ? std::min(good + reach, last) : good + (bad - good) / 2;
      TRY(const bool ok, fits(value_of(k)));
      (ok ? good : bad) = k;
      if (ok && k > 0) reach *= 4;
    }
    return good;
  };
  const auto whether = [&](Result<Plan> made) -> Result<bool> {
    if (!made && made.error().code != ErrorCode::kDoesNotFit) return made.error();
    return made.has_value();
  };
  Solution s;
  s.question = question;
  s.unit = std::string(info(question).unit);
  TRY(int64_t good, hardest(planner.exists));
  // The plan that proves it. A plan was found there by a quicker search than the one that makes it; should that one
  // miss it, it alone decides.
  if (good >= 0) {
    auto made = planner.plan(value_of(good), Explain::kNothing);
    if (!made && made.error().code == ErrorCode::kDoesNotFit) {
      TRY(good, hardest([&](int64_t v) { return whether(planner.plan(v, Explain::kNothing)); }));
      if (good >= 0) made = planner.plan(value_of(good), Explain::kNothing);
    }
    if (good >= 0) {
      TRY(s.plan, std::move(made));
    }
  }
  s.answer = value_of(std::max<int64_t>(good, 0));
  s.at_limit = good == last;
  if (s.at_limit) return s;
  // The refusal that proves it, one step beyond; where nothing fits, with what would mend it.
  auto beyond = planner.plan(value_of(good + 1), good < 0 ? Explain::kRemedies : Explain::kShortage);
  if (beyond)
    return Error(ErrorCode::kInternal,
                 fmt::format("solve {}: plans differ at {}", info(question).name, value_of(good + 1)));
  if (good < 0 || beyond.error().code != ErrorCode::kDoesNotFit) return beyond.error();
  const Error& refused = beyond.error();
  s.reason = refused.message;
  if (const auto details = JsonDocument::parse(refused.details_json.empty() ? "{}" : refused.details_json))
    if (const auto device = details->root()["device"].as_string()) s.device = std::string(*device);
  return s;
}

std::string solution_text(const Solution& s) {
  const std::string amount =
      s.question == Question::kMinVram
          ? format_bytes(static_cast<uint64_t>(s.answer)) + fmt::format(" ({} bytes) each", s.answer)
          : fmt::format("{} {}", group_digits(static_cast<uint64_t>(s.answer)), s.unit);
  std::string out = fmt::format("{}: {}\n", info(s.question).name, amount);
  if (s.at_limit && s.question == Question::kMinDevices && s.answer > 0)
    return out + "  nothing binds: it is the least that can be asked for\n";
  if (s.at_limit && !info(s.question).upwards)
    return out +
           "  nothing binds: what is off the accelerators takes the rest; --no-offload asks for accelerators alone\n";
  if (s.at_limit) return out + "  nothing binds: this is the end of what was asked for\n";
  return out +
         fmt::format("  one step beyond, device {} binds: {}\n", s.device.empty() ? "?" : s.device, escaped(s.reason));
}

void write_solution(const Solution& s, JsonWriter& out) {
  out.begin_object()
      .member("question", info(s.question).name)
      .member("answer", s.answer)
      .member("unit", s.unit)
      .key("binding");
  if (s.at_limit) {
    out.null();
  } else {
    out.begin_object().member("device", s.device).member("reason", s.reason).end_object();
  }
  out.member("at_limit", s.at_limit).end_object();
}

}  // namespace berth::plan
