// What gradringctl flight-recorder makes of a file, for people and for scripts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/flight_bytes.h"
#include "tests/tools/schema.h"
#include "tools/ctl/flight/show.h"
#include "tools/ctl/flight/words.h"

namespace gradring::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kMillisecond = 1'000'000;
constexpr JobPrefix kJob = {0xab, 0xcd, 0x01, 0x02};

FlightEvent event_of(FlightKind kind) {
  FlightEvent event;
  event.kind = kind;
  return event;
}

FlightEvent of_job(FlightKind kind, uint32_t rank = kNoRank) {
  FlightEvent event = event_of(kind);
  event.job = kJob;
  event.rank = rank;
  return event;
}

// A job of two nodes whose rank 1 does not submit op 1, and is killed.
FlightBytes story() {
  FlightBytes file(64);
  file.add(0, 0, event_of(FlightKind::kDaemonStarted), "0.1.0");
  file.add(0, 1, event_of(FlightKind::kPeerUp), "b");
  FlightEvent event = of_job(FlightKind::kJobProposed);
  event.value = 2;
  event.index = 2;
  file.add(0, 2 * kMillisecond, event, "train");
  event = of_job(FlightKind::kJobMember, 1);
  event.index = 1;
  event.value = 1;
  file.add(0, 3 * kMillisecond, event, "b");
  file.add(1, 4 * kMillisecond, of_job(FlightKind::kOpDone, 0));
  event = of_job(FlightKind::kOpSubmitted, 0);
  event.key = {9, 3};
  event.code = static_cast<uint8_t>(Collective::kAllreduce);
  event.value = 4096;
  file.add(1, 5 * kMillisecond, event, "conv1");
  event = of_job(FlightKind::kReadySent);
  event.key = {9, 3};
  event.index = 1;
  file.add(1, 6 * kMillisecond, event);
  event = of_job(FlightKind::kSliceLanded);
  event.key = {9, 3};
  event.index = 7;
  event.code = 2;
  event.value = 1;
  file.add(1, 7 * kMillisecond, event);
  event = of_job(FlightKind::kJobFailed, 1);
  event.code = static_cast<uint8_t>(Cause::kTrainerDied);
  event.value = 4242;
  file.add(0, 2'007 * kMillisecond, event, std::string("b\0killed by signal 9", 20));
  return file;
}

ToldLife told(const FlightBytes& file, Fate::Is is = Fate::Is::kRunning) {
  auto life = read_flight(file.bytes());
  EXPECT_TRUE(life) << life.error();
  return {*life, {is, life->last_time() + 3'000 * kMillisecond}};
}

Answer shown(const std::vector<ToldLife>& lives, const FlightQuestion& question = {}) {
  const auto answer = show(lives, question, Style{});
  EXPECT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(offence(schema_of("flight-recorder"), document_of(*answer)), "");
  EXPECT_THAT(answer->text, Not(HasSubstr("\x1b")));
  EXPECT_TRUE(answer->text.ends_with('\n'));
  return *answer;
}

TEST(FlightShow, TellsAStory) {
  const Answer answer = shown({told(story())});
  EXPECT_THAT(answer.problems, IsEmpty());
  EXPECT_THAT(answer.text, HasSubstr("node a: gradringd 0.1.0, pid 4711, running; started 2023-"));
  EXPECT_THAT(answer.text, HasSubstr("last event 3 s ago\n"));
  EXPECT_THAT(answer.text, HasSubstr("peer up"));
  EXPECT_THAT(answer.text, HasSubstr("2 ranks on 2 nodes"));
  EXPECT_THAT(answer.text, HasSubstr("rank 1, node b, pid 4242"));
  EXPECT_THAT(answer.text, HasSubstr("trainer died: killed by signal 9\n"));
  EXPECT_THAT(answer.text, HasSubstr("conv1 use 3  rank 0"));
  EXPECT_THAT(answer.text, HasSubstr("allreduce, 4.0 KiB\n"));
  EXPECT_THAT(answer.text, HasSubstr("conv1 use 3  to b"));
  EXPECT_THAT(answer.text, HasSubstr("slice 7 final, hop 1\n"));
  EXPECT_THAT(answer.text, HasSubstr("\n-2.000000"));
  const auto& events = answer.json["lives"][0]["events"];
  ASSERT_EQ(events.size(), 9u);
  EXPECT_EQ(events[0]["wall"], "2023-11-14T22:13:20.000000Z");
  EXPECT_EQ(events[4]["op"], "op 0") << "the first op of a job has a key of zeros";
  EXPECT_EQ(events[5]["rank"], 0);
  EXPECT_EQ(events[5]["job"], "train");
  EXPECT_EQ(events[5]["incarnation"], "abcd0102");
  EXPECT_EQ(events[8]["seconds_before_last"], 0.0);
}

TEST(FlightShow, AMemberWithoutRanksBeginsAtNone) {
  FlightBytes file(64);
  FlightEvent event = of_job(FlightKind::kJobMember, 3);
  event.value = 2;
  file.add(0, 0, event, "a");
  event = of_job(FlightKind::kJobMember);
  event.index = 1;
  file.add(0, kMillisecond, event, "b");
  const std::string text = shown({told(file)}).text;
  EXPECT_THAT(text, HasSubstr("member 0: 2 ranks from rank 3 on\n"));
  EXPECT_THAT(text, HasSubstr("member 1: 0 ranks\n"));
}

TEST(FlightShow, AJobIsFoundByNameAndByIncarnation) {
  for (const char* word : {"train", "abcd0102", "abcd0102030405060708090a0b0c0d0e"}) {
    const Answer answer = shown({told(story())}, {word, 0});
    EXPECT_EQ(answer.json["lives"][0]["events"].size(), 7u) << word;
    EXPECT_THAT(answer.text, Not(HasSubstr("peer up")));
  }
  for (const char* word : {"tra", "abcd", "00000000"}) {
    const auto answer = show({told(story())}, {word, 0}, Style{});
    ASSERT_FALSE(answer) << word;
    EXPECT_EQ(answer.error().code(), Code::kNotFound);
    EXPECT_THAT(answer.error().message(), HasSubstr("of these there is: train"));
  }
}

TEST(FlightShow, TheLastOnesAreTheNewest) {
  const Answer answer = shown({told(story())}, {"", 2});
  const auto& events = answer.json["lives"][0]["events"];
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1]["event"], "job failed");
  EXPECT_THAT(answer.text, HasSubstr("the last 2 of 9 events; --last 0 shows all\n"));
}

TEST(FlightShow, ADeathWithoutALastWordIsAProblemOfThisLifeAlone) {
  ToldLife before = told(story(), Fate::Is::kGone);
  before.before = true;
  const Answer both = shown({before, told(story())});
  EXPECT_THAT(both.problems, IsEmpty());
  EXPECT_THAT(both.text, HasSubstr("the life before: node a"));
  EXPECT_THAT(both.text, HasSubstr("died without a last word"));
  EXPECT_EQ(both.json["lives"][0]["state"], "died");

  const Answer dead = shown({told(story(), Fate::Is::kGone)});
  EXPECT_THAT(dead.problems, ElementsAre(HasSubstr("node a (pid 4711) died without a last word")));

  FlightBytes ended = story();
  ended.add(0, 3'000 * kMillisecond, event_of(FlightKind::kDaemonStopped));
  const Answer good = shown({told(ended, Fate::Is::kGone)});
  EXPECT_THAT(good.problems, IsEmpty());
  EXPECT_EQ(good.json["lives"][0]["state"], "stopped");

  EXPECT_EQ(shown({told(story(), Fate::Is::kUnknown)}).json["lives"][0]["state"], "unknown");
}

TEST(FlightShow, AFileOfAnotherStartOfTheMachineHasNoAge) {
  ToldLife old = told(story());
  old.fate = {Fate::Is::kGone, std::nullopt};
  const Answer answer = shown({old});
  EXPECT_THAT(answer.text, HasSubstr("last event before the machine was started anew"));
  EXPECT_FALSE(answer.json["lives"][0].contains("last_event_age_seconds"));
}

TEST(FlightShow, EveryKindIsToldAndAStrangeOneInNumbers) {
  for (uint16_t number = 2; number < 200; ++number) {
    FlightBytes file;
    FlightEvent event = of_job(static_cast<FlightKind>(number), 3);
    event.code = 255;
    event.index = 6;
    event.value = 77;
    event.key = {~uint64_t{0}, ~uint64_t{0}};
    file.add(1, 5, event, std::string("name\x1b[31m\0words\x1b", 16));
    const Answer answer = shown({told(file)});
    const std::string what = answer.json["lives"][0]["events"][0]["event"];
    if (name_of(event.kind).empty()) {
      EXPECT_EQ(what, "event " + std::to_string(number));
      EXPECT_THAT(answer.text, HasSubstr("value 77"));
    } else {
      EXPECT_EQ(what, name_of(event.kind));
    }
  }
}

TEST(FlightShow, TimesMayBeAnything) {
  FlightBytes file;
  file.header.wall_offset = std::numeric_limits<int64_t>::max();
  file.add(0, std::numeric_limits<int64_t>::min(), event_of(FlightKind::kDraining));
  file.add(1, std::numeric_limits<int64_t>::max(), event_of(FlightKind::kDraining));
  shown({{*read_flight(file.bytes()), {Fate::Is::kRunning, -5}}});
}

TEST(FlightShow, AnEmptyRecorderSaysSo) {
  EXPECT_THAT(shown({told(FlightBytes())}).text, HasSubstr("no events\n"));
}

}  // namespace
}  // namespace gradring::tools
