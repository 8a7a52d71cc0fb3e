// format/plain_scanner.h — a forward scan over the JSON that writers of headers and indexes really write.
//
// It knows plain texts (printable ASCII without escapes), plain non-negative integers and punctuation, and stops at
// anything else. A caller that meets a stop throws its work away and lets the full parser (base/json.h) decide, so the
// scan never refuses and never accepts what the full parser would refuse: it only saves the time of building a tree,
// which for 100,000 tensors is most of the time of opening them. fuzz/ compares the two.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace berth::format {

class PlainScanner {
 public:
  explicit PlainScanner(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  void skip_space() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }
  bool at_end() {
    skip_space();
    return at_ == end_;
  }
  // Space, then `c`.
  bool take(char c) {
    skip_space();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  // A plain text without its quotes.
  bool text(std::string_view& out) {
    if (!take('"')) return false;
    const char* begin = at_;
    // Eight characters at a time: all printable ASCII, no quote, no backslash.
    while (end_ - at_ >= 8) {
      uint64_t w;
      std::memcpy(&w, at_, 8);
      constexpr uint64_t kOnes = 0x0101010101010101ull, kHigh = 0x8080808080808080ull;
      const uint64_t quote = w ^ (kOnes * '"'), slash = w ^ (kOnes * '\\');
      const uint64_t stop = ((quote - kOnes) & ~quote) | ((slash - kOnes) & ~slash) | (w - kOnes * 0x20) | w;
      if ((stop & kHigh) != 0) break;
      at_ += 8;
    }
    for (; at_ < end_; ++at_) {
      const auto c = static_cast<unsigned char>(*at_);
      if (c == '"') {
        out = {begin, static_cast<size_t>(at_ - begin)};
        ++at_;
        return true;
      }
      if (c < 0x20 || c >= 0x80 || c == '\\') return false;
    }
    return false;
  }
  // Digits without a leading zero, below 10^18; what follows is not looked at.
  bool integer(uint64_t& out) {
    skip_space();
    const char* begin = at_;
    uint64_t n = 0;
    while (at_ < end_ && *at_ >= '0' && *at_ <= '9') n = n * 10 + static_cast<uint64_t>(*at_++ - '0');
    const auto digits = at_ - begin;
    out = n;
    return digits > 0 && digits <= 18 && (digits == 1 || *begin != '0');
  }

 private:
  const char* at_;
  const char* end_;
};

}  // namespace berth::format
