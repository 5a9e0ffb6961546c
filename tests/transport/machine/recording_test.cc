// Recordings: what is written is read again, and whatever is wrong with one is said in a line.
#include "transport/machine/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/tools/process.h"
#include "tests/transport/machine/machine.h"
#include "transport/machine/look_apart.h"

namespace gradring::machine {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string complaint_about(const std::string& yaml) {
  const auto answers = parse_answers(yaml);
  return answers ? "" : answers.error().message();
}

std::string recorded_yaml(const std::string& name) {
  std::ifstream file(folder_of(name) + "/" + kAnswersFile);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Recording, IsReadAsItWasWritten) {
  for (const char* name : {"dgx-h100", "consumer", "server-4x2", "vm-flat"}) {
    const auto answers = parse_answers(recorded_yaml(name));
    ASSERT_TRUE(answers) << answers.error().message();
    EXPECT_NE(answers->host, "");
    const auto again = parse_answers(yaml_of(*answers));
    ASSERT_TRUE(again) << again.error().message() << yaml_of(*answers);
    EXPECT_TRUE(*again == *answers) << name;
  }
  Answers odd;
  odd.host = "a: b # \"c\"\n- d\r\t\r \x05 \xc3\xbc";
  odd.nvml.absent = "true";
  odd.net.push_back({"0x10", std::nullopt, true, 1, 2, "~", {"::1", "null", "a\rb"}});
  const auto again = parse_answers(yaml_of(odd));
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_TRUE(*again == odd) << yaml_of(odd);
}

TEST(Recording, OfThisMachineIsShownAsThisMachine) {
  const tools::TemporaryFolder folder;
  const auto sight = look({});
  ASSERT_TRUE(sight);
  ASSERT_TRUE(write_recording(folder.path() + "/new", sight->seen.xml, sight->answers).ok());
  const auto again = look({folder.path() + "/new", "", {}});
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_TRUE(again->answers == sight->answers);
  EXPECT_EQ(again->seen.tree.numa.size(), sight->seen.tree.numa.size());
  EXPECT_EQ(again->seen.tree.devices.size(), sight->seen.tree.devices.size());
}

TEST(Recording, ThatIsNoneIsRefused) {
  EXPECT_THAT(complaint_about(""), HasSubstr("this is no recorded machine"));
  EXPECT_THAT(complaint_about("just words"), HasSubstr("this is no recorded machine"));
  EXPECT_THAT(complaint_about("gradring-machine: 2\n"), HasSubstr("another version"));
  EXPECT_THAT(complaint_about("gradring-machine: [\n"), HasSubstr("it is not YAML"));
  EXPECT_EQ(complaint_about(std::string("gradring-machine: 1\nhost: a\xff\0x", 30)),
            "line 2: the byte 0xff is not of printable ASCII");
  EXPECT_EQ(complaint_about("gradring-machine: 1\nhost: a\x05"),
            "line 2: the byte 0x05 is not of printable ASCII");
}

TEST(Recording, NamesTheLineThatIsWrong) {
  const std::string head = "gradring-machine: 1\n";
  EXPECT_EQ(complaint_about(head + "nvml:\n  gpus:\n    - name: x\n"),
            "line 4: a GPU needs its \"pci\" address");
  EXPECT_EQ(complaint_about(head + "nvml:\n  gpus:\n    - pci: here\n"),
            "line 4: \"pci\" is not a PCI address such as 0000:17:00.0");
  EXPECT_EQ(complaint_about(head + "net:\n  - name: a\n    up: perhaps\n"),
            "line 4: \"up\" is neither true nor false");
  EXPECT_THAT(complaint_about(head + "net:\n  - name: a\n    mtu: -1\n"),
              HasSubstr("\"mtu\" is not a number"));
  EXPECT_THAT(complaint_about(head + "net:\n  - name: a\n    rate_bps: 1e99\n"),
              HasSubstr("\"rate_bps\" is not a number"));
  EXPECT_THAT(complaint_about(head + "net: 5\n"), HasSubstr("\"net\" is not a list"));
  EXPECT_THAT(complaint_about(head + "net: [5]\n"), HasSubstr("line 2: a map with"));
  EXPECT_THAT(complaint_about(head + "rdma:\n  - pci: 0000:01:00.0\n"),
              HasSubstr("needs a \"name\""));
  EXPECT_THAT(complaint_about(head + "host: [a]\n"), HasSubstr("\"host\" is not a text"));
}

TEST(Recording, HasBounds) {
  const std::string head = "gradring-machine: 1\n";
  EXPECT_THAT(complaint_about(head + "x: " + std::string(100'000, '[')),
              HasSubstr("nested deeper"));
  std::string steps = head + "x:\n ";
  for (int i = 0; i < 50'000; ++i) steps += "- ";
  EXPECT_THAT(complaint_about(steps + "x"), HasSubstr("nested deeper"));
  EXPECT_THAT(complaint_about(head + "host: " + std::string(5000, 'a')),
              HasSubstr("up to 1024 characters"));
  EXPECT_THAT(complaint_about(head + "nvml: {gpus: [{pci: \"0000:01:00.0\", nvlinks: [{to: switch, "
                                     "count: 4000000000}]}]}"),
              HasSubstr("\"count\" is not a number from 0 to 1024"));
  // Each level doubles the one before it.
  std::string bomb = head + "a0: &a0 [x, x]\n";
  for (int i = 1; i < 40; ++i) {
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) +
            ", *a" + std::to_string(i - 1) + "]\n";
  }
  EXPECT_EQ(complaint_about(bomb), "") << "aliases that nobody asks for cost nothing";
}

TEST(Recording, WhatANewerVersionAddsIsPassedOver) {
  const auto answers = parse_answers("gradring-machine: 1\nhost: a\nmoons: [1, 2]\n");
  ASSERT_TRUE(answers);
  EXPECT_EQ(answers->host, "a");
}

std::string fault_of(const std::string& folder) {
  LookApart look;
  LookOptions options;
  options.recording = folder;
  look.start(options);
  look.wait(60'000);
  return look.report().fault();
}

TEST(Recording, FoldersThatAreNoneAreRefused) {
  const tools::TemporaryFolder folder;
  EXPECT_THAT(fault_of(folder.path()),
              AllOf(HasSubstr("machine.yaml"), HasSubstr("a recording is a folder with")));
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder.path() + "/" + name) << text;
  };
  write(kAnswersFile, "gradring-machine: 1\n");
  EXPECT_THAT(fault_of(folder.path()), HasSubstr("hwloc.xml"));
  for (const char* xml :
       {"", "not XML", "<topology", "<topology version=\"2.0\"></topology>",
        "<topology version=\"2.0\"><object type=\"Machine\"/></topology>",
        "<topology version=\"2.0\"><object type=\"PU\" cpuset=\"0x1\"/></topology>"}) {
    write(kTreeFile, xml);
    EXPECT_THAT(fault_of(folder.path()), Not("")) << xml;
  }
  std::filesystem::copy_file(folder_of("consumer") + "/" + kTreeFile,
                             folder.path() + "/" + kTreeFile,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(fault_of(folder.path()), "");
  write(kAnswersFile, std::string((1 << 20) + 1, '#'));
  EXPECT_THAT(fault_of(folder.path()), HasSubstr("longer than any machine needs"));
}

// Cut anywhere: an answer or a complaint, and never a crash that is not told.
TEST(Recording, ATreeThatIsCutShortIsRefused) {
  const tools::TemporaryFolder folder;
  std::ifstream file(folder_of("vm-flat") + "/" + kTreeFile);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  std::ofstream(folder.path() + "/" + kAnswersFile) << "gradring-machine: 1\n";
  for (size_t part = 1; part < 16; ++part) {
    std::ofstream(folder.path() + "/" + kTreeFile, std::ios::trunc)
        << whole.substr(0, whole.size() * part / 16);
    EXPECT_NE(fault_of(folder.path()), "") << part;
  }
}

}  // namespace
}  // namespace gradring::machine
