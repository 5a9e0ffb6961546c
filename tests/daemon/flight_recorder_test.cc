// What the daemon writes and what gradringctl reads of it, in one file.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <thread>

#include "daemon/fd.h"
#include "daemon/flight/recorder.h"
#include "tests/daemon/scratch.h"
#include "tools/ctl/flight/fate.h"
#include "tools/ctl/flight/file.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;
using tools::Fate;
using tools::fate_of;
using tools::FlightLife;

constexpr uint64_t kRing = 4096;  // bytes: 64 events

FlightEvent numbered(uint64_t value) {
  FlightEvent event;
  event.kind = FlightKind::kOpDone;
  event.value = value;
  return event;
}

FlightLife life_in(const std::string& path) {
  auto life = tools::read_flight_file(path);
  EXPECT_TRUE(life) << life.error().message();
  return life ? *life : FlightLife{};
}

class FlightRecorderTest : public testing::Test {
 protected:
  void start(FlightRecorder& recorder) {
    ASSERT_TRUE(recorder.open(scratch_.directory(), "a", kRing).ok());
    ASSERT_TRUE(recorder.publish().ok());
  }
  const Scratch scratch_;
  const std::string path_ = scratch_.path(kFlightFile);
  const std::string before_ = scratch_.path(kFlightFileBefore);
};

TEST_F(FlightRecorderTest, KeepsTheNewestEventsOfEachThread) {
  FlightRecorder recorder;
  start(recorder);
  const core::Time begin = monotonic_now();
  recorder.control()->record(numbered(7));
  for (uint64_t i = 1; i <= 1000; ++i) recorder.data()->record(numbered(i));
  const FlightLife life = life_in(path_);
  ASSERT_EQ(life.entries.size(), 1u + 64u);
  EXPECT_EQ(life.overwritten, 1000u - 64u);
  EXPECT_EQ(life.entries[0].event.value, 7u) << "the busy thread must not push it out";
  for (uint64_t i = 1; i <= 64; ++i) {
    EXPECT_EQ(life.entries[i].event.value, 1000 - 64 + i);
    EXPECT_EQ(life.entries[i].ring, 1u);
    EXPECT_GE(life.entries[i].event.time, begin);
    EXPECT_LE(life.entries[i].event.time, monotonic_now());
  }
}

TEST_F(FlightRecorderTest, SaysWhoWroteIt) {
  FlightRecorder recorder;
  start(recorder);
  const FlightLife life = life_in(path_);
  EXPECT_EQ(life.header.pid, getpid());
  EXPECT_EQ(text_in(life.header.node), "a");
  EXPECT_EQ(fate_of(life.header).is, Fate::Is::kRunning);
  EXPECT_GE(*fate_of(life.header).now, life.header.started);

  FlightHeader other = life.header;
  ++other.pid_start;  // the pid was taken by another process
  EXPECT_EQ(fate_of(other).is, Fate::Is::kGone);
  other = life.header;
  ++other.pid_space;
  EXPECT_EQ(fate_of(other).is, Fate::Is::kUnknown);
  other = life.header;
  other.machine_boot[0] ^= 1;
  EXPECT_EQ(fate_of(other).is, Fate::Is::kGone);
  EXPECT_FALSE(fate_of(other).now.has_value());
}

TEST_F(FlightRecorderTest, AClockThatIsSetLaterHoldsForAll) {
  FlightRecorder recorder;
  start(recorder);
  const int64_t as_set = life_in(path_).header.wall_offset;
  const int64_t wrong = as_set - 3600 * core::kSecond;
  {
    const Fd file(open(path_.c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(pwrite(file.get(), &wrong, sizeof wrong, offsetof(FlightHeader, wall_offset)),
              ssize_t{sizeof wrong});
  }
  ASSERT_EQ(life_in(path_).header.wall_offset, wrong);
  recorder.follow_wall_clock();
  EXPECT_NEAR(static_cast<double>(life_in(path_).header.wall_offset - as_set), 0,
              static_cast<double>(60 * core::kSecond));
}

TEST_F(FlightRecorderTest, TextOfAnyLengthComesBackAsFarAsItFits) {
  FlightRecorder recorder;
  start(recorder);
  recorder.control()->record(numbered(1), "name", "words");
  recorder.control()->record(numbered(2), "", std::string(31, 'w'));
  recorder.control()->record(numbered(3), std::string(32, 'n'));
  recorder.control()->record(numbered(4), std::string(10'000, 'n'), "too late");
  recorder.control()->record(numbered(5), "n", std::string(10'000, 'w'));
  recorder.control()->record(numbered(6), {}, "words alone");
  const FlightLife life = life_in(path_);
  ASSERT_EQ(life.entries.size(), 6u);
  EXPECT_EQ(life.entries[5].name, "");
  EXPECT_EQ(life.entries[5].words, "words alone");
  EXPECT_EQ(life.entries[0].name, "name");
  EXPECT_EQ(life.entries[0].words, "words");
  EXPECT_EQ(life.entries[1].name, "");
  EXPECT_EQ(life.entries[1].words, std::string(31, 'w'));
  EXPECT_EQ(life.entries[2].name, std::string(32, 'n'));
  EXPECT_EQ(life.entries[3].name, std::string(320, 'n'));
  EXPECT_EQ(life.entries[3].words, "");
  EXPECT_EQ(life.entries[4].words, std::string(318, 'w'));
}

TEST_F(FlightRecorderTest, TimeNeverGoesBackWithinARing) {
  FlightRecorder recorder;
  start(recorder);
  FlightRing& ring = *recorder.data();
  ring.turn(1000);
  EXPECT_EQ(ring.now(), 1000);
  ring.record_at(numbered(1), ring.now());
  ring.record_at(numbered(2), 3000);
  ring.turn(2000);  // began before the event, and was told late
  EXPECT_EQ(ring.now(), 3000);
  ring.record_at(numbered(3), 2500, "name");
  ring.record(numbered(4));
  const core::Time looked = ring.now();
  EXPECT_GT(looked, 3000);
  ring.record_at(numbered(5), ring.now());
  const FlightLife life = life_in(path_);
  std::vector<int64_t> times;
  for (const tools::FlightEntry& entry : life.entries) times.push_back(entry.event.time);
  EXPECT_EQ(times, (std::vector<int64_t>{1000, 3000, 3000, looked, looked}));
}

TEST(FlightRing, ALapEndsBeforeWhatWasToldInItIsOverwritten) {
  std::array<FlightEvent, 64> always{}, more{};
  FlightRing ring(FlightSlots(always.data(), always.size()));
  const uint64_t first = ring.lap();
  for (uint64_t i = 0; i < 15; ++i) ring.record(numbered(i));
  EXPECT_EQ(ring.lap(), first);
  ring.record(numbered(15));
  EXPECT_EQ(ring.lap(), first + 1);
  FlightSlots short_trace(more.data(), 16);
  ring.trace(&short_trace);
  EXPECT_EQ(ring.lap(), first + 2) << "in a trace that begins nothing has been told";
  for (uint64_t i = 0; i < 4; ++i) ring.record(numbered(i));
  EXPECT_EQ(ring.lap(), first + 3) << "of the shorter memory";
}

TEST(FlightRing, ThatRecordsNothingKeepsNoTime) {
  FlightRing::off()->turn(1000);  // all threads share it
  FlightRing::off()->record_at({}, 1000);
  EXPECT_EQ(FlightRing::off()->now(), 0);
}

// The reader copies the ring while its writer goes round it some thousand times.
TEST_F(FlightRecorderTest, AReaderSeesWholeEventsOnlyWhileTheyAreWritten) {
  FlightRecorder recorder;
  start(recorder);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (uint64_t i = 1; !done; ++i) {
      FlightEvent event = numbered(i);
      event.key = {i, i};
      event.epoch = i;
      event.index = static_cast<uint32_t>(i);
      recorder.data()->record(event);
    }
  });
  size_t seen = 0;
  // The writer may take a while to get a processor.
  for (int round = 0; round < 300 || (seen == 0 && round < 1'000'000); ++round) {
    for (const auto& [event, ring, name, words] : life_in(path_).entries) {
      ASSERT_EQ(event.sequence, event.value);
      ASSERT_EQ(event.key, (OpKey{event.value, event.value}));
      ASSERT_EQ(event.epoch, event.value);
      ASSERT_EQ(event.index, static_cast<uint32_t>(event.value));
      ++seen;
    }
  }
  done = true;
  writer.join();
  EXPECT_GT(seen, 0u);
}

TEST_F(FlightRecorderTest, SurvivesAKill) {
  const pid_t child = fork();
  if (child == 0) {
    FlightRecorder recorder;
    start(recorder);
    recorder.data()->record(numbered(42));
    kill(getpid(), SIGKILL);
  }
  siginfo_t ended{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  const FlightLife life = life_in(path_);
  ASSERT_EQ(life.entries.size(), 1u);
  EXPECT_EQ(life.entries[0].event.value, 42u);
  EXPECT_EQ(fate_of(life.header).is, Fate::Is::kGone) << "a zombie does not run";
  waitpid(child, nullptr, 0);
  EXPECT_EQ(fate_of(life.header).is, Fate::Is::kGone);
}

TEST_F(FlightRecorderTest, TheLifeBeforeIsKept) {
  for (const uint64_t life : {1, 2, 3}) {
    FlightRecorder recorder;
    start(recorder);
    recorder.control()->record(numbered(life));
  }
  EXPECT_EQ(life_in(path_).entries.at(0).event.value, 3u);
  EXPECT_EQ(life_in(before_).entries.at(0).event.value, 2u);
}

TEST_F(FlightRecorderTest, AStartThatFailsPushesNothingOut) {
  {
    FlightRecorder recorder;
    start(recorder);
    recorder.control()->record(numbered(1));
  }
  {
    FlightRecorder recorder;
    ASSERT_TRUE(recorder.open(scratch_.directory(), "a", kRing).ok());
    recorder.control()->record(numbered(2));
  }
  EXPECT_EQ(life_in(path_).entries.at(0).event.value, 1u);
  EXPECT_NE(access(before_.c_str(), F_OK), 0);
  EXPECT_NE(access((path_ + ".new").c_str(), F_OK), 0);
}

TEST_F(FlightRecorderTest, OnlyTheDaemonsUserAndGroupMayReadIt) {
  for (const mode_t mask : {mode_t{0}, mode_t{077}}) {
    FlightRecorder recorder;
    const mode_t old = umask(mask);
    start(recorder);
    umask(old);
    struct stat status {};
    ASSERT_EQ(stat(path_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0640u);
  }
}

TEST_F(FlightRecorderTest, AllItsBlocksAreTakenAtTheStart) {
  FlightRecorder recorder;
  start(recorder);
  struct stat status {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_GE(status.st_blocks * 512, status.st_size);
}

TEST_F(FlightRecorderTest, WithoutRoomItSaysSoAndRecordsNothing) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit little{kRing, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &little);
  FlightRecorder recorder;
  const Status status = recorder.open(scratch_.directory(), "a", kRing);
  setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, old);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr(path_));
  recorder.control()->record(numbered(1));
  recorder.data()->record(numbered(1), "name", "words");
  EXPECT_TRUE(recorder.publish().ok());
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
  EXPECT_NE(access((path_ + ".new").c_str(), F_OK), 0);
}

TEST_F(FlightRecorderTest, SwitchedOffItKeepsTheLifeBeforeAndNothingElse) {
  {
    FlightRecorder recorder;
    start(recorder);
  }
  FlightRecorder off;
  ASSERT_TRUE(off.open(scratch_.directory(), "a", 0).ok());
  ASSERT_TRUE(off.publish().ok());
  off.control()->record(numbered(1), "name");
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
  EXPECT_EQ(access(before_.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace gradring::daemon
