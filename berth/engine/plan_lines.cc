// engine/plan_lines.cc — see plan_lines.h.
#include "berth/engine/plan_lines.h"

#include <fmt/format.h>

#include <fstream>
#include <iostream>

#include "berth/base/bytes.h"
#include "berth/base/file.h"
#include "berth/base/strings.h"
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
      planned = plan::compat::plan_compat_line(line, &readable);
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
