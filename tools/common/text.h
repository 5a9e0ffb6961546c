#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gradring::tools {

// Makes a name from outside harmless on a terminal: control characters, bytes that are not UTF-8
// and the invisible marks that reorder text are written as \x1b or \u{202e}. A backslash stays as
// it is: the result is to be read, not to be parsed.
std::string printable(std::string_view text);

// Whether it is UTF-8 throughout. Messages and JSON carry nothing else.
bool is_utf8(std::string_view text);

// Columns that a printable text takes on a terminal: one for each character, two for a wide one as
// of Chinese, none for the escape sequences that colour it.
size_t width_of(std::string_view text);
// As much of a text without colours as takes no more columns.
std::string_view beginning_of(std::string_view text, size_t columns);

// "0.4 s", "30.2 s", "5 min 20 s", "3 h 10 min", "12 d 4 h"
std::string format_duration(uint64_t milliseconds);
// "just now", "30 s ago", "2 min ago", "3 h ago", "12 d ago"
std::string format_ago(uint64_t milliseconds);

// "1 job", "3 jobs"
std::string counted(uint64_t count, std::string_view noun);

// n2 before n10.
bool in_order(const std::string& a, const std::string& b);

// "rank 3 (node a, pid 71)"; without a pid where the daemon cannot know it: the trainer is in a pid
// namespace that it does not see.
std::string rank_at(uint32_t rank, std::string_view node, int64_t pid);

// The letter of /proc/PID/stat with its meaning: "T stopped".
std::string describe_process_state(std::string_view letter);

}  // namespace gradring::tools
