// Reading the flight recorder's file, which may be anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "tests/tools/flight_bytes.h"
#include "tests/tools/process.h"
#include "tools/ctl/flight/file.h"

namespace gradring::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

FlightEvent numbered(uint64_t value) {
  FlightEvent event;
  event.kind = FlightKind::kOpDone;
  event.value = value;
  return event;
}

std::vector<uint64_t> values(const FlightLife& life) {
  std::vector<uint64_t> found;
  for (const FlightEntry& entry : life.entries) found.push_back(entry.event.value);
  return found;
}

TEST(FlightFile, MergesTheRingsByTime) {
  FlightBytes file;
  file.add(0, 10, numbered(1));
  file.add(1, 20, numbered(2));
  file.add(1, 25, numbered(3));
  file.add(0, 30, numbered(4));
  const auto life = read_flight(file.bytes());
  ASSERT_TRUE(life) << life.error();
  EXPECT_THAT(values(*life), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(life->last_time(), 30);
  EXPECT_EQ(life->overwritten, 0u);
}

TEST(FlightFile, ARingThatWentRoundHoldsTheNewest) {
  FlightBytes file(4);
  for (uint64_t i = 1; i <= 6; ++i) file.add(1, static_cast<int64_t>(i), numbered(i));
  const auto life = read_flight(file.bytes());
  ASSERT_TRUE(life) << life.error();
  EXPECT_THAT(values(*life), ElementsAre(3, 4, 5, 6));
  EXPECT_EQ(life->overwritten, 2u);
}

TEST(FlightFile, TextFollowsItsEvent) {
  FlightBytes file;
  const std::string name(40, 'n'), words = "words that are longer than one event";
  file.add(0, 1, numbered(1), name + '\0' + words);
  file.add(0, 2, numbered(2), std::string("\0only words", 11));
  const auto life = read_flight(file.bytes());
  ASSERT_TRUE(life) << life.error();
  ASSERT_THAT(values(*life), ElementsAre(1, 2));
  EXPECT_EQ(life->entries[0].name, name);
  EXPECT_EQ(life->entries[0].words, words);
  EXPECT_EQ(life->entries[1].name, "");
  EXPECT_EQ(life->entries[1].words, "only words");
}

TEST(FlightFile, TextWhoseEventWasOverwrittenIsNobodys) {
  FlightBytes file(3);
  file.add(0, 1, numbered(1), std::string(64, 'x'));
  file.add(0, 2, numbered(2));
  const auto life = read_flight(file.bytes());
  ASSERT_TRUE(life) << life.error();
  ASSERT_THAT(values(*life), ElementsAre(2));
  EXPECT_EQ(life->entries[0].name, "");
}

TEST(FlightFile, AnEventThatWasBeingWrittenAtTheEndIsLeftOut) {
  FlightBytes file(4);
  for (uint64_t i = 1; i <= 5; ++i) file.add(0, static_cast<int64_t>(i), numbered(i));
  file.slots[0][1].sequence = 0;  // where 2 was, half of 6
  file.slots[0][1].value = 6;
  const auto life = read_flight(file.bytes());
  ASSERT_TRUE(life) << life.error();
  EXPECT_THAT(values(*life), ElementsAre(3, 4, 5));
}

// The daemon writes number 5 over number 1 while the file is read: before, between and after.
TEST(FlightFile, AnEventThatIsOverwrittenWhileItIsReadIsLeftOut) {
  FlightBytes before(4);
  for (uint64_t i = 1; i <= 4; ++i) before.add(0, static_cast<int64_t>(i), numbered(i));
  FlightBytes half = before, after = before;
  half.slots[0][0].value = 5;  // still under its old number, as a copy out of order may show it
  after.add(0, 5, numbered(5));
  const std::string stages[] = {before.bytes(), half.bytes(), after.bytes()};
  int looks = 0;
  const auto life = read_flight(stages[0].size(), [&](uint64_t offset, std::span<std::byte> to) {
    const bool ring = offset == before.header.rings[0].offset;
    return read_from(stages[ring ? std::min(looks++, 2) : 0])(offset, to);
  });
  ASSERT_TRUE(life) << life.error();
  EXPECT_EQ(looks, 3);
  EXPECT_THAT(values(*life), ElementsAre(2, 3, 4));
}

TEST(FlightFile, WhatIsAtRestIsReadOnceAndNoFurtherThanItWasWritten) {
  FlightBytes file(100'000);
  for (uint64_t i = 1; i <= 5000; ++i) file.add(0, static_cast<int64_t>(i), numbered(i));
  const std::string bytes = file.bytes();
  const auto read_with = [&](bool at_rest) {
    uint64_t read = 0;
    const auto counted = [&](uint64_t offset, std::span<std::byte> to) {
      read += to.size();
      return read_from(bytes)(offset, to);
    };
    const auto life = read_flight(bytes.size(), counted, at_rest);
    EXPECT_TRUE(life) << life.error();
    EXPECT_EQ(life->entries.size(), 5000u);
    return read;
  };
  const uint64_t once = read_with(true);
  EXPECT_LT(once, 5000 * kFlightEventBytes + (1 << 20)) << "of " << bytes.size();
  EXPECT_GT(read_with(false), 2 * once);
}

TEST(FlightFile, NumbersInStrangePlacesAreNotBelieved) {
  FlightBytes file(4);
  for (uint64_t i = 1; i <= 4; ++i) file.add(0, static_cast<int64_t>(i), numbered(i));
  file.slots[0][2].sequence = 4;           // belongs elsewhere
  file.slots[0][3].sequence = 4 + 4 * 10;  // then 1 and 2 cannot still be there, and they are
  const auto life = read_flight(file.bytes());
  ASSERT_TRUE(life) << life.error();
  EXPECT_THAT(values(*life), ElementsAre(1, 2));
}

TEST(FlightFile, ABitThatIsWrongHidesItsEventAlone) {
  FlightBytes file(8);
  for (uint64_t i = 1; i <= 12; ++i) file.add(0, static_cast<int64_t>(i), numbered(i));
  file.slots[0][5].sequence ^= uint64_t{1} << 40;  // 6: its place fits still
  const auto life = read_flight(file.bytes());
  ASSERT_TRUE(life) << life.error();
  EXPECT_THAT(values(*life), ElementsAre(5, 7, 8, 9, 10, 11, 12));
}

TEST(FlightFile, NoLengthIsTooShortToBeRefused) {
  FlightBytes file;
  file.add(0, 1, numbered(1), "text");
  const std::string whole = file.bytes();
  for (size_t length = 0; length < whole.size(); ++length) {
    const auto life = read_flight(whole.substr(0, length));
    ASSERT_FALSE(life) << length;
    EXPECT_FALSE(life.error().empty());
  }
}

TEST(FlightFile, HostileHeadersAreRefused) {
  const auto refused = [](const std::function<void(FlightHeader&)>& bend) {
    FlightBytes file;
    bend(file.header);
    const auto life = read_flight(file.bytes());
    return life ? "" : life.error();
  };
  const auto ring = [](auto FlightRingPlace::*member, uint64_t value) {
    return [=](FlightHeader& header) { header.rings[1].*member = value; };
  };
  EXPECT_THAT(refused([](FlightHeader& h) { h.magic[0] = 'X'; }), HasSubstr("no flight recorder"));
  EXPECT_THAT(refused([](FlightHeader& h) { h.version = 2; }), HasSubstr("version 2"));
  EXPECT_THAT(refused([](FlightHeader& h) { h.event_bytes = 128; }), HasSubstr("128 bytes"));
  EXPECT_THAT(refused([](FlightHeader& h) { h.ring_count = 9; }), HasSubstr("9 rings"));
  EXPECT_THAT(refused([](FlightHeader& h) { h.ring_count = ~0u; }), HasSubstr("rings"));
  for (const uint64_t bad : {uint64_t{0}, uint64_t{1} << 20, uint64_t{1} << 58, ~uint64_t{0}}) {
    EXPECT_THAT(refused(ring(&FlightRingPlace::events, bad)), HasSubstr("ring 1")) << bad;
  }
  for (const uint64_t bad : {uint64_t{0}, uint64_t{1} << 20, ~uint64_t{0} - 63}) {
    EXPECT_THAT(refused(ring(&FlightRingPlace::offset, bad)), HasSubstr("ring 1")) << bad;
  }
}

TEST(FlightFile, GarbageIsReadOrRefused) {
  std::mt19937_64 random(7);
  FlightBytes file;
  std::string bytes = file.bytes();
  for (int round = 0; round < 200; ++round) {
    for (size_t i = kFlightHeaderBytes; i < bytes.size(); ++i)
      bytes[i] = static_cast<char>(random());
    const auto life = read_flight(bytes);
    ASSERT_TRUE(life) << life.error();
    EXPECT_LE(life->entries.size(), 16u);
  }
}

TEST(FlightFile, WhatIsNotAFileDoesNotKeepUsWaiting) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/flight-recorder";
  EXPECT_EQ(read_flight_file(path).error().code(), Code::kUnavailable);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(read_flight_file(path).error().code(), Code::kInternal);
  unlink(path.c_str());
  ASSERT_EQ(symlink("/dev/zero", path.c_str()), 0);
  EXPECT_EQ(read_flight_file(path).error().code(), Code::kInternal);
  unlink(path.c_str());
  std::ofstream(path) << "garbage";
  const auto garbage = read_flight_file(path);
  ASSERT_FALSE(garbage);
  EXPECT_EQ(garbage.error().code(), Code::kInternal);
  EXPECT_THAT(garbage.error().message(), HasSubstr(path));
}

}  // namespace
}  // namespace gradring::tools
