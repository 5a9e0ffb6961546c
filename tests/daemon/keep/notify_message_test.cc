#include "daemon/keep/notify_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradring::keep {
namespace {

using testing::HasSubstr;
using Store = NotifyMessage::Store;
using Watchdog = NotifyMessage::Watchdog;

NotifyMessage parsed(std::string_view text) {
  const auto message = parse_notify_message(text);
  EXPECT_TRUE(message.has_value()) << (message ? "" : message.error());
  return message.value_or(NotifyMessage{});
}

TEST(NotifyMessage, SaysWhatGradringdSays) {
  const NotifyMessage ready = parsed("READY=1\nSTATUS=node a, listening at b\n");
  EXPECT_TRUE(ready.ready);
  EXPECT_FALSE(ready.stopping);
  EXPECT_EQ(ready.status, "node a, listening at b");
  EXPECT_TRUE(parsed("STOPPING=1").stopping);
  EXPECT_EQ(parsed("STOPPING=1\nEXTEND_TIMEOUT_USEC=41200000").extend, "41200000");
  EXPECT_EQ(parsed("WATCHDOG=1").watchdog, Watchdog::kFed);
  EXPECT_EQ(parsed("WATCHDOG=trigger").watchdog, Watchdog::kTriggered);
  EXPECT_TRUE(parsed("BARRIER=1").barrier);
  EXPECT_EQ(parsed("").store, Store::kNothing);
}

TEST(NotifyMessage, NamesDescriptors) {
  const NotifyMessage add = parsed("FDSTORE=1\nFDNAME=seg.1f.3\nFDPOLL=0");
  EXPECT_EQ(add.store, Store::kAdd);
  EXPECT_EQ(add.name, "seg.1f.3");
  EXPECT_FALSE(add.poll);
  EXPECT_EQ(parsed("FDSTORE=1").name, "stored");
  EXPECT_TRUE(parsed("FDSTORE=1").poll);
  const NotifyMessage remove = parsed("FDNAME=a\nFDSTOREREMOVE=1");
  EXPECT_EQ(remove.store, Store::kRemove);
  EXPECT_EQ(remove.name, "a");
  EXPECT_EQ(parsed("FDSTORE=1\nFDSTOREREMOVE=1\nFDNAME=a").store, Store::kRemove)
      << "as systemd has it";
}

TEST(NotifyMessage, BadPartsArePassedOverWithAWord) {
  EXPECT_THAT(parsed("WATCHDOG=2\nREADY=1").complaint, HasSubstr("WATCHDOG"));
  EXPECT_TRUE(parsed("WATCHDOG=2\nREADY=1").ready);
  const NotifyMessage misnamed = parsed("FDSTORE=1\nFDNAME=a:b");
  EXPECT_EQ(misnamed.store, Store::kAdd);
  EXPECT_EQ(misnamed.name, "stored");
  EXPECT_THAT(misnamed.complaint, HasSubstr("FDNAME"));
  EXPECT_THAT(parsed("EXTEND_TIMEOUT_USEC=1s").complaint, HasSubstr("EXTEND_TIMEOUT_USEC"));
  EXPECT_EQ(parsed("EXTEND_TIMEOUT_USEC=1s").extend, "");
  for (const char* text : {"FDSTOREREMOVE=1", "FDSTOREREMOVE=1\nFDNAME=\x01"}) {
    EXPECT_EQ(parsed(text).store, Store::kNothing) << text;
    EXPECT_THAT(parsed(text).complaint, HasSubstr("FDSTOREREMOVE")) << text;
  }
}

TEST(NotifyMessage, OnlyWholeLinesCount) {
  for (const char* text :
       {"READY=12", "XREADY=1", "ready=1", "READY=1 ", "\rREADY=1", "X=READY=1"}) {
    EXPECT_FALSE(parsed(text).ready) << text;
  }
  EXPECT_TRUE(parsed("\n\nREADY=1\n\n").ready);
}

TEST(NotifyMessage, HostileDatagramsArePassedOverWhole) {
  using std::string_view_literals::operator""sv;
  EXPECT_TRUE(parsed("READY=1\0"sv).ready) << "one NUL at the end is systemd's manner";
  for (const std::string_view text : {"READY=1\0X=1"sv, "\0READY=1"sv, "READY=1\0\0"sv}) {
    EXPECT_FALSE(parse_notify_message(text).has_value());
  }
  EXPECT_TRUE(parse_notify_message(std::string(kNotifyBytesMax, '\n')).has_value());
  EXPECT_FALSE(parse_notify_message(std::string(kNotifyBytesMax + 1, '\n')).has_value());
  EXPECT_FALSE(parse_notify_message("BARRIER=1\nREADY=1").has_value());
  EXPECT_FALSE(parse_notify_message("READY=1\nBARRIER=1").has_value());
}

}  // namespace
}  // namespace gradring::keep
