// For whom a daemon that drains waits before it is gone.
#include "daemon/control/queries/drain_queries.h"

#include <gtest/gtest.h>

#include <limits>

namespace gradring::daemon {
namespace {

using Phase = DrainState::Phase;
using Order = wire::DrainOrder;

// As far with its drain as it was told to be.
struct Daemon : Drainable {
  void drain(std::optional<core::Time> /*timeout*/) override { state.phase = drains_to; }
  void serve_again() override { state.phase = Phase::kServing; }
  DrainState drain_state() const override { return state; }

  Phase drains_to = Phase::kDraining;
  DrainState state;
};

class DrainQueriesTest : public testing::Test {
 protected:
  static constexpr core::Time kStart = 1000 * core::kSecond;
  static constexpr core::Time kMoment = 100 * core::kMillisecond;
  static constexpr core::Time kLong = 3 * core::kSecond;

  // Root, if not told, who asks by a daemon that is not there: no answer is sent.
  void ask(Order::Action action, core::Time now, const std::string& by = "far", uint32_t uid = 0) {
    wire::DrainOrder order;
    order.set_action(action);
    queries_.ask({.node = by, .uid = uid}, order, now);
  }

  zmq::context_t context_;
  Peers peers_{&context_, Config{}, OwnIdentity{}, nullptr, nullptr};
  Daemon daemon_;
  DrainQueries queries_{"here", Answers{nullptr, &peers_}, &daemon_};
};

TEST_F(DrainQueriesTest, WhoHeardThatItStopsAsksOnceMore) {
  daemon_.drains_to = Phase::kStopping;
  ask(Order::START, kStart);
  EXPECT_TRUE(queries_.owes_its_end(kStart + kMoment)) << "the answer may be on its way";
  ask(Order::LOOK, kStart + kMoment);
  EXPECT_FALSE(queries_.owes_its_end(kStart + kMoment)) << "it has come";
}

TEST_F(DrainQueriesTest, NobodyCanKeepItFromStopping) {
  daemon_.drains_to = Phase::kStopping;
  ask(Order::START, kStart);
  EXPECT_FALSE(queries_.owes_its_end(kStart + kLong));
  ask(Order::START, kStart + kLong);
  EXPECT_FALSE(queries_.owes_its_end(kStart + kLong));
}

TEST_F(DrainQueriesTest, WhoWaitsHearsItsEndAndAsksOnceMore) {
  ask(Order::START, kStart);
  ask(Order::LOOK, kStart + kMoment);
  daemon_.state.phase = Phase::kStopping;
  queries_.over(kStart + kLong);
  EXPECT_TRUE(queries_.owes_its_end(kStart + kLong + kMoment));
  ask(Order::LOOK, kStart + kLong + kMoment);
  EXPECT_FALSE(queries_.owes_its_end(kStart + kLong + kMoment));
}

TEST_F(DrainQueriesTest, AStrangerWhoAsksOftenKeepsNobodyFromIt) {
  ask(Order::START, kStart);
  ask(Order::LOOK, kStart);
  for (int i = 0; i < 1000; ++i) ask(Order::LOOK, kStart, "far", 1000);
  ask(Order::LOOK, kStart, "other");
  daemon_.state.phase = Phase::kStopping;
  queries_.over(kStart + kMoment);
  for (int i = 0; i < 1000; ++i) ask(Order::LOOK, kStart + kMoment, "far", 1000);
  EXPECT_TRUE(queries_.owes_its_end(kStart + kMoment)) << "root's second question had no place";
  ask(Order::LOOK, kStart + kMoment, "other");
  EXPECT_FALSE(queries_.owes_its_end(kStart + kMoment));
}

TEST_F(DrainQueriesTest, EachWhoHeardItsEndAsksOnceMore) {
  for (const char* by : {"far", "far", "other"}) ask(Order::LOOK, kStart, by);
  EXPECT_FALSE(queries_.owes_its_end(kStart)) << "it does not drain yet";
  ask(Order::START, kStart);
  for (const char* by : {"far", "far", "other"}) ask(Order::LOOK, kStart + kMoment, by);
  daemon_.state.phase = Phase::kStopping;
  queries_.over(kStart + kLong);
  for (const char* by : {"other", "far", "far"}) {
    EXPECT_TRUE(queries_.owes_its_end(kStart + kLong + kMoment)) << "one has not asked yet";
    ask(Order::LOOK, kStart + kLong + kMoment, by);
  }
  EXPECT_FALSE(queries_.owes_its_end(kStart + kLong + kMoment));
}

TEST_F(DrainQueriesTest, WhoAsksForItOverAndOverIsForgottenInTime) {
  for (int i = 0; i < 1000; ++i) ask(Order::START, kStart);
  daemon_.state.phase = Phase::kStopping;
  EXPECT_TRUE(queries_.owes_its_end(kStart + kMoment));
  queries_.tick(kStart + kLong);
  EXPECT_FALSE(queries_.owes_its_end(kStart + kLong));
  EXPECT_EQ(queries_.next_deadline(), std::numeric_limits<core::Time>::max());
}

TEST_F(DrainQueriesTest, WhoNeverAsksAgainLeavesNothingToWakeUpFor) {
  ask(Order::START, kStart);
  ask(Order::LOOK, kStart);
  core::Time now = kStart;
  int turns = 0;
  while (queries_.next_deadline() != std::numeric_limits<core::Time>::max()) {
    ASSERT_LT(++turns, 5) << "it would be asked without a pause";
    now = std::max(now, queries_.next_deadline());
    queries_.tick(now);
  }
  EXPECT_LT(now, kStart + kLong);
}

}  // namespace
}  // namespace gradring::daemon
