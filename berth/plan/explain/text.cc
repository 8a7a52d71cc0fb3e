// plan/explain/text.cc — see text.h.
#include "berth/plan/explain/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <vector>

#include "berth/base/bytes.h"
#include "berth/base/strings.h"

namespace berth::plan {
namespace {

constexpr std::string_view kLetters = "0123456789ABEFGHIJKLMNOPQRTUVWXYZ";
constexpr char kStreamed = 'S';  // kept elsewhere, brought over for each use

// One part of a device's memory, as it is drawn.
struct Part {
  const char* cell;
  const char* name;
  int color;
  uint64_t bytes;
};

std::array<Part, 5> parts_of(const DeviceUse& d) {
  return {{{"█", "weights", 34, d.weights_bytes},
           {"▓", "KV cache", 35, d.kv_bytes},
           {"▒", "workspace", 33, d.workspace_bytes},
           {"░", "staging", 36, d.staging_bytes},
           {"╌", "overhead and margin", 90, d.overhead_bytes + d.margin_bytes}}};
}

std::string painted(const std::string& text, int color, const PictureStyle& style) {
  return style.color && !text.empty() ? fmt::format("\x1b[{}m{}\x1b[0m", color, text) : text;
}

std::string repeated(const char* cell, int count) {
  std::string out;
  for (int k = 0; k < count; ++k) out += cell;
  return out;
}

std::string padded(std::string text, int width) {
  const int have = columns(text);
  if (have < width) text.append(static_cast<size_t>(width - have), ' ');
  return text;
}

int device_color(char letter) {
  static constexpr int kColors[] = {34, 32, 36, 35, 94, 92, 96, 95};
  if (letter == 'c') return 33;
  if (letter == 'd') return 31;
  if (letter == kStreamed) return 91;
  const size_t at = kLetters.find(letter);
  return kColors[at == std::string_view::npos ? 0 : at % std::size(kColors)];
}

std::string name_of(const DeviceUse& d) { return d.id == d.machine_id ? d.id : d.id + " " + d.machine_id; }

// Cells of the bar. Every part that is there shows at least one cell while there is room for it.
std::string bar_cells(const DeviceUse& d, int width, const PictureStyle& style) {
  std::string out;
  uint64_t sum = 0;
  int at = 0;
  for (const Part& part : parts_of(d)) {
    if (part.bytes == 0) continue;
    sum += part.bytes;
    const double end =
        d.budget_bytes == 0 ? width : static_cast<double>(sum) / static_cast<double>(d.budget_bytes) * width;
    const int to = std::clamp(static_cast<int>(end + 0.5), std::min(at + 1, width), width);
    out += painted(repeated(part.cell, to - at), part.color, style);
    at = to;
  }
  return out + repeated("·", width - at);
}

struct Strip {
  std::string name;
  std::map<int32_t, char> letters;  // by layer
};

char letter_of(const PlacedUnit& u) { return u.access == Access::kStream ? kStreamed : device_letter(u.computed_on); }

std::vector<Strip> strips_of(const Plan& plan) {
  std::vector<Strip> strips = {{"layers", {}}, {"attention", {}}, {"MLP", {}}, {"experts", {}}};
  for (const PlacedUnit& u : plan.units) {
    if (u.layer < 0) continue;
    const int row = u.kind == sizing::UnitKind::kLayer        ? 0
                    : u.kind == sizing::UnitKind::kAttention  ? 1
                    : u.kind == sizing::UnitKind::kMlp        ? 2
                    : u.kind == sizing::UnitKind::kExpertBank ? 3
                                                              : -1;
    if (row >= 0) strips[static_cast<size_t>(row)].letters[u.layer] = letter_of(u);
  }
  std::erase_if(strips, [](const Strip& s) { return s.letters.empty(); });
  return strips;
}

std::string painted_run(const std::string& letters, const PictureStyle& style) {
  std::string out;
  for (size_t k = 0; k < letters.size();) {
    size_t end = k;
    while (end < letters.size() && letters[end] == letters[k]) ++end;
    const std::string run = letters.substr(k, end - k);
    out += letters[k] == ' ' || letters[k] == '-' ? run : painted(run, device_color(letters[k]), style);
    k = end;
  }
  return out;
}

std::string strip_text(const Plan& plan, const PictureStyle& style, int width) {
  const std::vector<Strip> strips = strips_of(plan);
  int32_t layers = 0;
  for (const Strip& s : strips) layers = std::max(layers, s.letters.rbegin()->first + 1);
  const int32_t per_line = std::max(10, (width - 14) / 10 * 10);
  std::string out;
  for (int32_t first = 0; first < layers; first += per_line) {
    const int32_t last = std::min(layers, first + per_line);
    std::string ruler;
    for (int32_t l = first; l < last; ++l) {
      const auto column = static_cast<size_t>(l - first);
      if (l % 10 == 0) {
        ruler.resize(std::max(ruler.size(), column), ' ');
        ruler += std::to_string(l);
      }
    }
    out += padded("  layer", 13) + " " + ruler + "\n";
    for (const Strip& s : strips) {
      std::string letters;
      for (int32_t l = first; l < last; ++l) {
        const auto at = s.letters.find(l);
        letters += at == s.letters.end() ? '-' : at->second;
      }
      out += padded("  " + s.name, 13) + " " + painted_run(letters, style) + "\n";
    }
  }
  return out;
}

std::string legend(const Plan& plan, const PictureStyle& style) {
  std::string out = "  ";
  std::array<uint64_t, 5> sums{};
  for (const DeviceUse& d : plan.devices) {
    const auto parts = parts_of(d);
    for (size_t k = 0; k < parts.size(); ++k) sums[k] += parts[k].bytes;
  }
  const auto parts = parts_of(DeviceUse{});
  for (size_t k = 0; k < parts.size(); ++k)
    if (sums[k] > 0) out += painted(parts[k].cell, parts[k].color, style) + " " + parts[k].name + "   ";
  return out + "· free\n";
}

bool is_used(const DeviceUse& d) { return d.weights_bytes + d.kv_bytes + d.workspace_bytes + d.staging_bytes > 0; }

// Words on lines of `width` columns: `first` begins the first line, `indent` the others. Words are never cut.
std::string wrapped(const std::vector<std::string>& words, const std::string& first, const std::string& indent,
                    int width) {
  std::string out, line = first;
  bool empty = true;
  for (const std::string& word : words) {
    if (!empty && columns(line) + 1 + columns(word) > width) {
      out += line + "\n";
      line = indent;
      empty = true;
    }
    if (!empty) line += ' ';
    line += word;
    empty = false;
  }
  return out + line + "\n";
}
std::string wrapped(std::string_view text, const std::string& first, const std::string& indent, int width) {
  return wrapped(split(text, ' '), first, indent, width);
}

std::string strip_legend(const Plan& plan, const PictureStyle& style, int width) {
  std::vector<std::string> entries;
  std::string seen;
  for (const PlacedUnit& u : plan.units) {
    if (u.layer < 0) continue;
    const char letter = letter_of(u);
    if (seen.find(letter) != std::string::npos) continue;
    seen += letter;
    const DeviceUse* d = plan.device(u.computed_on);
    const std::string where = letter == kStreamed ? "kept elsewhere, brought over for each use"
                              : d == nullptr      ? u.computed_on
                                                  : name_of(*d);
    entries.push_back(painted(std::string(1, letter), device_color(letter), style) + " " + where + " ");
  }
  const std::string indent(14, ' ');
  if (seen.size() < 2) return "";
  std::string out = wrapped(entries, indent, indent, width);
  for (size_t at = 0; (at = out.find(" \n", at)) != std::string::npos;) out.erase(at, 1);  // entries end in a space
  return out;
}

std::string beside_the_layers(const Plan& plan, int width) {
  std::string out;
  for (const PlacedUnit& u : plan.units) {
    if (u.layer >= 0) continue;
    std::string where = u.access == Access::kStream ? u.device + ", brought to " + u.computed_on : u.device;
    std::string line =
        fmt::format("  {} on {}  {}", escaped(u.path), where, u.stored_bytes > 0 ? format_bytes(u.stored_bytes) : "");
    // A reason that finds no room beside its module goes below it.
    const bool beside = columns(line) + 2 + columns(u.reason) <= width;
    if (beside) line += "  " + u.reason;
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + "\n";
    if (!beside) out += wrapped(escaped(u.reason), "      ", "      ", width);
  }
  return out;
}

}  // namespace

int columns(std::string_view text) {
  int count = 0;
  for (size_t k = 0; k < text.size(); ++k) {
    if (text[k] == '\x1b') {
      while (k < text.size() && text[k] != 'm') ++k;
      continue;
    }
    if ((static_cast<unsigned char>(text[k]) & 0xc0) != 0x80) ++count;
  }
  return count;
}

char device_letter(std::string_view id) {
  if (id == "cpu") return 'c';
  if (id == "disk") return 'd';
  size_t number = 0;
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), number);
  if (error != std::errc() || end != id.data() + id.size()) return '?';
  return number < kLetters.size() ? kLetters[number] : '+';
}

std::string device_bar(const DeviceUse& d, int width, const PictureStyle& style) {
  constexpr int kName = 13, kNumbers = 30;
  const int cells = std::clamp(width - kName - kNumbers - 3, 8, 60);
  std::string out = "  " + padded(name_of(d), kName - 2) + " " + bar_cells(d, cells, style) +
                    fmt::format("  {} of {}", format_bytes(d.used()), format_bytes(d.budget_bytes)) + "\n";
  std::vector<std::string> texts;  // each stays on one line
  for (const Part& part : parts_of(d))
    if (part.bytes > 0) texts.push_back(fmt::format("{} {},", part.name, format_bytes(part.bytes)));
  texts.push_back("free " + format_bytes(d.free_bytes()));
  const std::string indent(kName + 1, ' ');
  return out + wrapped(texts, indent, indent, width);
}

std::string certificate_text(const Certificate& c) {
  if (c.family == "scatter") return "found outside one run of layers per accelerator; not proven best";
  if (c.optimal && c.gap_s <= 0)
    return "proven best" + std::string(c.family == "runs" ? "" : " for accelerators in machine order");
  const double share = c.value_s > 0 ? 100 * c.gap_s / c.value_s : 0;
  return fmt::format("at most {:.2g} % slower than the best", share);
}

std::string plan_picture(const Plan& plan, const PictureStyle& style, std::string_view title) {
  const int width = std::max(style.width, 40);
  std::string out;
  if (!title.empty()) out += std::string(title) + "\n\n";
  int bars = 0;
  for (const DeviceUse& d : plan.devices) {
    if (!is_used(d)) continue;
    out += device_bar(d, width, style);
    ++bars;
  }
  if (bars > 0) out += legend(plan, style) + "\n";
  for (const DeviceUse& d : plan.devices)
    if (!is_used(d) && d.budget_bytes > 0) out += fmt::format("  {} is not used\n", name_of(d));
  out += strip_text(plan, style, width) + strip_legend(plan, style, width) + beside_the_layers(plan, width);
  if (plan.estimate.decode_tokens_per_s > 0)
    out += "\n" +
           wrapped(fmt::format("about {:.{}f} tokens/s decoding, {:.0f} prefilling; {} {} between devices per token",
                               plan.estimate.decode_tokens_per_s, plan.estimate.decode_tokens_per_s < 10 ? 2 : 0,
                               plan.estimate.prefill_tokens_per_s, plan.estimate.cuts,
                               plan.estimate.cuts == 1 ? "move" : "moves"),
                   "  ", "    ", width);
  if (plan.certificate)
    out += fmt::format("  strategy {}: {}\n", plan.strategy, certificate_text(*plan.certificate));
  else
    out += fmt::format("  strategy {}\n", plan.strategy);
  for (const std::string& w : plan.warnings) out += wrapped(escaped(w), "  ! ", "    ", width);
  return out;
}

}  // namespace berth::plan
