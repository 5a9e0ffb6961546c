// The parts of support-bundle that need no daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tools/ctl/bundle/parts.h"
#include "tools/ctl/bundle/program.h"
#include "tools/ctl/bundle/secrets.h"

namespace gradring::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kKey = "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6";

TEST(Secrets, AKeyIsTakenOutWhereverItStands) {
  ASSERT_EQ(std::string(kKey).size(), 40u);
  for (const char* around :
       {"{}", "secret-key = \"{}\"", "key={}", "x {} y", "a\n{}\nb", "key:{}"}) {
    std::string text = around;
    text.replace(text.find("{}"), 2, kKey);
    const std::string kept = without_secrets(text, {});
    EXPECT_THAT(kept, Not(HasSubstr(kKey)));
    EXPECT_THAT(kept, HasSubstr("(taken out)"));
  }
}

TEST(Secrets, WhatIsKnownToBeOneIsTakenOut) {
  EXPECT_EQ(without_secrets("said hunter2hunter2hunter2 twice: hunter2hunter2hunter2",
                            {"hunter2hunter2hunter2"}),
            "said (taken out) twice: (taken out)");
  EXPECT_EQ(without_secrets("db-password = x\nnode = a", {}),
            "db-password = (taken out)\nnode = a");
}

TEST(Secrets, TheRestStays) {
  const std::string config =
      "# comment\nnode = n0\n\nlisten = 10.0.0.1:7300\nkey = /etc/gradring/n0.key\n";
  EXPECT_EQ(without_secrets(config, {}), config);
  EXPECT_EQ(without_secrets("", {}), "");
  const std::string json = R"({"incarnation": "0123456789abcdef0123456789abcdef", "text": "a b"})";
  EXPECT_EQ(without_secrets(json, {}), json);
  const std::string gpu = R"("uuid": "GPU-8f6f2e3a-1b2c-3d4e-5f60-718293a4b5c6", "x")";
  EXPECT_EQ(without_secrets(gpu, {}), gpu);
  EXPECT_THAT(without_secrets(gpu + kKey, {}), HasSubstr("(taken out)"));
}

TEST(Secrets, OfAKeyFileAreItsLongWords) {
  const std::string file = std::string("# made by keygen\nsecret = \"") + kKey + "\"\n";
  EXPECT_THAT(secrets_of(file), ElementsAre(kKey));
}

TEST(Bundle, FindsTheConfiguration) {
  EXPECT_EQ(config_file_of({"gradringd", "--config", "/a/b.conf"}), "/a/b.conf");
  EXPECT_EQ(config_file_of({"gradringd", "--config=/a/b.conf", "--keep"}), "/a/b.conf");
  EXPECT_EQ(config_file_of({"gradringd", "--config"}), "/etc/gradring/gradringd.conf");
  EXPECT_EQ(config_file_of({}), "/etc/gradring/gradringd.conf");
}

TEST(Bundle, LooksForARelativePathWhereTheDaemonDoes) {
  EXPECT_EQ(as_seen_by(7, "a.conf"), "/proc/7/cwd/a.conf");
  EXPECT_EQ(as_seen_by(7, "/etc/a.conf"), "/etc/a.conf");
}

TEST(Bundle, FindsTheKeyFileHoweverTheLineIsWritten) {
  EXPECT_EQ(key_file_in("node = a\nkey = /etc/a.key\n"), "/etc/a.key");
  EXPECT_EQ(key_file_in("key=/etc/a.key"), "/etc/a.key");
  EXPECT_EQ(key_file_in("\tkey\t=/etc/a.key  # ours\r\n"), "/etc/a.key");
  EXPECT_EQ(key_file_in("# key = /old\nallowed-keys = /k\nkey =\n"), "");
}

TEST(Program, ReturnsWhatWasWrittenOrWhyNot) {
  using std::chrono::seconds;
  EXPECT_EQ(output_of({"echo", "a b"}, seconds(20)), "a b\n");
  EXPECT_THAT(output_of({"gradring-is-no-program"}, seconds(20)).error(), HasSubstr("cannot run"));
  EXPECT_EQ(output_of({"sh", "-c", "echo broken >&2; exit 3"}, seconds(20)).error(),
            "sh failed: broken");
  EXPECT_EQ(output_of({"sleep", "100"}, seconds(1)).error(), "sleep took longer than 1 s");
}

}  // namespace
}  // namespace gradring::tools
