#include "berth/text/regex_syntax.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "berth/base/strings.h"
#include "berth/base/utf8.h"
#include "berth/text/newer_characters.h"

namespace berth::text {
namespace {

constexpr size_t kMaxClassDepth = 32;

// White_Space and its complement as class items; PCRE2's own \s has U+180E too, which Unicode no longer counts.
constexpr std::string_view kSpaceItems =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpaceItems =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kBlankItems = R"(\x{9}\x{20}\x{a0}\x{1680}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kHexItems = "0-9A-Fa-f";

constexpr std::array<std::pair<std::string_view, std::string_view>, 44> kPropertyNames{{
    {"letter", "L"},
    {"casedletter", "L&"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"punct", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"cntrl", "Cc"},
    {"format", "Cf"},
    {"unassigned", "Cn"},
    {"privateuse", "Co"},
    {"surrogate", "Cs"},
    {"digit", "Nd"},
    {"any", "Any"},
    {"alpha", "Alphabetic"},
    {"alphabetic", "Alphabetic"},
}};
constexpr std::array<std::string_view, 8> kBooleanNames{"lowercase", "uppercase",   "lower", "upper",
                                                        "emoji",     "ideographic", "cased", "math"};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// What newer versions of Unicode added to a property (newer_characters.h); to a category of one letter by its second.
std::string newer_items(std::string_view property) {
  std::string out;
  for (const NewerCharacters& n : kNewerCharacters) {
    const bool in_group = n.property.size() == 2 &&
                          (property.size() == 1 || (property == "L&" && n.property != "Lm" && n.property != "Lo"));
    if (n.property == property || (in_group && n.property[0] == property[0])) out += n.items;
  }
  return out;
}

std::string items_of(std::string_view property) { return "\\p{" + std::string(property) + "}" + newer_items(property); }

const std::string& posix_word_items() {
  static const std::string items = items_of("Alphabetic") + items_of("M") + items_of("Nd") + items_of("Pc");
  return items;
}

// \w: Oniguruma counts the superscripts and fractions of Latin-1 as well, which [:word:] does not have.
const std::string& word_items() {
  static const std::string items = posix_word_items() + R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
  return items;
}

// [:name:] as Oniguruma has it; PCRE2's own mean less. Nothing where they agree or the name is not known.
std::optional<std::string> posix_items(std::string_view name) {
  if (name == "alpha") return items_of("Alphabetic");
  if (name == "alnum") return items_of("Alphabetic") + items_of("Nd");
  if (name == "word") return posix_word_items();
  if (name == "digit") return items_of("Nd");
  if (name == "punct") return items_of("P") + items_of("S");
  if (name == "upper") return items_of("uppercase");
  if (name == "lower") return items_of("lowercase");
  if (name == "space") return std::string(kSpaceItems);
  if (name == "blank") return std::string(kBlankItems);
  return std::nullopt;
}

// A set of characters: class items, and whole expressions that each match one character.
struct CharacterSet {
  std::string items;
  std::vector<std::string> others;
};

// One expression for the set, or for its complement.
std::string expression_of(const CharacterSet& set, bool negated) {
  if (set.others.empty()) return (negated ? "[^" : "[") + set.items + "]";
  std::string any = "(?:";
  if (!set.items.empty()) any += "[" + set.items + "]|";
  any += join(set.others, "|") + ")";
  return negated ? "(?:(?!" + any + ")(?s:.))" : any;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        TRY_STATUS(escape());
      } else if (c == '[') {
        TRY(const std::string set, character_class(0));
        out_ += set;
      } else if (c == '(') {
        TRY_STATUS(group());
      } else if (c == '{') {
        TRY_STATUS(interval());
      } else {
        out_ += c;
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  static Error unsupported(const std::string& what) { return {ErrorCode::kUnsupported, what + " is not supported"}; }
  static Error malformed(const std::string& what) { return {ErrorCode::kCorruptData, what}; }
  char peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }

  // \p{..} or \P{..} as items of a class.
  struct Property {
    std::string items;
    bool negated = false;
    bool is_plain() const { return items.find('}') + 1 == items.size(); }  // PCRE2 has it whole
    std::string plain() const { return negated ? "\\P" + items.substr(2) : items; }
    std::string set() const { return (negated ? "[^" : "[") + items + "]"; }
  };
  Result<Property> property() {
    bool negated = in_[at_ + 1] == 'P';
    at_ += 2;
    if (peek() != '{') return malformed("\\p without {");
    const size_t close = in_.find('}', at_);
    if (close == std::string_view::npos) return malformed("\\p{ without }");
    std::string_view name = in_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.remove_prefix(1);
    }
    std::string key;
    for (const char c : name) {
      if (c == ' ' || c == '_' || c == '-') continue;
      if (!is_letter(c) && c != '&') return malformed("property name " + quoted(name, 40));
      key += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    const auto named = [negated](std::string_view property) { return Property{items_of(property), negated}; };
    if (key == "space" || key == "whitespace" || key == "xposixspace") return named("White_Space");
    for (const auto& [from, to] : kPropertyNames)
      if (key == from) return named(to);
    for (const std::string_view b : kBooleanNames)
      if (key == b) return named(key);
    if (key.empty()) return malformed("an empty property name");
    if (key.size() <= 2) {
      if (is_letter(key[0])) key[0] = static_cast<char>(key[0] - 32);
      return named(key);
    }
    return named("sc:" + key);  // a script; PCRE2 refuses unknown names
  }

  // Code point of \uHHHH or \xHH or \x{H..} at at_, moving behind it.
  Result<std::string> code_point() {
    const bool four = in_[at_ + 1] == 'u';
    size_t i = at_ + 2;
    std::string digits;
    if (!four && i < in_.size() && in_[i] == '{') {
      for (++i; i < in_.size() && is_hex(in_[i]) && digits.size() < 8; ++i) digits += in_[i];
      if (i >= in_.size() || in_[i] != '}') return malformed("\\x{ without }");
      ++i;
    } else {
      for (; i < in_.size() && is_hex(in_[i]) && digits.size() < (four ? 4u : 2u); ++i) digits += in_[i];
      if (four && digits.size() != 4) return malformed("\\u without four hexadecimal digits");
      if (!four && digits.size() == 2 && digits[0] >= '8') return unsupported("a raw byte (\\x80 and above)");
    }
    if (digits.empty()) return malformed("\\x without hexadecimal digits");
    at_ = i;
    return "\\x{" + digits + "}";
  }

  Status escape() {
    const char c = peek(1);
    if (at_ + 1 >= in_.size()) return malformed("a backslash ends the expression");
    const auto emit = [&](std::string_view text) {
      out_ += text;
      at_ += 2;
      return Status();
    };
    switch (c) {
      case 's':
        return emit("[" + std::string(kSpaceItems) + "]");
      case 'S':
        return emit("[^" + std::string(kSpaceItems) + "]");
      case 'w':
        return emit("[" + word_items() + "]");
      case 'W':
        return emit("[^" + word_items() + "]");
      case 'd':
        return emit("[" + items_of("Nd") + "]");
      case 'D':
        return emit("[^" + items_of("Nd") + "]");
      case 'h':
        return emit("[0-9A-Fa-f]");
      case 'H':
        return emit("[^0-9A-Fa-f]");
      case 'v':
        return emit("\\x{b}");
      case 'O':
        return emit("(?s:.)");
      case 'p':
      case 'P': {
        TRY(const Property p, property());
        out_ += p.is_plain() ? p.plain() : p.set();
        return {};
      }
      case 'u':
      case 'x': {
        TRY(const std::string p, code_point());
        out_ += p;
        return {};
      }
      default:
        break;
    }
    if (c == 'g' && peek(2) == '<') {  // a call of a group
      const size_t close = in_.find('>', at_);
      if (close == std::string_view::npos) return malformed("\\g< without >");
      out_ += in_.substr(at_, close + 1 - at_);
      at_ = close + 1;
      return {};
    }
    if (is_digit(c)) {
      if (c == '0') return unsupported("an octal escape");
      return emit(in_.substr(at_, 2));
    }
    if (is_letter(c)) {
      if (std::string_view("nrtfaebBAzZGRX").find(c) == std::string_view::npos)
        return unsupported("the escape \\" + std::string(1, c));
      return emit(in_.substr(at_, 2));
    }
    if (static_cast<unsigned char>(c) >= 0x80) {  // an escaped character that means itself
      ++at_;
      return {};
    }
    return emit(in_.substr(at_, 2));
  }

  Status group() {
    if (peek(1) == '*') return unsupported("a verb or callout (*...)");
    if (peek(1) != '?') {
      out_ += '(';
      ++at_;
      return {};
    }
    const char kind = peek(2);
    if (kind == '~') return unsupported("an absence group (?~...)");
    if (kind == '#') {
      const size_t close = in_.find(')', at_);
      if (close == std::string_view::npos) return malformed("a comment without )");
      at_ = close + 1;
      return {};
    }
    if (std::string_view(":=!><").find(kind) != std::string_view::npos && kind != '\0') {
      out_ += in_.substr(at_, 3);
      at_ += 3;
      return {};
    }
    // Options: Ruby's m is "dot matches all", PCRE2's s.
    out_ += "(?";
    for (at_ += 2; at_ < in_.size() && in_[at_] != ':' && in_[at_] != ')'; ++at_) {
      const char o = in_[at_];
      if (o == 'm')
        out_ += 's';
      else if (o == 'i' || o == 'x' || o == '-')
        out_ += o;
      else
        return unsupported("the group option " + quoted(std::string_view(&in_[at_], 1)));
    }
    return {};
  }

  // {n}, {n,}, {n,m}, {,m}; anything else is a literal brace.
  Status interval() {
    size_t i = at_ + 1;
    const size_t first = i;
    while (i < in_.size() && is_digit(in_[i])) ++i;
    const bool has_low = i > first;
    bool comma = false, has_high = false;
    if (i < in_.size() && in_[i] == ',') {
      comma = true;
      const size_t high = ++i;
      while (i < in_.size() && is_digit(in_[i])) ++i;
      has_high = i > high;
    }
    if (i >= in_.size() || in_[i] != '}' || (!has_low && !has_high)) {
      out_ += "\\{";
      ++at_;
      return {};
    }
    const char next = i + 1 < in_.size() ? in_[i + 1] : '\0';
    if (next == '+') return unsupported("{n,m}+ (Ruby reads it otherwise)");
    if (next == '?' && !comma) return unsupported("{n}? (Ruby reads it otherwise)");
    out_ += '{';
    if (!has_low) out_ += '0';
    out_ += in_.substr(first, i + 1 - first);
    at_ = i + 1;
    return {};
  }

  // One item of a class at at_ that a range may start or end with, as PCRE2 class text; nothing where it is a set.
  Result<std::optional<std::string>> class_character() {
    const char c = in_[at_];
    if (c != '\\') {
      const size_t start = at_;
      decode_utf8(in_, at_);
      const std::string_view text = in_.substr(start, at_ - start);
      if (text == "]" || text == "[" || text == "\\" || text == "^" || text == "-") return {"\\" + std::string(text)};
      return {std::string(text)};
    }
    const char e = peek(1);
    if (at_ + 1 >= in_.size()) return malformed("a backslash ends the expression");
    if (e == 'u' || e == 'x') {
      TRY(std::string p, code_point());
      return {std::move(p)};
    }
    if (is_letter(e)) {
      if (std::string_view("nrtfae").find(e) != std::string_view::npos) {
        at_ += 2;
        return {std::string("\\") + e};
      }
      if (e == 'b' || e == 'v') {
        at_ += 2;
        return {std::string(e == 'b' ? "\\x{8}" : "\\x{b}")};
      }
      return std::optional<std::string>();
    }
    if (is_digit(e)) return unsupported("an octal escape in a class");
    ++at_;
    const size_t start = at_;
    decode_utf8(in_, at_);
    const std::string_view text = in_.substr(start, at_ - start);
    return {(static_cast<unsigned char>(text[0]) < 0x80 ? "\\" : "") + std::string(text)};
  }

  // \s, \p{..} and the like inside a class.
  Status class_escape(CharacterSet& set) {
    const char e = peek(1);
    if (e == 'p' || e == 'P') {
      TRY(const Property p, property());
      if (p.is_plain())
        set.items += p.plain();
      else if (p.negated)
        set.others.push_back(p.set());
      else
        set.items += p.items;
      return {};
    }
    at_ += 2;
    switch (e) {
      case 's':
        set.items += kSpaceItems;
        return {};
      case 'S':
        set.items += kNotSpaceItems;
        return {};
      case 'w':
        set.items += word_items();
        return {};
      case 'W':
        set.others.push_back("[^" + word_items() + "]");
        return {};
      case 'd':
        set.items += items_of("Nd");
        return {};
      case 'D':
        set.others.push_back("[^" + items_of("Nd") + "]");
        return {};
      case 'h':
        set.items += kHexItems;
        return {};
      case 'H':
        set.others.push_back("[^" + std::string(kHexItems) + "]");
        return {};
      default:
        return unsupported("the escape \\" + std::string(1, e) + " in a class");
    }
  }

  // The class that opens at at_.
  Result<std::string> character_class(size_t depth) {
    if (depth > kMaxClassDepth) return unsupported("a class nested deeper than 32");
    ++at_;
    bool negated = false;
    if (peek() == '^') {
      negated = true;
      ++at_;
    }
    CharacterSet set;
    std::vector<std::string> intersected;  // the sets in front of each &&
    bool first = true;
    while (true) {
      if (at_ >= in_.size()) return malformed("a class [ without ]");
      const char c = in_[at_];
      if (c == ']' && !first) break;
      first = false;
      if (c == '[') {
        if (peek(1) == ':') {
          const size_t close = in_.find(":]", at_);
          if (close == std::string_view::npos) return malformed("a class [: without :]");
          const bool negated_name = peek(2) == '^';
          const size_t name = at_ + (negated_name ? 3 : 2);
          const auto items = posix_items(in_.substr(name, close - std::min(close, name)));
          if (!items)
            set.items += in_.substr(at_, close + 2 - at_);
          else if (negated_name)
            set.others.push_back("[^" + *items + "]");
          else
            set.items += *items;
          at_ = close + 2;
        } else {
          TRY(std::string inner, character_class(depth + 1));
          set.others.push_back(std::move(inner));
        }
        continue;
      }
      if (c == '&' && peek(1) == '&') {
        at_ += 2;
        intersected.push_back(expression_of(set, false));
        if (intersected.back() == "[]") return malformed("an empty side of &&");
        set = {};
        continue;
      }
      TRY(const auto low, class_character());
      if (!low) {
        TRY_STATUS(class_escape(set));
        continue;
      }
      set.items += *low;
      if (peek() != '-' || peek(1) == ']' || at_ + 1 >= in_.size()) continue;
      if (peek(1) == '[' || (peek(1) == '&' && peek(2) == '&')) continue;
      const size_t minus = at_++;
      TRY(const auto high, class_character());
      if (high) {
        set.items += "-" + *high;
      } else {  // "a-\s": the minus is itself
        at_ = minus + 1;
        set.items += "\\-";
      }
    }
    ++at_;
    if (set.items.empty() && set.others.empty()) return malformed("an empty class");
    if (intersected.empty()) return expression_of(set, negated);
    std::string all = "(?:";
    for (const std::string& side : intersected) all += "(?=" + side + ")";
    all += expression_of(set, false) + ")";
    return negated ? "(?:(?!" + all + ")(?s:.))" : all;
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> pcre2_syntax(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace berth::text
