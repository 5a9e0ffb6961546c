#include "tools/common/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace gradring::tools {
namespace {

constexpr char32_t kInvalid = 0xffffffff;

struct Character {
  char32_t code;  // kInvalid: the first byte does not begin a well-formed character
  size_t bytes;
};

// The character at the front of a text that is not empty. Refuses overlong forms and surrogates.
Character front(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return {kInvalid, 1};
  char32_t code = lead & (0x7f >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {kInvalid, 1};
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  if (overlong || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff) return {kInvalid, 1};
  return {code, length};
}

// Line and paragraph separators, zero-width characters and the marks that change the direction of
// text.
bool is_invisible(char32_t code) {
  return (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2060 && code <= 0x206f) || code == 0x061c || code == 0xfeff;
}

struct Range {
  char32_t first, last;
};

// Those of East Asia and pictures take two columns, marks on the letter before them none: the
// blocks of Unicode 15 in which that is so of nearly all.
constexpr Range kWide[] = {
    {0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0x4dbf},   {0x4e00, 0xa4cf},  {0xa960, 0xa97c},
    {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},  {0xffe0, 0xffe6},
    {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};
constexpr Range kMarks[] = {{0x300, 0x36f},   {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff},
                            {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}};

size_t columns_of(char32_t code) {
  const auto has = [code](const Range& range) { return range.first <= code && code <= range.last; };
  if (std::ranges::any_of(kWide, has)) return 2;
  return std::ranges::any_of(kMarks, has) ? 0 : 1;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const Character next = front(text);
    if (next.code == kInvalid || next.code < 0x20 || next.code == 0x7f) {
      safe += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if ((next.code >= 0x80 && next.code < 0xa0) || is_invisible(next.code)) {
      safe += fmt::format("\\u{{{:x}}}", static_cast<uint32_t>(next.code));
    } else {
      safe += text.substr(0, next.bytes);
    }
    text.remove_prefix(next.bytes);
  }
  return safe;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Character next = front(text);
    if (next.code == kInvalid) return false;
    text.remove_prefix(next.bytes);
  }
  return true;
}

size_t width_of(std::string_view text) {
  size_t width = 0;
  bool colour = false;
  while (!text.empty()) {
    const Character next = front(text);
    if (next.code == U'\x1b') colour = true;
    if (!colour) width += columns_of(next.code);
    if (next.code == U'm') colour = false;
    text.remove_prefix(next.bytes);
  }
  return width;
}

std::string_view beginning_of(std::string_view text, size_t columns) {
  size_t bytes = 0;
  for (std::string_view rest = text; !rest.empty(); rest = text.substr(bytes)) {
    const Character next = front(rest);
    const size_t width = columns_of(next.code);
    if (width > columns) break;
    columns -= width;
    bytes += next.bytes;
  }
  return text.substr(0, bytes);
}

std::string format_duration(uint64_t milliseconds) {
  const uint64_t seconds = milliseconds / 1000, minutes = seconds / 60, hours = minutes / 60;
  if (seconds < 60) return fmt::format("{}.{} s", seconds, milliseconds % 1000 / 100);
  if (minutes < 60) return fmt::format("{} min {} s", minutes, seconds % 60);
  if (hours < 48) return fmt::format("{} h {} min", hours, minutes % 60);
  return fmt::format("{} d {} h", hours / 24, hours % 24);
}

std::string format_ago(uint64_t milliseconds) {
  const uint64_t seconds = milliseconds / 1000;
  if (seconds < 1) return "just now";
  if (seconds < 60) return fmt::format("{} s ago", seconds);
  if (seconds < 3600) return fmt::format("{} min ago", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{} h ago", seconds / 3600);
  return fmt::format("{} d ago", seconds / 86400);
}

bool in_order(const std::string& a, const std::string& b) {
  return strverscmp(a.c_str(), b.c_str()) < 0;
}

std::string counted(uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string rank_at(uint32_t rank, std::string_view node, int64_t pid) {
  return fmt::format("rank {} (node {}{})", rank, printable(node),
                     pid != 0 ? fmt::format(", pid {}", pid) : "");
}

std::string describe_process_state(std::string_view letter) {
  static constexpr std::pair<char, std::string_view> kMeanings[] = {{'R', "running"},
                                                                    {'S', "sleeping"},
                                                                    {'D', "waiting for a device"},
                                                                    {'T', "stopped"},
                                                                    {'t', "stopped by a debugger"},
                                                                    {'Z', "a zombie"},
                                                                    {'X', "dead"},
                                                                    {'I', "idle"}};
  for (const auto& [known, meaning] : kMeanings) {
    if (letter == std::string_view(&known, 1)) return fmt::format("{} {}", known, meaning);
  }
  return printable(letter);
}

}  // namespace gradring::tools
