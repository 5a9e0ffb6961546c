#include "proto/shell_word.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>

namespace gradring {
namespace {

std::string read_by_a_shell(const std::string& word) {
  const std::string command = "printf '<%s>' " + word;
  // NOLINTNEXTLINE(bugprone-command-processor): it is a shell that is asked
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> shell(popen(command.c_str(), "r"), pclose);
  std::array<char, 256> printed{};
  const size_t length = std::fread(printed.data(), 1, printed.size(), shell.get());
  return {printed.data(), length};
}

TEST(ShellWord, OfWhatIsPlainIsWhatItWas) {
  for (const char* plain : {"train", "/run/gradring", "user@host:2", "a-b_c.d%e+f=g,h"})
    EXPECT_EQ(shell_word(plain), plain);
}

TEST(ShellWord, OfWhatAShellReadsMoreIntoIsQuoted) {
  EXPECT_EQ(shell_word("train[0,2]"), "'train[0,2]'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(ShellWord, IsReadByAShellAsItWas) {
  for (const std::string word :
       {"", " ", "it's $HOME; rm -rf", "*", "~", "#x", "a\\b", "two\nlines", "`id`", "\"", "'",
        "''", "-n", "[a]", "{a,b}", "!x", "\xc3\xa4"})
    EXPECT_EQ(read_by_a_shell(shell_word(word)), "<" + word + ">");
}

}  // namespace
}  // namespace gradring
