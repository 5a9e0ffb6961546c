#include "proto/flight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

namespace gradring {
namespace {

TEST(Flight, EveryKindHasANameOfItsOwn) {
  std::map<std::string, uint16_t> names;
  for (uint16_t number = 0; number < 1000; ++number) {
    const std::string name(name_of(static_cast<FlightKind>(number)));
    if (name.empty()) continue;
    EXPECT_TRUE(names.emplace(name, number).second) << name;
  }
  // Numbers that stand in files: they may not move.
  EXPECT_EQ(names["daemon started"], 16);
  EXPECT_EQ(names["peer lost"], 33);
  EXPECT_EQ(names["job failed"], 51);
  EXPECT_EQ(names["trainer lost"], 68);
  EXPECT_EQ(names["op submitted"], 96);
  EXPECT_EQ(names["slice delivered"], 131);
}

TEST(Flight, TextStaysInItsPlace) {
  FlightEvent event;
  event.index = 5;
  set_text(event, std::string(40, 'x'));
  EXPECT_EQ(text_of(event), std::string(32, 'x'));
  EXPECT_EQ(event.index, 5u);
  set_text(event, "ab");
  EXPECT_EQ(text_of(event), "ab");
  event.text_bytes = 255;
  EXPECT_EQ(text_of(event).size(), 32u);
}

TEST(Flight, TextsOfTheHeaderNeedNoEnd) {
  std::array<char, 4> place{};
  put_text(place, "abcdef");
  EXPECT_EQ(text_in(place), "abcd");
  put_text(place, "a");
  EXPECT_EQ(text_in(place), "a");
}

TEST(Flight, AnEmptyHeaderIsNone) {
  const std::array<std::byte, kFlightHeaderBytes> zeros{};
  EXPECT_FALSE(decode_flight_header(zeros, zeros.size()));
  EXPECT_FALSE(decode_flight_header({}, 0));
}

TEST(Flight, TheStartOfAProcessIsField22WhateverItsName) {
  const std::string fields = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
  EXPECT_EQ(start_in_stat("1 (a) " + fields), 4242u);
  EXPECT_EQ(start_in_stat("1 (a) b) (c) " + fields), 4242u);
  EXPECT_EQ(start_in_stat("1 (a) S 1 2"), std::nullopt);
  EXPECT_EQ(start_in_stat(""), std::nullopt);
  EXPECT_EQ(start_in_stat("no parenthesis"), std::nullopt);
}

TEST(Flight, AJobsPrefixIsThatOfItsIncarnation) {
  JobId id{};
  id[0] = 0xab;
  id[3] = 0x07;
  EXPECT_EQ(hex(prefix_of(id)), hex(id).substr(0, 8));
}

}  // namespace
}  // namespace gradring
