// What the kernel tells of ports: by a libibverbs that is played, and by interfaces of this
// machine.
#include "transport/machine/port_watch.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/resource.h>

#include <chrono>

namespace gradring::machine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int kSoonMs = 20'000;  // for what takes no time on a machine that has some
constexpr int kPeriodMs = 50;

// Loaded before anybody asks for a library of its name, so that it is that library.
class FakeVerbs {
 public:
  FakeVerbs() : library_(dlopen(FAKE_VERBS, RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(library_, nullptr) << dlerror();
    find("fake_verbs_tell", &tell);
    find("fake_verbs_take_away", &take_away);
    find("fake_verbs_bring_back", &bring_back);
    find("fake_verbs_unacknowledged", &unacknowledged);
  }
  void (*tell)(int, int) = nullptr;
  void (*take_away)() = nullptr;
  void (*bring_back)() = nullptr;
  int (*unacknowledged)() = nullptr;

 private:
  template <typename Function>
  void find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library_, name));
    EXPECT_NE(*function, nullptr) << name;
  }
  void* const library_;
};
FakeVerbs& fake() {
  static FakeVerbs library;
  return library;
}

class Watched : public testing::Test {
 protected:
  // `period_ms` long: nothing is told but by events.
  explicit Watched(int period_ms = 1'000'000)
      : watch_((fake(), PortWatchOptions{{{"fake0", 1}, {"fake0", 2}}, period_ms})) {}
  ~Watched() override {
    fake().bring_back();
    for (const int port : {1, 2}) fake().tell(IBV_EVENT_PORT_ACTIVE, port);
  }
  // The next that is told.
  std::vector<PortChange> next(const PortId& port = {"fake0", 1}) {
    pollfd item{watch_.event_fd(), POLLIN, 0};
    std::vector<PortChange> changes;
    while (changes.empty() && poll(&item, 1, kSoonMs) == 1) {
      for (const PortNews& news : watch_.take()) {
        EXPECT_GT(news.at, 0);
        if (news.port == port) changes.push_back(news.change);
      }
    }
    EXPECT_FALSE(changes.empty()) << "nothing was told";
    return changes;
  }
  void wait_open() {
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + std::chrono::milliseconds(kSoonMs);
    // Told again and again until somebody listens.
    while (Clock::now() < deadline) {
      fake().tell(IBV_EVENT_SM_CHANGE, 2);
      pollfd item{watch_.event_fd(), POLLIN, 0};
      if (poll(&item, 1, 10) == 1) break;
    }
    while (!watch_.take().empty()) poll(nullptr, 0, 20);
  }

  // It tells first, and acknowledges then.
  static int unacknowledged_soon() {
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + std::chrono::milliseconds(kSoonMs);
    while (fake().unacknowledged() != 0 && Clock::now() < deadline) poll(nullptr, 0, 1);
    return fake().unacknowledged();
  }

  PortWatch watch_;
};

TEST_F(Watched, APortThatGoesDownAndComesBackIsToldAtOnce) {
  wait_open();
  fake().tell(IBV_EVENT_PORT_ERR, 1);
  EXPECT_THAT(next(), ElementsAre(PortChange::kDown));
  fake().tell(IBV_EVENT_PORT_ACTIVE, 1);
  EXPECT_THAT(next(), ElementsAre(PortChange::kActive));
  EXPECT_EQ(unacknowledged_soon(), 0);
}

TEST_F(Watched, OtherChangesAreToldByName) {
  wait_open();
  constexpr std::pair<int, PortChange> kTold[] = {
      {IBV_EVENT_GID_CHANGE, PortChange::kAddresses},
      {IBV_EVENT_LID_CHANGE, PortChange::kLid},
      {IBV_EVENT_PKEY_CHANGE, PortChange::kPartitions},
      {IBV_EVENT_SM_CHANGE, PortChange::kSubnetManager},
      {IBV_EVENT_CLIENT_REREGISTER, PortChange::kReregistration}};
  for (const auto& [type, change] : kTold) {
    fake().tell(IBV_EVENT_QP_FATAL, 1);  // of a queue, which is not ours
    fake().tell(type, 1);
    EXPECT_THAT(next(), ElementsAre(change)) << name_of(change);
  }
  EXPECT_EQ(unacknowledged_soon(), 0);
}

TEST_F(Watched, AStormOfTheSameIsToldOnce) {
  wait_open();
  for (int i = 0; i < 50; ++i) fake().tell(IBV_EVENT_GID_CHANGE, 1);
  fake().tell(IBV_EVENT_PORT_ERR, 1);
  ASSERT_EQ(unacknowledged_soon(), 0);
  EXPECT_THAT(next(), ElementsAre(PortChange::kAddresses, PortChange::kDown));
}

TEST_F(Watched, ADeviceThatFailedIsGoneWithAllItsPorts) {
  wait_open();
  fake().tell(IBV_EVENT_DEVICE_FATAL, 0);
  std::vector<PortNews> all;
  while (all.size() < 2) {
    pollfd item{watch_.event_fd(), POLLIN, 0};
    ASSERT_EQ(poll(&item, 1, kSoonMs), 1);
    for (const PortNews& news : watch_.take()) all.push_back(news);
  }
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].change, PortChange::kGone);
  EXPECT_EQ(all[0].port.number + all[1].port.number, 3u);
}

class LookedAt : public Watched {
 protected:
  LookedAt() : Watched(kPeriodMs) {}
};

// Nor does the thread spin on a descriptor that is broken.
TEST_F(LookedAt, ADeviceThatIsTakenAwayIsGoneAndUsedAgainWhenItIsBack) {
  wait_open();
  fake().take_away();
  EXPECT_THAT(next(), ElementsAre(PortChange::kGone));
  poll(nullptr, 0, 100);
  watch_.take();  // the other port
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  poll(nullptr, 0, 500);
  getrusage(RUSAGE_SELF, &after);
  const auto seconds = [](const rusage& u) {
    return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
  };
  EXPECT_LT(seconds(after) - seconds(before), 0.25);
  EXPECT_THAT(watch_.take(), IsEmpty()) << "it is told once";
  fake().bring_back();
  EXPECT_THAT(next(), ElementsAre(PortChange::kActive));
  fake().tell(IBV_EVENT_PORT_ERR, 1);
  EXPECT_THAT(next(), ElementsAre(PortChange::kDown));
}

TEST(PortWatch, AnInterfaceThatIsNotThereIsGone) {
  PortWatch watch({{{"no-such-thing", 0}, {"lo", 0}}});
  pollfd item{watch.event_fd(), POLLIN, 0};
  ASSERT_EQ(poll(&item, 1, kSoonMs), 1);
  const auto news = watch.take();
  ASSERT_THAT(news, SizeIs(1)) << "and lo works";
  EXPECT_EQ(news[0].port.device, "no-such-thing");
  EXPECT_EQ(news[0].change, PortChange::kGone);
}

TEST(PortWatch, RatesAreOfTheLastTwoReadings) {
  PortReading reading;
  reading.last[PortCounter::kRnr] = 30;
  EXPECT_EQ(rate_of(reading, PortCounter::kRnr), 0) << "of one reading nobody can say";
  reading.before[PortCounter::kRnr] = 10;
  reading.before_at = 1'000'000'000;
  reading.last_at = 6'000'000'000;
  EXPECT_EQ(rate_of(reading, PortCounter::kRnr), 4);
  EXPECT_EQ(rate_of(reading, PortCounter::kErrors), 0) << "not counted";
  reading.before[PortCounter::kRnr] = 40;
  EXPECT_EQ(rate_of(reading, PortCounter::kRnr), 0) << "the driver was started anew";
}

}  // namespace
}  // namespace gradring::machine
