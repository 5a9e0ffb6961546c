#include "daemon/keys.h"

#include <gmock/gmock.h>
#include <zmq.h>

#include <array>
#include <filesystem>

#include "tests/daemon/config_fixture.h"

namespace gradring::daemon {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class KeysTest : public ConfigTest {
 protected:
  struct Pair {
    std::string open, secret;
  };
  Pair make_pair() {
    std::array<char, 41> open{}, secret{};
    EXPECT_EQ(zmq_curve_keypair(open.data(), secret.data()), 0);
    return {open.data(), secret.data()};
  }
  std::string write_key(const std::string& name, const Pair& pair, mode_t mode = 0600) {
    write(name, "# ours\npublic = \"" + pair.open + "\"\nsecret = \"" + pair.secret + "\"\n");
    std::filesystem::permissions(scratch_.path(name), static_cast<std::filesystem::perms>(mode));
    return scratch_.path(name);
  }
  std::vector<std::string> flags(const std::string& key, const std::string& allowed) {
    return {"--node",        "a",     "--listen", "10.0.0.1:7300",  "--peer",
            "10.0.0.2:7300", "--key", key,        "--allowed-keys", allowed};
  }
};

TEST_F(KeysTest, AGoodPairAndListAreAccepted) {
  const Pair a = make_pair(), b = make_pair();
  write("allowed", "\xef\xbb\xbf# NODE ADDRESS KEY\r\na 10.0.0.1:7300 " + a.open +
                       "\n\n  b\t10.0.0.2:7300  " + b.open + "\n");
  EXPECT_EQ(told(flags(write_key("key", a), scratch_.path("allowed"))), "");
  const auto keys = read_allowed_keys(scratch_.path("allowed"));
  ASSERT_TRUE(keys);
  ASSERT_EQ(keys->size(), 2u);
  EXPECT_EQ((*keys)[1].node, "b");
  EXPECT_EQ((*keys)[1].public_key, b.open);
}

TEST_F(KeysTest, WhatIsWrongWithAKeyFileIsSaid) {
  const Pair a = make_pair(), b = make_pair();
  write("allowed", "b 10.0.0.2:7300 " + b.open + "\n");
  const std::string allowed = scratch_.path("allowed");
  EXPECT_THAT(told(flags("/nowhere", allowed)), HasSubstr("gradringctl keygen"));
  EXPECT_THAT(told(flags("/run/credentials/nowhere.service/gradring.key", allowed)),
              AllOf(HasSubstr("while the service runs"), Not(HasSubstr("keygen"))))
      << "another key would be a stranger's";
  EXPECT_THAT(told(flags(write_key("open", a, 0640), allowed)), HasSubstr("chmod 600"));
  EXPECT_THAT(told(flags(write_key("mixed", {a.open, b.secret}), allowed)),
              HasSubstr("does not belong"));
  write("short", "public = \"abc\"\n");
  std::filesystem::permissions(scratch_.path("short"), std::filesystem::perms::owner_read);
  EXPECT_THAT(told(flags(scratch_.path("short"), allowed)), HasSubstr("40 characters"));
  write("half", "public = \"" + a.open + "\"\n");
  std::filesystem::permissions(scratch_.path("half"), std::filesystem::perms::owner_read);
  EXPECT_THAT(told(flags(scratch_.path("half"), allowed)), HasSubstr("missing"));
}

TEST_F(KeysTest, ACredentialOfSystemdIsTakenWithTheMaskOfItsAcl) {
  const Pair a = make_pair();
  write("allowed", "a 10.0.0.1:7300 " + a.open + "\nb 10.0.0.2:7300 " + make_pair().open + "\n");
  const std::string key = write_key("gradring.key", a, 0440);
  const std::string folder = std::filesystem::path(key).parent_path();
  const std::string allowed = scratch_.path("allowed");
  EXPECT_THAT(told(flags(key, allowed)), HasSubstr("chmod 600"));
  setenv("CREDENTIALS_DIRECTORY", folder.c_str(), 1);
  EXPECT_EQ(told(flags(key, allowed)), "");
  EXPECT_THAT(told(flags(write_key("open", a, 0444), allowed)), HasSubstr("chmod 600"));
  setenv("CREDENTIALS_DIRECTORY", "/run/credentials/gradringd.service", 1);
  EXPECT_THAT(told(flags(key, allowed)), HasSubstr("chmod 600"));
  unsetenv("CREDENTIALS_DIRECTORY");
}

TEST_F(KeysTest, WhatIsWrongWithTheListIsSaid) {
  const Pair a = make_pair(), b = make_pair();
  const std::string key = write_key("key", a);
  const std::string good = "b 10.0.0.2:7300 " + b.open + "\n";
  const std::map<std::string, std::string> cases = {
      {"b 10.0.0.2:7300\n", "line 1: expected NODE HOST:PORT KEY"},
      {good + "b 10.0.0.3:7300 " + a.open + "\n", "line 2: node b is listed twice"},
      {good + "c 10.0.0.3:7300 " + b.open + "\n", "nodes b and c have the same key"},
      {"b nowhere " + b.open + "\n", "'nowhere' is not HOST:PORT"},
      {"b 10.0.0.2:7300 tooshort\n", "40 characters"},
      {"c 10.0.0.3:7300 " + b.open + "\n", "no line for peer 10.0.0.2:7300"},
      {good + "a 10.0.0.1:7300 " + make_pair().open + "\n", "lists another public key for node a"},
      {good + "c 10.0.0.1:7300 " + a.open + "\n", "for node c, and this is node a"},
  };
  for (const auto& [text, expected] : cases) {
    write("allowed", text);
    EXPECT_THAT(told(flags(key, scratch_.path("allowed"))), HasSubstr(expected)) << text;
  }
  EXPECT_THAT(told(flags(key, "/nowhere")), HasSubstr("cannot be read: No such file"));
  EXPECT_THAT(told(flags(key, scratch_.directory())), HasSubstr("cannot be read: Is a directory"));
  write("allowed", good);
  auto both = flags(key, scratch_.path("allowed"));
  both.emplace_back("--insecure");
  EXPECT_THAT(told(both), HasSubstr("contradicts"));
}

}  // namespace
}  // namespace gradring::daemon
