// plan/explain/compare.cc — see compare.h.
#include "berth/plan/explain/compare.h"

#include <fmt/format.h>

#include <algorithm>

#include "berth/base/bytes.h"
#include "berth/base/strings.h"

namespace berth::plan {

std::vector<ComparedPlan> compare(std::span<const std::string> strategies, const PlanStrategy& plan) {
  std::vector<ComparedPlan> rows;
  for (const std::string& name : strategies) {
    ComparedPlan row;
    row.name = name;
    auto made = plan(name);
    if (made) {
      row.plan = *std::move(made);
      row.notes = row.plan->warnings;
    } else {
      row.error = std::move(made).error();
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::optional<size_t> best_row(std::span<const ComparedPlan> rows) {
  // Up to this share a table in host memory may cost (planner.md 2): a row that gains no more is not better.
  constexpr double kEqual = 1.01;
  std::optional<size_t> best;
  for (size_t k = 0; k < rows.size(); ++k) {
    if (!rows[k].plan || rows[k].error) continue;
    if (!best || rows[k].plan->estimate.decode_tokens_per_s > kEqual * rows[*best].plan->estimate.decode_tokens_per_s)
      best = k;
  }
  return best;
}

double largest_load(const Plan& plan) {
  double most = 0;
  for (const DeviceUse& d : plan.devices)
    if (d.budget_bytes > 0) most = std::max(most, static_cast<double>(d.used()) / static_cast<double>(d.budget_bytes));
  return most;
}

std::string compare_text(std::span<const ComparedPlan> rows, const PictureStyle& style) {
  size_t name_width = 8;
  for (const ComparedPlan& r : rows) name_width = std::max(name_width, r.name.size());
  std::string out = fmt::format("  {:<{}} {:>5} {:>12} {:>12} {:>6} {:>8}  {}\n", "strategy", name_width, "fits",
                                "decode t/s", "prefill t/s", "moves", "fullest", "accelerators / cpu / disk");
  const auto best = best_row(rows);
  for (size_t k = 0; k < rows.size(); ++k) {
    const ComparedPlan& r = rows[k];
    const std::string mark = best == k ? "* " : "  ";
    if (!r.plan) {
      const std::string message = r.error ? r.error->message : "";
      out += fmt::format("{}{:<{}} {:>5}  {}\n", mark, escaped(r.name), name_width, "no",
                         escaped(message.substr(
                             0, static_cast<size_t>(std::max(20, style.width - static_cast<int>(name_width) - 12)))));
      continue;
    }
    uint64_t accelerators = 0, cpu = 0, disk = 0;
    for (const DeviceUse& d : r.plan->devices)
      (d.id == "cpu" ? cpu : d.id == "disk" ? disk : accelerators) += d.weights_bytes + d.kv_bytes;
    std::string line =
        fmt::format("{}{:<{}} {:>5} {:>12.2f} {:>12.0f} {:>6} {:>6.0f} %  {} / {} / {}", mark, escaped(r.name),
                    name_width, r.error ? "no" : "yes", r.plan->estimate.decode_tokens_per_s,
                    r.plan->estimate.prefill_tokens_per_s, r.plan->estimate.cuts, 100 * largest_load(*r.plan),
                    format_bytes(accelerators), format_bytes(cpu), format_bytes(disk));
    out += style.color && best == k ? "\x1b[1m" + line + "\x1b[0m\n" : line + "\n";
  }
  // Once each, with the rows it is about.
  std::vector<std::pair<std::string, std::string>> notes;
  for (const ComparedPlan& r : rows)
    for (const std::string& note : r.notes) {
      const auto at = std::find_if(notes.begin(), notes.end(), [&](const auto& n) { return n.second == note; });
      if (at == notes.end())
        notes.emplace_back(r.name, note);
      else
        at->first += ", " + r.name;
    }
  for (const auto& [names, note] : notes) out += fmt::format("  {}: {}\n", escaped(names), escaped(note));
  return out;
}

}  // namespace berth::plan
