// Sizes, times, names and tables, as the tools print them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tools/common/size.h"
#include "tools/common/table.h"
#include "tools/common/text.h"

namespace gradring::tools {
namespace {

TEST(Size, IsReadAsPeopleWriteIt) {
  EXPECT_EQ(parse_size("0"), 0u);
  EXPECT_EQ(parse_size("4096"), 4096u);
  EXPECT_EQ(parse_size("12B"), 12u);
  EXPECT_EQ(parse_size("4K"), 4096u);
  EXPECT_EQ(parse_size("4k"), 4096u);
  EXPECT_EQ(parse_size("256M"), 256u << 20);
  EXPECT_EQ(parse_size("1KiB"), 1024u);
  EXPECT_EQ(parse_size("1GB"), 1u << 30);
  EXPECT_EQ(parse_size("2T"), uint64_t{2} << 40);
  EXPECT_EQ(parse_size("9223372036854775808"), uint64_t{1} << 63);
}

TEST(Size, RefusesTheRest) {
  for (const char* bad : {"", "K", "-1", "+1", " 1", "1 K", "1.5M", "4KK", "4X", "1Ki", "1kibi",
                          "0x10", "9223372036854775809", "18446744073709551616", "9000000T"}) {
    EXPECT_EQ(parse_size(bad), std::nullopt) << bad;
  }
}

TEST(Size, IsPrintedWithItsUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(64u << 20), "64.0 MiB");
  EXPECT_EQ(format_bytes((1u << 20) - 1), "1.0 MiB");  // not 1024.0 KiB
  EXPECT_EQ(format_bytes(uint64_t{5} << 50), "5120.0 TiB");
}

TEST(Text, TimesAreShort) {
  EXPECT_EQ(format_duration(0), "0.0 s");
  EXPECT_EQ(format_duration(30'249), "30.2 s");
  EXPECT_EQ(format_duration(59'999), "59.9 s");
  EXPECT_EQ(format_duration(320'000), "5 min 20 s");
  EXPECT_EQ(format_duration(11'400'000), "3 h 10 min");
  EXPECT_EQ(format_duration(uint64_t{1000} * 3600 * 292), "12 d 4 h");
  EXPECT_EQ(format_ago(10), "just now");
  EXPECT_EQ(format_ago(59'000), "59 s ago");
  EXPECT_EQ(format_ago(120'000), "2 min ago");
  EXPECT_EQ(format_ago(7'200'000), "2 h ago");
  EXPECT_EQ(format_ago(uint64_t{1000} * 86400 * 12), "12 d ago");
}

TEST(Text, NamesCannotDriveTheTerminal) {
  EXPECT_EQ(printable("plain-name_1:2"), "plain-name_1:2");
  EXPECT_EQ(printable("Größe 数"), "Größe 数");
  EXPECT_EQ(printable("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(printable("two\nlines\t"), "two\\x0alines\\x09");
  EXPECT_EQ(printable(std::string("nul\0", 4)), "nul\\x00");
  EXPECT_EQ(printable("\x7f"), "\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"), "\\u{9b}");  // CSI as one character
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "gnp"),
            "\\u{202e}gnp");  // right to left
  EXPECT_EQ(printable("\xef\xbb\xbf"), "\\u{feff}");
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");  // not UTF-8, and cut short
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b");  // overlong forms
  EXPECT_EQ(printable("\xe0\x80\x9b"), "\\xe0\\x80\\x9b");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
}

TEST(Text, KnowsWhatIsUtf8) {
  for (const char* good : {"", "n0", "ünïcödé", "\x7f", "𝔤"}) EXPECT_TRUE(is_utf8(good)) << good;
  for (const char* bad : {"\xff", "caf\xe9", "\xc0\x80", "\xed\xa0\x80", "\xf0\x9f"}) {
    EXPECT_FALSE(is_utf8(bad)) << printable(bad);
  }
}

TEST(Text, NumbersInNamesCount) {
  std::vector<std::string> nodes = {"n10", "rack2-n1", "n2", "n1", "rack10-n1"};
  std::ranges::sort(nodes, in_order);
  EXPECT_THAT(nodes, testing::ElementsAre("n1", "n2", "n10", "rack2-n1", "rack10-n1"));
}

TEST(Text, CountsAndStates) {
  EXPECT_EQ(rank_at(3, "a", 71), "rank 3 (node a, pid 71)");
  EXPECT_EQ(rank_at(3, "a\n", 0), "rank 3 (node a\\x0a)");
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(describe_process_state("T"), "T stopped");
  EXPECT_EQ(describe_process_state(""), "");
  EXPECT_EQ(describe_process_state("\x1b"), "\\x1b");
}

TEST(Table, AlignsWhatItShows) {
  Table table({{"name"}, {"bytes", Table::Align::kRight}, {"state"}});
  EXPECT_TRUE(table.empty());
  table.add({"Größe", "7", "up"});
  table.add({"b", "12345678", "\x1b[31mlost\x1b[0m"});
  table.add({"c", "1"});
  EXPECT_EQ(table.str(),
            "name      bytes  state\n"
            "Größe         7  up\n"
            "b      12345678  \x1b[31mlost\x1b[0m\n"
            "c             1\n");
}

// Two columns each on a terminal; an accent of its own takes none.
TEST(Table, AlignsWideCharacters) {
  Table table({{"job"}, {"bytes", Table::Align::kRight}});
  table.add({"日本語", "7"});
  table.add({"e\u0301", "8"});
  EXPECT_EQ(table.str(),
            "job     bytes\n"
            "日本語      7\n"
            "e\u0301           8\n");
  EXPECT_EQ(beginning_of("日本語", 5), "日本");
  EXPECT_EQ(beginning_of("a日", 3), "a日");
  EXPECT_EQ(beginning_of("abc", 0), "");
}

}  // namespace
}  // namespace gradring::tools
