#include "berth/text/post_processor.h"

#include "berth/base/strings.h"
#include "berth/text/json_fields.h"

namespace berth::text {
namespace {

constexpr size_t kMaxNesting = 32;
constexpr size_t kMaxFrame = 4096;

class FrameReader {
 public:
  explicit FrameReader(const std::function<bool(int64_t)>& known) : known_(known) {}

  Result<SpecialFrame> read(const JsonView& json, size_t depth) {
    if (depth > kMaxNesting) return Error(ErrorCode::kUnsupported, "expected at most 32 nested post-processors");
    if (!json.is_object()) return field_error("post_processor", "an object with a type", json);
    TRY(const auto type, string_field(json, "type"));
    if (type == "ByteLevel") return SpecialFrame{};  // offsets only
    if (type == "TemplateProcessing") return from_template(json);
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      SpecialFrame frame;
      TRY(const int32_t cls, token_pair(json, "cls"));
      TRY(const int32_t sep, token_pair(json, "sep"));
      frame.before.push_back(cls);
      frame.after.push_back(sep);
      return frame;
    }
    if (type == "Sequence") return from_sequence(json, depth);
    return Error(ErrorCode::kUnsupported, "post-processor type " + quoted(type) + " is not known");
  }

 private:
  Result<int32_t> checked_id(const JsonView& id) const {
    const auto n = id.is_integer() ? id.as_int64() : std::nullopt;
    if (!n || !known_(*n))
      return Error(ErrorCode::kCorruptData, "special token id: expected an id of the vocabulary, found " +
                                                quoted(id.valid() ? id.text() : "", 40));
    return static_cast<int32_t>(*n);
  }

  Result<int32_t> token_pair(const JsonView& json, std::string_view key) const {
    const JsonView pair = json[key];
    if (!pair.is_array() || pair.size() != 2) return field_error(key, "a pair [token, id]", pair);
    return checked_id(pair.elements()[1]);
  }

  Result<SpecialFrame> from_sequence(const JsonView& json, size_t depth) {
    TRY(const JsonView list, array_field(json, "processors"));
    SpecialFrame all;
    for (const JsonView& item : list.elements()) {
      TRY(SpecialFrame frame, read(item, depth + 1));
      frame.before.insert(frame.before.end(), all.before.begin(), all.before.end());
      all.after.insert(all.after.end(), frame.after.begin(), frame.after.end());
      all.before = std::move(frame.before);
      if (all.before.size() + all.after.size() > kMaxFrame)
        return Error(ErrorCode::kUnsupported, "expected at most 4096 special tokens around a text");
    }
    return all;
  }

  // Adds the ids of special token `name` in front of or behind the text.
  Status add_special(const JsonView& json, std::string_view name, bool seen_text, SpecialFrame& frame) const {
    const JsonView entry = json["special_tokens"][name];
    if (!entry.is_object())
      return Error(ErrorCode::kCorruptData,
                   "template: expected " + quoted(name, 60) + " among special_tokens, found it is not listed");
    TRY(const JsonView ids, array_field(entry, "ids"));
    for (const JsonView& id : ids.elements()) {
      TRY(const int32_t n, checked_id(id));
      (seen_text ? frame.after : frame.before).push_back(n);
    }
    if (frame.before.size() + frame.after.size() > kMaxFrame)
      return Error(ErrorCode::kUnsupported, "expected at most 4096 special tokens around a text");
    return {};
  }

  // "single" is a list of {"SpecialToken": {"id"}} and {"Sequence": {"id": "A"}}, or a text "[CLS] $A [SEP]".
  Result<SpecialFrame> from_template(const JsonView& json) const {
    SpecialFrame frame;
    size_t texts = 0;
    const auto sequence = [&](std::string_view id) -> Status {
      if (id == "A" && ++texts == 1) return {};
      return Error(ErrorCode::kCorruptData,
                   "template for one text: expected the text $A once, found " + quoted(id) + " again or besides");
    };
    const JsonView single = json["single"];
    if (const auto text = single.as_string()) {
      for (const std::string& word : split(*text, ' ')) {
        if (word.empty()) continue;
        const std::string name = word.substr(0, word.rfind(':') == 0 ? std::string::npos : word.rfind(':'));
        if (name[0] != '$') {
          TRY_STATUS(add_special(json, name, texts > 0, frame));
          continue;
        }
        const bool second = name == "$B" || name == "$b";
        TRY_STATUS(sequence(second ? "B" : "A"));
      }
    } else if (single.is_array()) {
      for (const JsonView& item : single.elements()) {
        const JsonView special = item["SpecialToken"];
        if (special.is_object()) {
          TRY(const auto name, string_field(special, "id"));
          TRY_STATUS(add_special(json, name, texts > 0, frame));
          continue;
        }
        TRY(const auto id, string_field(item["Sequence"], "id"));
        TRY_STATUS(sequence(id));
      }
    } else {
      return field_error("single", "a list or a text", single);
    }
    if (texts != 1)
      return Error(ErrorCode::kCorruptData, "template for one text: expected the text $A in it, found it is missing");
    return frame;
  }

  const std::function<bool(int64_t)>& known_;
};

}  // namespace

Result<SpecialFrame> make_special_frame(const JsonView& json, const std::function<bool(int64_t)>& known) {
  if (!json.valid() || json.is_null()) return SpecialFrame{};
  auto frame = FrameReader(known).read(json, 0);
  if (!frame) return frame.error().with_context("in \"post_processor\"");
  return frame;
}

}  // namespace berth::text
