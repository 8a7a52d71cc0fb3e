// text/golden_cases.h — checks one tokenizer against one folder of tokenizer goldens and counts. For tests only.
#pragma once

#include <string>
#include <vector>

#include "berth/text/test_files.h"
#include "berth/text/tokenizer.h"

namespace berth::text {

struct Tally {
  size_t right = 0, total = 0;
  std::vector<std::string> wrong;  // the first few, for people
  void add(bool ok, const std::string& what) {
    ++total;
    right += ok;
    if (!ok && wrong.size() < 3) wrong.push_back(what);
  }
  std::string text() const { return std::to_string(right) + "/" + std::to_string(total); }
};

struct GoldenTallies {
  Tally encode, decode, stream, split;
  bool all_right() const {
    return encode.right == encode.total && decode.right == decode.total && stream.right == stream.total &&
           split.right == split.total && encode.total > 0;
  }
  std::string text() const {
    std::string s = "encode " + encode.text() + "  decode " + decode.text() + "  stream " + stream.text() + "  split " +
                    split.text();
    for (const Tally* t : {&encode, &decode, &stream, &split})
      for (const std::string& w : t->wrong) s += "\n    " + w;
    return s;
  }
};

inline std::vector<int32_t> ids_of(const JsonView& list) {
  std::vector<int32_t> ids;
  for (const JsonView& id : list.elements()) ids.push_back(static_cast<int32_t>(id.as_int64().value_or(-1)));
  return ids;
}

inline std::string ids_text(const std::vector<int32_t>& ids) {
  std::string s = "[";
  for (const int32_t id : ids) s += (s.size() > 1 ? "," : "") + std::to_string(id);
  return s + "]";
}

// decoded, decoded_skip and stream of one golden object.
inline void check_decoding(const Tokenizer& t, const JsonView& golden, const std::vector<int32_t>& ids,
                           GoldenTallies& tallies) {
  for (const bool skip : {false, true}) {
    const std::string want(*golden[skip ? "decoded_skip" : "decoded"].as_string());
    const auto got = t.decode(ids, skip);
    tallies.decode.add(got && *got == want, "decode" + ids_text(ids) + (skip ? " skip" : "") + " want " +
                                                json_quoted(want) + " got " +
                                                (got ? json_quoted(*got) : got.error().message));
  }
  if (!golden.contains("stream")) return;
  StreamDecoder stream(t, false);
  bool ok = true;
  std::string pieces;
  const std::vector<JsonView> want = golden["stream"].elements();
  for (size_t i = 0; i < ids.size() && i < want.size(); ++i) {
    const auto got = stream.step(ids[i]);
    const std::string expected(want[i].as_string().value_or(""));
    ok &= got && *got == expected;
    pieces +=
        got ? json_quoted(*got) + (*got == expected ? " " : "!=" + json_quoted(expected) + " ") : got.error().message;
  }
  tallies.stream.add(ok, "stream" + ids_text(ids) + " " + pieces);
}

inline GoldenTallies check_goldens(const Tokenizer& t, const std::string& folder) {
  GoldenTallies tallies;
  for (const JsonDocument& d : read_json_lines(folder + "/cases.jsonl")) {
    const JsonView c = d.root();
    const std::string text(*c["text"].as_string());
    const std::vector<int32_t> plain = ids_of(c["ids"]);
    const std::vector<int32_t> special = c.contains("ids_special") ? ids_of(c["ids_special"]) : plain;
    for (const bool add : {false, true}) {
      const auto got = t.encode(text, add);
      const std::vector<int32_t>& want = add ? special : plain;
      tallies.encode.add(got && *got == want, json_quoted(text) + " want " + ids_text(want) + " got " +
                                                  (got ? ids_text(*got) : got.error().message));
    }
    check_decoding(t, c, special, tallies);
  }
  if (path_exists(folder + "/decode.jsonl"))
    for (const JsonDocument& d : read_json_lines(folder + "/decode.jsonl"))
      check_decoding(t, d.root(), ids_of(d.root()["ids"]), tallies);
  if (path_exists(folder + "/split.jsonl"))
    for (const JsonDocument& d : read_json_lines(folder + "/split.jsonl")) {
      const JsonView c = d.root();
      const std::string text(*c["text"].as_string());
      const std::string want(c["normalized"].as_string().value_or(text));
      const auto normalized = t.normalize(text);
      const auto pieces =
          normalized ? t.pre_tokenize(*normalized) : Result<std::vector<std::string>>(normalized.error());
      std::vector<std::string> expected;
      for (const JsonView& p : c["pieces"].elements()) expected.emplace_back(*p.as_string());
      std::string shown;
      if (pieces)
        for (const std::string& p : *pieces) shown += json_quoted(p) + " ";
      tallies.split.add(normalized && *normalized == want && pieces && *pieces == expected,
                        "split " + json_quoted(text) + " want " + c["pieces"].text() + " got " + shown +
                            (normalized ? json_quoted(*normalized) : ""));
    }
  return tallies;
}

}  // namespace berth::text
