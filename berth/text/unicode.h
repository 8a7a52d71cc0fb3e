// text/unicode.h — the character properties, case mappings and normal forms that tokenizers ask for, by utf8proc.
//
// Predicates mean what the `tokenizers` library means by them, newer characters left out that its older tables lack;
// texts are valid UTF-8.
// Non-goals: segmentation by expressions (regex.h), Python's case rules (jinja/case.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "berth/base/result.h"
#include "berth/base/utf8.h"

namespace berth::text {

bool is_white_space(char32_t c);      // Unicode White_Space
bool is_numeric(char32_t c);          // Nd, Nl, No
bool is_punctuation(char32_t c);      // P*, and ASCII's punctuation and symbols
bool is_mark(char32_t c);             // Mn, Mc, Me
bool is_nonspacing_mark(char32_t c);  // Mn
bool is_control_like(char32_t c);     // Cc, Cf, Co
bool is_word_character(char32_t c);   // what \w means: letters, marks, digits, connectors, joiners
bool is_bert_chinese(char32_t c);     // the CJK ideograph blocks that BERT sets apart

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// Errors: kCorruptData where `text` is not valid UTF-8.
Result<std::string> to_normal_form(std::string_view text, NormalForm form);

// Each character's full lower case, without regard to its neighbours.
std::string to_lower(std::string_view text);

// Ends (byte offsets) of the extended grapheme clusters of `text`.
std::vector<size_t> grapheme_ends(std::string_view text);

bool is_ascii(std::string_view text);

}  // namespace berth::text
