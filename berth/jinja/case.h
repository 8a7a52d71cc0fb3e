// jinja/case.h — Python's character predicates and case mappings over UTF-8, by utf8proc.
//
// Texts are valid UTF-8. Full mappings (ß to SS, İ to i and a dot, Σ at a word's end to ς), as Python's str has them.
#pragma once

#include <string>
#include <string_view>

namespace berth::jinja {

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title(std::string_view text);       // str.title(): every run of letters
std::string capitalize(std::string_view text);  // first character title, the rest lower
std::string swap_case(std::string_view text);
std::string case_fold(std::string_view text);

bool is_printable(char32_t c);  // str.isprintable(), for repr
bool is_space(char32_t c);      // str.isspace()
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_cased(char32_t c);

// `text` without what `strip` says on either end; white space where `characters` is null.
std::string_view stripped(std::string_view text, bool left, bool right, const std::string* characters = nullptr);

}  // namespace berth::jinja
