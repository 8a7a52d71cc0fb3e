// jinja/date_time.cc — strftime_now's formats in the C locale, and the moments they show.
#include <array>
#include <charconv>
#include <ctime>

#include "berth/base/strings.h"
#include "berth/jinja/builtins.h"

namespace berth::jinja {
namespace {

constexpr std::array<const char*, 7> kDays{"Sunday",   "Monday", "Tuesday", "Wednesday",
                                           "Thursday", "Friday", "Saturday"};
constexpr std::array<const char*, 12> kMonths{"January", "February", "March",     "April",   "May",      "June",
                                              "July",    "August",   "September", "October", "November", "December"};

bool leap(int year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

int days_of(int year, int month) {
  constexpr std::array<int, 12> kDaysOfMonth{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return month == 2 && leap(year) ? 29 : kDaysOfMonth[static_cast<size_t>(month - 1)];
}

int day_of_year(const DateTime& t) {
  int n = t.day;
  for (int m = 1; m < t.month; ++m) n += days_of(t.year, m);
  return n;
}

// 0 = Sunday, by Sakamoto's month offsets.
int week_day(const DateTime& t) {
  constexpr std::array<int, 12> kOffsets{0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4};
  const int y = t.month < 3 ? t.year - 1 : t.year;
  return (y + y / 4 - y / 100 + y / 400 + kOffsets[static_cast<size_t>(t.month - 1)] + t.day) % 7;
}

std::string padded(int n, int width, char fill = '0') {
  std::string s = std::to_string(n);
  if (s.size() < static_cast<size_t>(width)) s.insert(0, static_cast<size_t>(width) - s.size(), fill);
  return s;
}

struct IsoWeek {
  int year, week;
};
IsoWeek iso_week(const DateTime& t) {
  const int monday_based = (week_day(t) + 6) % 7;
  int week = (day_of_year(t) - 1 - monday_based + 10) / 7;
  int year = t.year;
  const auto weeks_in = [](int y) {
    const int first = week_day({y, 1, 1, 0, 0, 0});
    return first == 4 || (first == 3 && leap(y)) ? 53 : 52;
  };
  if (week < 1) {
    --year;
    week = weeks_in(year);
  } else if (week > weeks_in(year)) {
    ++year;
    week = 1;
  }
  return {year, week};
}

}  // namespace

std::string strftime_text(std::string_view format, const DateTime& t) {
  std::string out;
  const int twelve = t.hour % 12 == 0 ? 12 : t.hour % 12;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 >= format.size()) {
      out += format[i];
      continue;
    }
    char c = format[++i];
    bool bare = false;  // "%-d": without leading zeros (glibc)
    if (c == '-' && i + 1 < format.size()) {
      bare = true;
      c = format[++i];
    }
    const auto number = [&](int n, int width, char fill = '0') {
      out += bare ? std::to_string(n) : padded(n, width, fill);
    };
    switch (c) {
      case 'a':
        out += std::string(kDays[static_cast<size_t>(week_day(t))]).substr(0, 3);
        break;
      case 'A':
        out += kDays[static_cast<size_t>(week_day(t))];
        break;
      case 'b':
      case 'h':
        out += std::string(kMonths[static_cast<size_t>(t.month - 1)]).substr(0, 3);
        break;
      case 'B':
        out += kMonths[static_cast<size_t>(t.month - 1)];
        break;
      case 'c':
        out += strftime_text("%a %b %e %H:%M:%S %Y", t);
        break;
      case 'C':
        number(t.year / 100, 2);
        break;
      case 'd':
        number(t.day, 2);
        break;
      case 'D':
      case 'x':
        out += strftime_text("%m/%d/%y", t);
        break;
      case 'e':
        number(t.day, 2, ' ');
        break;
      case 'f':
        out += "000000";
        break;
      case 'F':
        out += strftime_text("%Y-%m-%d", t);
        break;
      case 'g':
        number(iso_week(t).year % 100, 2);
        break;
      case 'G':
        number(iso_week(t).year, 4);
        break;
      case 'H':
        number(t.hour, 2);
        break;
      case 'I':
        number(twelve, 2);
        break;
      case 'j':
        number(day_of_year(t), 3);
        break;
      case 'k':
        number(t.hour, 2, ' ');
        break;
      case 'l':
        number(twelve, 2, ' ');
        break;
      case 'm':
        number(t.month, 2);
        break;
      case 'M':
        number(t.minute, 2);
        break;
      case 'n':
        out += '\n';
        break;
      case 'p':
        out += t.hour < 12 ? "AM" : "PM";
        break;
      case 'P':
        out += t.hour < 12 ? "am" : "pm";
        break;
      case 'r':
        out += strftime_text("%I:%M:%S %p", t);
        break;
      case 'R':
        out += strftime_text("%H:%M", t);
        break;
      case 'S':
        number(t.second, 2);
        break;
      case 't':
        out += '\t';
        break;
      case 'T':
      case 'X':
        out += strftime_text("%H:%M:%S", t);
        break;
      case 'u':
        out += std::to_string(week_day(t) == 0 ? 7 : week_day(t));
        break;
      case 'U':
        number((day_of_year(t) + 6 - week_day(t)) / 7, 2);
        break;
      case 'V':
        number(iso_week(t).week, 2);
        break;
      case 'w':
        out += std::to_string(week_day(t));
        break;
      case 'W':
        number((day_of_year(t) + 6 - (week_day(t) + 6) % 7) / 7, 2);
        break;
      case 'y':
        number(t.year % 100, 2);
        break;
      case 'Y':
        out += std::to_string(t.year);
        break;
      case 'z':
      case 'Z':
        break;  // no zone
      case '%':
        out += '%';
        break;
      default:
        out += '%';
        if (bare) out += '-';
        out += c;
    }
  }
  return out;
}

DateTime clock_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return {local.tm_year + 1900, local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec};
}

Result<DateTime> parse_date_time(std::string_view text) {
  const auto failed = [&] {
    return Error(ErrorCode::kInvalidArgument,
                 "while reading a date and time: expected \"2026-01-15T12:34:56\", found " + quoted(text, 40));
  };
  DateTime t;
  const auto number = [&](size_t at, size_t digits, int low, int high, int& out) {
    if (at + digits > text.size()) return false;
    const char* end = text.data() + at + digits;
    const auto [stop, error] = std::from_chars(text.data() + at, end, out);
    return error == std::errc() && stop == end && out >= low && out <= high;
  };
  if (!number(0, 4, 1, 9999, t.year) || !number(5, 2, 1, 12, t.month) || !number(8, 2, 1, 31, t.day)) return failed();
  if (text[4] != '-' || text[7] != '-' || t.day > days_of(t.year, t.month)) return failed();
  if (text.size() == 10) return t;
  if (text[10] != 'T' && text[10] != ' ') return failed();
  if (!number(11, 2, 0, 23, t.hour) || text.size() < 16 || text[13] != ':' || !number(14, 2, 0, 59, t.minute))
    return failed();
  if (text.size() == 16) return t;
  if (text[16] != ':' || !number(17, 2, 0, 59, t.second)) return failed();
  // A fraction or "Z" may follow; strftime_now does not show them.
  if (text.size() > 19 && text[19] != '.' && text[19] != 'Z') return failed();
  return t;
}

}  // namespace berth::jinja
