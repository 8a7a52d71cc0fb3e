#include "berth/text/script_split.h"

#include <array>
#include <string>
#include <string_view>

namespace berth::text {
namespace {

// PCRE2's script properties (Unicode 14). Hiragana, Katakana and U+30FC count as Han; the space and unassigned
// characters belong to whatever stands before them.
constexpr std::array<std::string_view, 159> kScripts{"Latin",
                                                     "Common",
                                                     "Inherited",
                                                     "Cyrillic",
                                                     "Greek",
                                                     "Arabic",
                                                     "Hebrew",
                                                     "Hangul",
                                                     "Devanagari",
                                                     "Thai",
                                                     "Adlam",
                                                     "Ahom",
                                                     "Anatolian_Hieroglyphs",
                                                     "Armenian",
                                                     "Avestan",
                                                     "Balinese",
                                                     "Bamum",
                                                     "Bassa_Vah",
                                                     "Batak",
                                                     "Bengali",
                                                     "Bhaiksuki",
                                                     "Bopomofo",
                                                     "Brahmi",
                                                     "Braille",
                                                     "Buginese",
                                                     "Buhid",
                                                     "Canadian_Aboriginal",
                                                     "Carian",
                                                     "Caucasian_Albanian",
                                                     "Chakma",
                                                     "Cham",
                                                     "Cherokee",
                                                     "Chorasmian",
                                                     "Coptic",
                                                     "Cuneiform",
                                                     "Cypriot",
                                                     "Cypro_Minoan",
                                                     "Deseret",
                                                     "Dives_Akuru",
                                                     "Dogra",
                                                     "Duployan",
                                                     "Egyptian_Hieroglyphs",
                                                     "Elbasan",
                                                     "Elymaic",
                                                     "Ethiopic",
                                                     "Georgian",
                                                     "Glagolitic",
                                                     "Gothic",
                                                     "Grantha",
                                                     "Gujarati",
                                                     "Gunjala_Gondi",
                                                     "Gurmukhi",
                                                     "Hanifi_Rohingya",
                                                     "Hanunoo",
                                                     "Hatran",
                                                     "Imperial_Aramaic",
                                                     "Inscriptional_Pahlavi",
                                                     "Inscriptional_Parthian",
                                                     "Javanese",
                                                     "Kaithi",
                                                     "Kannada",
                                                     "Kayah_Li",
                                                     "Kharoshthi",
                                                     "Khitan_Small_Script",
                                                     "Khmer",
                                                     "Khojki",
                                                     "Khudawadi",
                                                     "Lao",
                                                     "Lepcha",
                                                     "Limbu",
                                                     "Linear_A",
                                                     "Linear_B",
                                                     "Lisu",
                                                     "Lycian",
                                                     "Lydian",
                                                     "Mahajani",
                                                     "Makasar",
                                                     "Malayalam",
                                                     "Mandaic",
                                                     "Manichaean",
                                                     "Marchen",
                                                     "Masaram_Gondi",
                                                     "Medefaidrin",
                                                     "Meetei_Mayek",
                                                     "Mende_Kikakui",
                                                     "Meroitic_Cursive",
                                                     "Meroitic_Hieroglyphs",
                                                     "Miao",
                                                     "Modi",
                                                     "Mongolian",
                                                     "Mro",
                                                     "Multani",
                                                     "Myanmar",
                                                     "Nabataean",
                                                     "Nandinagari",
                                                     "New_Tai_Lue",
                                                     "Newa",
                                                     "Nko",
                                                     "Nushu",
                                                     "Nyiakeng_Puachue_Hmong",
                                                     "Ogham",
                                                     "Ol_Chiki",
                                                     "Old_Hungarian",
                                                     "Old_Italic",
                                                     "Old_North_Arabian",
                                                     "Old_Permic",
                                                     "Old_Persian",
                                                     "Old_Sogdian",
                                                     "Old_South_Arabian",
                                                     "Old_Turkic",
                                                     "Old_Uyghur",
                                                     "Oriya",
                                                     "Osage",
                                                     "Osmanya",
                                                     "Pahawh_Hmong",
                                                     "Palmyrene",
                                                     "Pau_Cin_Hau",
                                                     "Phags_Pa",
                                                     "Phoenician",
                                                     "Psalter_Pahlavi",
                                                     "Rejang",
                                                     "Runic",
                                                     "Samaritan",
                                                     "Saurashtra",
                                                     "Sharada",
                                                     "Shavian",
                                                     "Siddham",
                                                     "SignWriting",
                                                     "Sinhala",
                                                     "Sogdian",
                                                     "Sora_Sompeng",
                                                     "Soyombo",
                                                     "Sundanese",
                                                     "Syloti_Nagri",
                                                     "Syriac",
                                                     "Tagalog",
                                                     "Tagbanwa",
                                                     "Tai_Le",
                                                     "Tai_Tham",
                                                     "Tai_Viet",
                                                     "Takri",
                                                     "Tamil",
                                                     "Tangsa",
                                                     "Tangut",
                                                     "Telugu",
                                                     "Thaana",
                                                     "Tibetan",
                                                     "Tifinagh",
                                                     "Tirhuta",
                                                     "Toto",
                                                     "Ugaritic",
                                                     "Vai",
                                                     "Vithkuqi",
                                                     "Wancho",
                                                     "Warang_Citi",
                                                     "Yezidi",
                                                     "Yi",
                                                     "Zanabazar_Square",
                                                     "Unknown"};
constexpr std::string_view kHan = R"([\p{Han}\p{Hiragana}\p{Katakana}\x{30fc}])";

// Symbols that came after Unicode 9, where the library's table of scripts ends: they have none there. (Letters of
// scripts added since then are not followed.)
constexpr std::string_view kNoScript =
    R"(\x{20bf}\x{20c0}\x{23ff}\x{2b97}\x{2bba}-\x{2bbc}\x{2bc9}\x{2bd2}-\x{2beb}\x{2bf0}-\x{2bff})"
    R"(\x{2e45}-\x{2e5d}\x{32ff}\x{1f10d}-\x{1f10f}\x{1f12f}\x{1f16c}-\x{1f16f}\x{1f1ad}\x{1f260}-\x{1f265})"
    R"(\x{1f6d3}-\x{1f6d7}\x{1f6dd}-\x{1f6df}\x{1f6f7}-\x{1f6fc}\x{1f7d5}-\x{1f7d8}\x{1f7e0}-\x{1f7f0})"
    R"(\x{1f8b0}\x{1f8b1}\x{1f900}-\x{1f90f}\x{1f91f}\x{1f928}-\x{1f92f}\x{1f931}\x{1f932}\x{1f93f})"
    R"(\x{1f94c}-\x{1f94f}\x{1f95f}-\x{1f97f}\x{1f992}-\x{1f9bf}\x{1f9c1}-\x{1fbf9})";

// One alternative for each script: a character of it, then more of it and of what joins any script.
std::string run_expression() {
  // Group 1 matches nothing where it stands; it is called where "any" may be.
  const std::string any = R"(([ \p{Unknown})" + std::string(kNoScript) + "]){0}";
  const auto run = [](const std::string& one) { return one + R"((?:\g<1>|)" + one + ")*+"; };
  std::string all = any + R"((?!\g<1>)(?:)" + run(std::string(kHan));
  for (const std::string_view script : kScripts) {
    if (script == "Unknown") continue;
    all += "|" + run(R"((?!\x{30fc})\p{)" + std::string(script) + "}");
  }
  return all + ")";
}

class ScriptSplit final : public PreTokenizer {
 public:
  explicit ScriptSplit(Regex runs) : runs_(std::move(runs)) {}
  Status apply(Fragment fragment, std::vector<Fragment>& out) const override {
    std::vector<Span> matches;
    TRY_STATUS(runs_.find_all(fragment.text, matches));
    // What stands in front of the first run (spaces) is dropped, as the library does.
    split_fragment(fragment, matches, SplitBehavior::kRemoved, true, out);
    return {};
  }

 private:
  Regex runs_;
};

}  // namespace

Result<std::unique_ptr<PreTokenizer>> make_script_split() {
  TRY(Regex runs, Regex::compile(run_expression()));
  return std::unique_ptr<PreTokenizer>(std::make_unique<ScriptSplit>(std::move(runs)));
}

}  // namespace berth::text
