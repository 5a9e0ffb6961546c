// A probe on a link of a known rate and delay, in virtual time.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "daemon/core/probe_receiver.h"
#include "daemon/core/probe_sender.h"

namespace gradring::core {
namespace {

constexpr uint32_t kBytes = 256 << 10;
constexpr double kGigabit = 125e6;  // bytes a second

// Messages stand in line for a wire that takes one after the other, and an echo comes back a delay
// after each has come. Others' bytes go by the same wire.
class Link {
 public:
  Link(double bytes_per_second, Time delay) : rate_(bytes_per_second), delay_(delay) {}
  // Of each second, this share belongs to a job.
  double job_share = 0;
  bool broken = false;

  size_t most_waiting() const { return most_waiting_; }

  // Runs until it is over; returns when that was.
  Time run(ProbeSender* probe, uint32_t bytes, Time now = 0) {
    probe->granted(now);
    while (!probe->over()) {
      probe->tick(now);
      while (probe->may_send(now)) {
        probe->sent(now);
        enter(bytes, now);
      }
      Time next = probe->next_deadline();
      if (!echoes_.empty()) next = std::min(next, echoes_.front().comes);
      now = std::max(now, next);
      while (!echoes_.empty() && echoes_.front().comes <= now) {
        const Echo echo = echoes_.front();
        echoes_.pop_front();
        probe->echoed(echo.body, now);
      }
      EXPECT_LT(now, 1000 * kSecond) << "it never ends";
      if (now >= 1000 * kSecond) break;
    }
    return now;
  }

 private:
  struct Echo {
    Time comes = 0;
    ProbeBody body;
  };
  void enter(uint32_t bytes, Time now) {
    if (broken) return;
    const double own_rate = rate_ * (1 - job_share);
    free_ = std::max(free_, now) + static_cast<Time>(bytes / own_rate * 1e9);
    ProbeBody body;
    body.kind = ProbeKind::kEcho;
    body.count = ++count_;
    body.at = static_cast<uint64_t>(free_ + kClockOffset);
    body.jobs_bytes = static_cast<uint64_t>(static_cast<double>(free_) / 1e9 * rate_ * job_share);
    echoes_.push_back({free_ + delay_, body});
    most_waiting_ = std::max(most_waiting_, echoes_.size());
  }

  static constexpr Time kClockOffset = 12345 * kSecond;  // the receiver's is another clock
  const double rate_;
  const Time delay_;
  Time free_ = 0;  // when the wire has taken all that stands in line
  uint64_t count_ = 0;
  std::deque<Echo> echoes_;
  size_t most_waiting_ = 0;
};

double rate_of(const ProbeFigures& figures) {
  return static_cast<double>(figures.bytes) * 1e9 / static_cast<double>(figures.time);
}

TEST(Probe, FindsTheRateWhateverItAndTheDelayAre) {
  for (const double rate : {0.05, 0.2, 1.0, 10.0, 100.0}) {
    for (const Time delay : {20'000, 200'000, 10'000'000, 80'000'000}) {
      ProbeSender probe(probe_plan(false, kBytes, kSecond, false), 0);
      Link(rate * kGigabit, delay).run(&probe, kBytes);
      EXPECT_EQ(probe.fault(), "");
      if (rate * static_cast<double>(delay) > 5e6)
        continue;  // more than may be under way, or 64 MiB
      // Where one message alone takes longer than any is to wait, the window is coarse.
      const double near = kBytes / (rate * kGigabit) > 0.025 ? 0.12 : 0.01;
      EXPECT_NEAR(rate_of(probe.figures()) / (rate * kGigabit), 1, near) << rate << " " << delay;
    }
  }
}

TEST(Probe, LetsNoMoreStandInLineThanTakesAMoment) {
  ProbeSender probe(probe_plan(false, kBytes, kSecond, false), 0);
  Link link(kGigabit, 200'000);
  link.run(&probe, kBytes);
  const double longest = static_cast<double>(link.most_waiting()) * kBytes / kGigabit;
  EXPECT_LT(longest, 0.06) << "seconds of the wire";
  EXPECT_GT(longest, 0.02);
}

TEST(Probe, EndsSoonAfterItsTime) {
  ProbeSender probe(probe_plan(false, kBytes, 2 * kSecond, false), 0);
  const Time took = Link(kGigabit, 200'000).run(&probe, kBytes);
  EXPECT_GT(took, 2400 * kMillisecond);  // a fifth of it to warm up
  EXPECT_LT(took, 2500 * kMillisecond);
  EXPECT_NEAR(static_cast<double>(probe.figures().time) / 1e9, 2, 0.1);
}

TEST(Probe, BesideJobsATenthOfTheTimeIsUsedAndTheirsCountsToo) {
  const ProbePlan plan = probe_plan(false, kBytes, 5 * kSecond, true);
  EXPECT_EQ(plan.trains, 5u);
  EXPECT_LT(plan.train + plan.warm_up, (plan.train + plan.warm_up + plan.pause) / 8);
  ProbeSender probe(plan, 0);
  Link link(kGigabit, 200'000);
  link.job_share = 0.5;
  link.run(&probe, kBytes);
  const ProbeFigures figures = probe.figures();
  EXPECT_NEAR(rate_of(figures) / kGigabit, 0.5, 0.02);
  const auto all = static_cast<double>(figures.bytes + figures.jobs_bytes);
  EXPECT_NEAR(all * 1e9 / static_cast<double>(figures.time) / kGigabit, 1, 0.02);
}

TEST(Probe, TellsOfRoundTripsOneAtATime) {
  ProbeSender probe(probe_plan(true, 0, kSecond, false), 0);
  Link link(kGigabit, 48'000);
  link.run(&probe, 0);
  EXPECT_EQ(link.most_waiting(), 1u);
  const ProbeFigures figures = probe.figures();
  EXPECT_NEAR(static_cast<double>(figures.round_trips), 1e9 / 48'000, 2);
  EXPECT_EQ(figures.min, 48'000);
  EXPECT_EQ(figures.median, 48'000);
  EXPECT_EQ(figures.p99, 48'000);
}

TEST(Probe, RoundTripsAreBounded) {
  ProbeSender probe(probe_plan(true, 0, kSecond, false), 0);
  Link(kGigabit, 1000).run(&probe, 0);
  EXPECT_EQ(probe.fault(), "");
  EXPECT_EQ(probe.figures().round_trips, 200'000u);
}

TEST(Probe, OrderStatisticsAreOfAllRoundTrips) {
  ProbeSender probe(probe_plan(true, 0, kSecond, false), 0);
  probe.granted(0);
  Time now = kSecond / 2;  // past the warming up
  for (Time took = 100; took >= 1; --took) {
    ASSERT_TRUE(probe.may_send(now));
    probe.sent(now);
    now += took * 1000;
    probe.echoed({.kind = ProbeKind::kEcho}, now);
  }
  const ProbeFigures figures = probe.figures();
  EXPECT_EQ(figures.round_trips, 100u);
  EXPECT_EQ(figures.min, 1000);
  EXPECT_EQ(figures.median, 51'000);
  EXPECT_EQ(figures.p99, 99'000);
}

TEST(Probe, WhoDoesNotAnswerIsNotWaitedForForLong) {
  const ProbePlan plan = probe_plan(false, kBytes, kSecond, false);
  ProbeSender unanswered(plan, 0);
  EXPECT_FALSE(unanswered.may_send(0));
  unanswered.tick(unanswered.next_deadline());
  EXPECT_EQ(unanswered.fault(), "it did not answer");

  ProbeSender swallowed(plan, 0);
  Link link(kGigabit, 200'000);
  link.broken = true;
  EXPECT_LE(link.run(&swallowed, kBytes), probe_time_max(plan));
  EXPECT_EQ(swallowed.fault(), "what was sent did not arrive");
}

TEST(Probe, TooLittleToTellIsNoFigure) {
  ProbeSender probe(probe_plan(false, kBytes, 100 * kMillisecond, false), 0);
  Link(1e5, 200'000).run(&probe, kBytes);  // 2.6 s for a message
  EXPECT_FALSE(probe.fault().empty());
}

TEST(Probe, WhatIsToldAfterItsEndChangesNothing) {
  ProbeSender probe(probe_plan(false, kBytes, kSecond, false), 0);
  probe.fail("the connection broke");
  probe.granted(1);
  probe.echoed({.kind = ProbeKind::kEcho, .count = 1}, 2);
  probe.fail("and again");
  probe.tick(100 * kSecond);
  EXPECT_EQ(probe.fault(), "the connection broke");
  EXPECT_FALSE(probe.may_send(3));
}

class ProbeReceiverTest : public testing::Test {
 protected:
  ProbeRefusal ask(uint32_t peer, uint64_t number, bool forced = false, bool jobs = false,
                   bool draining = false, Time now = 0) {
    ProbeBody body;
    body.probe = number;
    body.forced = forced;
    return receiver_.asked(peer, body, jobs, draining, false, now);
  }
  ProbeReceiver receiver_;
};

TEST_F(ProbeReceiverTest, TakesOneAtATime) {
  EXPECT_EQ(ask(1, 7), ProbeRefusal::kNone);
  EXPECT_TRUE(receiver_.takes(1, 7));
  EXPECT_FALSE(receiver_.takes(2, 7));
  EXPECT_EQ(receiver_.arrived(1), 1u);
  EXPECT_EQ(receiver_.arrived(2), 2u);
  EXPECT_EQ(ask(2, 1), ProbeRefusal::kBusy);
  receiver_.ended(2, 1);
  EXPECT_TRUE(receiver_.takes(1, 7)) << "it was another's end";
  receiver_.ended(1, 7);
  EXPECT_EQ(ask(2, 1), ProbeRefusal::kNone);
  receiver_.lost(2);
  EXPECT_FALSE(receiver_.busy(0));
}

TEST_F(ProbeReceiverTest, OneThatFellSilentMakesWay) {
  EXPECT_EQ(ask(1, 7), ProbeRefusal::kNone);
  EXPECT_EQ(ask(2, 1, false, false, false, kSecond), ProbeRefusal::kBusy);
  EXPECT_EQ(ask(2, 1, false, false, false, 10 * kSecond), ProbeRefusal::kNone);
}

TEST_F(ProbeReceiverTest, JobsAndTheEndOfTheDaemonComeFirst) {
  EXPECT_EQ(ask(1, 7, false, true), ProbeRefusal::kJobs);
  EXPECT_EQ(ask(1, 7, true, true, true), ProbeRefusal::kDraining);
  EXPECT_FALSE(receiver_.busy(0));
  EXPECT_EQ(ask(1, 7, true, true), ProbeRefusal::kNone);
}

}  // namespace
}  // namespace gradring::core
