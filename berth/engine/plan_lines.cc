// engine/plan_lines.cc — see plan_lines.h.
#include "berth/engine/plan_lines.h"

#include <fmt/format.h>

#include <fstream>
#include <iostream>

#include "berth/base/bytes.h"
#include "berth/base/file.h"
#include "berth/base/strings.h"
#include "berth/engine/library_plan.h"
#include "berth/plan/strategies/compat_jsonl.h"

namespace berth::engine {
namespace {

// A tree of 10^6 modules fits; an endless line does not fill the memory.
constexpr size_t kMostLineBytes = size_t{512} << 20;

// The next line without its break; false at the end. What exceeds the limit is read past and left out.
bool read_line(std::istream& in, std::string& line, bool& too_long) {
  line.clear();
  too_long = false;
  std::streambuf* buffer = in.rdbuf();
  for (;;) {
    const int c = buffer->sbumpc();
    if (c == std::char_traits<char>::eof()) return !line.empty() || too_long;
    if (c == '\n') return true;
    if (line.size() < kMostLineBytes)
      line.push_back(static_cast<char>(c));
    else
      too_long = true;
  }
}

// Lines that name a model.
class ModelLines {
 public:
  Result<plan::compat::CompatResult> plan(JsonView line) {
    namespace compat = plan::compat;
    if (line.contains("tree")) return mistake("a line has either \"tree\" or \"model\"; this one has both");
    Options o;
    TRY(const std::string model, text(line, "model"));
    TRY(o.compat, text(line, "library"));
    TRY(o.device_map, text(line, "mode"));
    if (!compat::mode_from_name(o.device_map))
      return mistake(
          fmt::format("\"mode\" must be auto, balanced, balanced_low_0 or sequential, not {}", quoted(o.device_map)));
    TRY(o.dtype, text(line, "dtype", ""));
    TRY(const std::string quant, text(line, "quant", "none"));
    o.load_in_8bit = quant == "int8";
    o.load_in_4bit = quant == "nf4" || quant == "fp4";
    if (o.load_in_4bit) o.bnb_4bit_quant_type = quant;
    if (!o.load_in_8bit && !o.load_in_4bit && quant != "none")
      return mistake(fmt::format("\"quant\" must be none, nf4, fp4 or int8, not {}", quoted(quant)));
    if (!line["max_memory"].is_object()) return mistake("\"max_memory\" must be an object from devices to bytes");
    o.max_memory = line["max_memory"].text();
    const std::string key = model + '\n' + o.dtype + '\n' + quant;
    if (!opened_ || key != key_) {
      opened_.reset();
      TRY(opened_, open_model(model, o, {}));
      key_ = key;
    }
    return library_result(*opened_, o);
  }

 private:
  static Error mistake(std::string message) { return Error(ErrorCode::kInvalidArgument, std::move(message)); }
  // Without `absent` the key must be there.
  static Result<std::string> text(JsonView line, const char* key, std::optional<std::string> absent = {}) {
    const JsonView v = line[key];
    if (!v.valid() || v.is_null()) {
      if (absent) return *std::move(absent);
      return mistake(fmt::format("\"{}\" is missing", key));
    }
    if (const auto s = v.as_string()) return std::string(*s);
    return mistake(fmt::format("\"{}\" must be a text, found {}", key, v.text().substr(0, 80)));
  }

  std::optional<OpenedModel> opened_;
  std::string key_;
};

std::string plan_one_line(const std::string& line, ModelLines& models, bool& readable) {
  if (line.find("\"model\"") == std::string::npos) return plan::compat::plan_compat_line(line, &readable);
  const auto document = JsonDocument::parse(line);
  if (!document || !document->root().is_object() || !document->root().contains("model"))
    return plan::compat::plan_compat_line(line, &readable);
  const JsonView id = document->root()["id"];
  const auto result = models.plan(document->root());
  readable = result.has_value();
  return result ? plan::compat::answer_line(*result, id) : plan::compat::unreadable_line(result.error(), id);
}

bool is_blank(const std::string& line) { return line.find_first_not_of(" \t\r") == std::string::npos; }

}  // namespace

Result<PlannedLines> plan_lines(const std::string& path, const std::function<Status(const std::string&)>& answer) {
  std::ifstream file;
  const bool standard_input = path == "-";
  if (!standard_input) {
    if (is_directory(path))
      return Error(
          ErrorCode::kInvalidArgument,
          fmt::format("--from-jsonl: {} is a folder; a file with one JSON object per line was expected", quoted(path)));
    if (!path_exists(path))
      return Error(ErrorCode::kNotFound, fmt::format("--from-jsonl: there is no file {}", quoted(path)),
                   {"- reads standard input."});
    file.open(path, std::ios::binary);
    if (!file) return Error(ErrorCode::kIo, fmt::format("--from-jsonl: {} cannot be read", quoted(path)));
  }
  std::istream& in = standard_input ? std::cin : file;
  PlannedLines out;
  ModelLines models;
  std::string line;
  for (bool too_long = false; read_line(in, line, too_long);) {
    if (out.lines == 0 && line.starts_with("\x1f\x8b"))
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("--from-jsonl: {} is compressed by gzip; JSON lines were expected",
                               standard_input ? "standard input" : quoted(path)),
                   {"zcat FILE | berth plan --from-jsonl -"});
    if (is_blank(line) && !too_long) continue;
    ++out.lines;
    std::string planned;
    if (too_long) {
      planned = fmt::format(
          R"({{"id":null,"error":{{"stage":"read","type":"invalid_argument"}},"message":"line {} is longer than {}"}})",
          out.lines, format_bytes(kMostLineBytes));
      ++out.unreadable;
    } else {
      bool readable = true;
      planned = plan_one_line(line, models, readable);
      out.unreadable += !readable;
    }
    TRY_STATUS(answer(planned));
  }
  if (in.bad())
    return Error(ErrorCode::kIo,
                 fmt::format("--from-jsonl: reading line {} of {} failed", out.lines + 1, quoted(path)));
  return out;
}

}  // namespace berth::engine
