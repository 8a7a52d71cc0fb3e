// plan/explain/svg.cc — see svg.h.
#include "berth/plan/explain/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "berth/base/bytes.h"
#include "berth/base/strings.h"
#include "berth/plan/explain/text.h"
#include "berth/tensor/dtype.h"

namespace berth::plan {
namespace {

constexpr std::string_view kAccelerators[] = {
    "#3b6fb6", "#2f9e77", "#8a63b8", "#c2683a", "#4aa3c7", "#7c9a3e", "#b4547f", "#5a6b7b",
    // Darker, from the ninth on.
    "#1d3f74", "#17604a", "#523579", "#7d3c16", "#1f6682", "#4c6122", "#762c4e", "#2c3640"};
constexpr std::string_view kCpu = "#d9a441", kDisk = "#b8564c";

constexpr std::string_view kGrey = "#8b939c", kInk = "#20262d";

// Colours say which device, strength says what for.
struct Part {
  const char* name;
  double strength;  // 0: grey
  uint64_t bytes;
};
std::array<Part, 5> parts_of(const DeviceUse& d) {
  return {{{"weights", 1.0, d.weights_bytes},
           {"KV cache", 0.6, d.kv_bytes},
           {"workspace", 0.38, d.workspace_bytes},
           {"staging", 0.22, d.staging_bytes},
           {"overhead and margin", 0, d.overhead_bytes + d.margin_bytes}}};
}

std::string rate_text(double per_second) {
  return per_second < 100 ? fmt::format("{:.3g}", per_second)
                          : group_digits(static_cast<uint64_t>(std::lround(std::min(per_second, 1e15))));
}

std::string_view color_of(const Plan& plan, const std::string& id) {
  if (id == "cpu") return kCpu;
  if (id == "disk") return kDisk;
  size_t k = 0;
  for (const DeviceUse& d : plan.devices) {
    if (d.id == id) return kAccelerators[k % std::size(kAccelerators)];
    ++k;
  }
  return "#999999";
}

bool is_used(const DeviceUse& d) { return d.weights_bytes + d.kv_bytes + d.workspace_bytes + d.staging_bytes > 0; }
std::string name_of(const DeviceUse& d) { return d.id == d.machine_id ? d.id : d.id + " (" + d.machine_id + ")"; }

class Svg {
 public:
  Svg(const Plan& plan, std::string_view title, int width) : p_(plan), width_(std::max(width, 480)) {
    if (!title.empty()) {
      text(kLeft, y_ + 18, title, "t");
      y_ += 26;
      text(kLeft, y_ + 12,
           fmt::format("{} stored; context {}, batch {}, KV cache {}", format_bytes(p_.memory_footprint_bytes),
                       p_.shape.ctx_size, p_.shape.batch, dtype_info(p_.shape.kv_dtype).torch),
           "s");
      y_ += 28;
    }
    bars();
    legend();
    layers();
    footer();
  }

  std::string document() const {
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
               "role=\"img\">\n"
               "<style>text{{font:13px "
               "system-ui,sans-serif;fill:#20262d}}.t{{font-weight:600;font-size:15px}}.s{{font-size:11px;fill:#5c6670}"
               "}"
               ".u{{stroke:#fff;stroke-width:1}}.u:hover,.v:hover{{stroke:#20262d;stroke-width:2}}</style>\n"
               "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
               width_, y_ + 10) +
           body_ + "</svg>\n";
  }

 private:
  static constexpr int kLeft = 16, kNames = 110;

  void text(int x, int y, std::string_view content, const char* css = "", const char* anchor = "start") {
    body_ += fmt::format("<text x=\"{}\" y=\"{}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y, css, anchor,
                         xml_escaped(content));
  }
  void box(double x, double y, double w, double h, std::string_view color, const std::string& tip, const char* css = "",
           double opacity = 1) {
    body_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"{} "
        "class=\"{}\"><title>{}</title></rect>\n",
        x, y, w, h, color, opacity < 1 ? fmt::format(" fill-opacity=\"{:.2f}\"", opacity) : "", css, xml_escaped(tip));
  }
  void part_box(double x, double y, double w, double h, const Part& part, std::string_view color,
                const std::string& tip) {
    box(x, y, w, h, part.strength > 0 ? color : kGrey, tip, "", part.strength > 0 ? part.strength : 1);
  }

  void bars() {
    const int from = kLeft + kNames, room = width_ - from - kLeft;
    for (const DeviceUse& d : p_.devices) {
      if (!is_used(d)) continue;
      box(kLeft, y_ + 6, 10, 10, color_of(p_, d.id), name_of(d));
      text(kLeft + 16, y_ + 15, name_of(d));
      box(from, y_, room, 20, "#e9edf1", fmt::format("free: {}", format_bytes(d.free_bytes())));
      double x = from;
      for (const Part& part : parts_of(d)) {
        if (part.bytes == 0 || d.budget_bytes == 0) continue;
        const double w = static_cast<double>(part.bytes) / static_cast<double>(d.budget_bytes) * room;
        part_box(x, y_, std::max(w, 1.0), 20, part, color_of(p_, d.id),
                 fmt::format("{}: {} ({} bytes)", part.name, format_bytes(part.bytes), part.bytes));
        x += w;
      }
      text(from, y_ + 34,
           fmt::format("{} of {}, free {}", format_bytes(d.used()), format_bytes(d.budget_bytes),
                       format_bytes(d.free_bytes())),
           "s");
      y_ += 46;
    }
  }

  void legend() {
    std::array<uint64_t, 5> sums{};
    for (const DeviceUse& d : p_.devices) {
      const auto parts = parts_of(d);
      for (size_t k = 0; k < parts.size(); ++k) sums[k] += parts[k].bytes;
    }
    const auto parts = parts_of(DeviceUse{});
    int x = kLeft + kNames;
    for (size_t k = 0; k < parts.size(); ++k) {
      if (sums[k] == 0) continue;
      part_box(x, y_, 10, 10, parts[k], kInk, parts[k].name);
      text(x + 14, y_ + 9, parts[k].name, "s");
      x += 24 + 7 * static_cast<int>(std::string_view(parts[k].name).size());
    }
    y_ += 28;
  }

  static int row_of(const PlacedUnit& u) {
    switch (u.kind) {
      case sizing::UnitKind::kLayer:
        return 0;
      case sizing::UnitKind::kAttention:
        return 1;
      case sizing::UnitKind::kMlp:
        return 2;
      case sizing::UnitKind::kExpertBank:
        return 3;
      default:
        return -1;
    }
  }

  static std::string tip_of(const PlacedUnit& u) {
    std::string tip = fmt::format("{}\n{} on {}", u.path, format_bytes(u.stored_bytes), u.device);
    if (u.computed_on != u.device) tip += fmt::format(", computed on {}", u.computed_on);
    if (u.kv_bytes > 0) tip += fmt::format(", KV cache {}", format_bytes(u.kv_bytes));
    tip += fmt::format("\n{} read per step", format_bytes(u.touched_bytes));
    return tip + "\n" + u.reason;
  }

  void layers() {
    static constexpr const char* kRows[] = {"layers", "attention", "MLP", "experts"};
    int32_t count = 0;
    std::array<bool, 4> rows{};
    for (const PlacedUnit& u : p_.units) {
      if (u.layer < 0 || row_of(u) < 0) continue;
      count = std::max(count, u.layer + 1);
      rows[static_cast<size_t>(row_of(u))] = true;
    }
    const int from = kLeft + kNames, room = width_ - from - kLeft;
    if (count > 0) {
      const double w = std::min(24.0, static_cast<double>(room) / count);
      const char* cell = w < 4 ? "v" : "u";  // too narrow for a border
      int32_t step = 5;                      // numbers far enough apart to be read
      for (bool two = true; step * w < 36; two = !two) step *= two ? 2 : 5;
      for (int32_t l = 0; l < count; l += step) text(from + static_cast<int>(w * l), y_ + 8, std::to_string(l), "s");
      y_ += 14;
      for (size_t row = 0; row < rows.size(); ++row) {
        if (!rows[row]) continue;
        text(kLeft, y_ + 15, kRows[row]);
        for (const PlacedUnit& u : p_.units) {
          if (u.layer < 0 || row_of(u) != static_cast<int>(row)) continue;
          box(from + w * u.layer, y_, w, 20, color_of(p_, u.device), tip_of(u), cell);
          // Kept elsewhere, computed here: the computing device as a stripe.
          streams_ = streams_ || u.computed_on != u.device;
          if (u.computed_on != u.device)
            box(from + w * u.layer, y_ + 15, w, 5, color_of(p_, u.computed_on), tip_of(u), cell);
        }
        y_ += 24;
      }
      if (streams_) {
        text(from, y_ + 8, "two colours: kept on the upper device, brought to the lower one for each use", "s");
        y_ += 14;
      }
      y_ += 6;
    }
    for (const PlacedUnit& u : p_.units) {
      if (u.layer >= 0 || (u.stored_bytes == 0 && u.kind == sizing::UnitKind::kTable)) continue;
      box(kLeft, y_ + 4, 12, 12, color_of(p_, u.device), tip_of(u), "u");
      text(kLeft + 18, y_ + 14, fmt::format("{} on {}, {}", u.path, u.device, format_bytes(u.stored_bytes)));
      y_ += 20;
    }
  }

  void footer() {
    y_ += 12;
    std::string line;
    if (p_.estimate.decode_tokens_per_s > 0)
      line = fmt::format("about {} tokens/s decoding, {} prefilling; {} move{} per token. ",
                         rate_text(p_.estimate.decode_tokens_per_s), rate_text(p_.estimate.prefill_tokens_per_s),
                         p_.estimate.cuts, p_.estimate.cuts == 1 ? "" : "s");
    line += "Strategy " + p_.strategy + (p_.certificate ? ": " + certificate_text(*p_.certificate) : "");
    text(kLeft, y_ + 6, line, "s");
    y_ += 14;
  }

  const Plan& p_;
  int width_, y_ = 12;
  bool streams_ = false;
  std::string body_;
};

std::string device_table(const Plan& plan) {
  std::string out =
      "<table><thead><tr><th>device<th class=\"n\">budget<th class=\"n\">weights<th class=\"n\">KV cache<th "
      "class=\"n\">workspace<th class=\"n\">staging<th class=\"n\">overhead<th class=\"n\">margin<th "
      "class=\"n\">free</tr></thead><tbody>\n";
  for (const DeviceUse& d : plan.devices) {
    out += "<tr><td>" + xml_escaped(name_of(d));
    for (const uint64_t bytes : {d.budget_bytes, d.weights_bytes, d.kv_bytes, d.workspace_bytes, d.staging_bytes,
                                 d.overhead_bytes, d.margin_bytes, d.free_bytes()})
      out += fmt::format("<td class=\"n\" title=\"{} bytes\">{}", group_digits(bytes), format_bytes(bytes));
    out += "</tr>\n";
  }
  return out + "</tbody></table>\n";
}

std::string unit_table(const Plan& plan) {
  std::string out =
      "<input id=\"f\" type=\"search\" placeholder=\"filter modules\" aria-label=\"filter modules\">\n"
      "<table id=\"u\"><thead><tr><th>module<th>stored on<th>computed on<th>access<th class=\"n\">stored<th "
      "class=\"n\">read per step<th class=\"n\">KV cache<th>reason</tr></thead><tbody>\n";
  static constexpr const char* kAccess[] = {"compute", "gather", "stream"};
  for (const PlacedUnit& u : plan.units)
    out += fmt::format(
        "<tr><td>{}{}<td><i style=\"background:{}\"></i>{}<td>{}<td>{}<td class=\"n\">{}<td class=\"n\">{}<td "
        "class=\"n\">{}<td>{}</tr>\n",
        xml_escaped(u.path), u.kind == sizing::UnitKind::kExpertBank ? " <small>experts</small>" : "",
        color_of(plan, u.device), xml_escaped(u.device), xml_escaped(u.computed_on),
        kAccess[static_cast<size_t>(u.access)], format_bytes(u.stored_bytes), format_bytes(u.touched_bytes),
        u.kv_bytes > 0 ? format_bytes(u.kv_bytes) : "", xml_escaped(u.reason));
  return out + "</tbody></table>\n";
}

}  // namespace

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '\n':
        out += "&#10;";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20)
          out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        else
          out += c;
    }
  }
  return is_valid_utf8(out) ? out : xml_escaped(escaped(text));
}

std::string plan_svg(const Plan& plan, std::string_view title, int width) { return Svg(plan, title, width).document(); }

std::string plan_html(const Plan& plan, std::string_view title) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\">\n<title>" +
      xml_escaped(title.empty() ? std::string_view("Berth plan") : title) +
      "</title>\n<style>\nbody{font:14px system-ui,sans-serif;margin:24px auto;max-width:1100px;padding:0 "
      "16px;color:#20262d;background:#fff}\n"
      "svg{max-width:100%;height:auto}table{border-collapse:collapse;margin:12px "
      "0;width:100%}th,td{text-align:left;padding:4px 8px;"
      "border-bottom:1px solid "
      "#e3e7eb;font-size:13px;text-wrap:pretty}th{position:sticky;top:0;background:#f6f8fa}th.n,.n{text-align:right;"
      "white-space:nowrap}"
      "small{color:#5c6670}td:first-child{overflow-wrap:anywhere;min-width:120px}"
      "td i{display:inline-block;width:10px;height:10px;margin-right:6px;border-radius:2px}input{padding:6px "
      "10px;width:280px;"
      "border:1px solid #c5ccd3;border-radius:6px}.w{background:#fff6e0;padding:8px 12px;border-left:3px solid "
      "#d9a441;margin:8px 0}\n"
      "</style></head><body>\n";
  out += plan_svg(plan, title, 1060);
  for (const std::string& w : plan.warnings) out += "<p class=\"w\">" + xml_escaped(w) + "</p>\n";
  out += "<h2>Devices</h2>\n" + device_table(plan) + "<h2>Modules</h2>\n" + unit_table(plan);
  out +=
      "<script>\nconst f=document.getElementById('f'),r=[...document.querySelectorAll('#u tbody tr')];\n"
      "f.addEventListener('input',()=>{const q=f.value.toLowerCase();for(const t of "
      "r)t.hidden=!t.textContent.toLowerCase().includes(q)});\n"
      "</script>\n</body></html>\n";
  return out;
}

}  // namespace berth::plan
