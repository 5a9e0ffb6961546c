// The faults that a Fabric injects, and only those.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/transport/conformance.h"
#include "transport/loopback/fabric.h"

namespace gradring::transport::conformance {
namespace {

class LoopbackFaults : public testing::Test {
 protected:
  LoopbackFaults() { meet(fabric_, a_, b_); }

  static void meet(Fabric&, Node& a, Node& b) {
    ASSERT_TRUE(a.connect(2, b).ok());
    ASSERT_TRUE(b.connect(1, a).ok());
  }
  void send(uint64_t from, uint64_t to, size_t bytes = 100) {
    const auto payload = pattern(bytes, 1);
    for (uint64_t number = from; number <= to; ++number) {
      ASSERT_TRUE(a_.transport->send(2, header_of(number), payload, number).ok()) << number;
    }
  }
  void turn(int times) {
    for (int i = 0; i < times; ++i) {
      a_.turn();
      b_.turn();
    }
  }
  static std::vector<uint64_t> numbers(const Node& node) {
    std::vector<uint64_t> all;
    for (const auto& message : node.seen.messages) all.push_back(number_of(message.header));
    return all;
  }

  Fabric fabric_{42};
  Node a_{fabric_.join("a")};
  Node b_{fabric_.join("b")};
};

TEST_F(LoopbackFaults, ABrokenLinkIsToldOnBothSidesAndCanBeMended) {
  send(1, 3);
  fabric_.break_link("a", "b");
  turn(2);
  EXPECT_EQ(a_.seen.sent_failed(), 3u);
  EXPECT_EQ(a_.seen.lost, std::vector<PeerId>{2});
  EXPECT_EQ(b_.seen.lost, std::vector<PeerId>{1});
  EXPECT_EQ(b_.seen.headers, 0u) << "what was on the way is gone";
  EXPECT_EQ(a_.transport->send(2, header_of(4), {}, 4).code(), Code::kUnavailable);
  meet(fabric_, a_, b_);
  send(5, 5);
  turn(2);
  EXPECT_EQ(numbers(b_), std::vector<uint64_t>{5});
}

TEST_F(LoopbackFaults, ALinkBreaksAfterSoManyMessages) {
  fabric_.set_faults("a", "b", {.break_after = 3});
  send(1, 2);
  turn(2);
  EXPECT_EQ(a_.seen.sent_ok(), 2u);
  EXPECT_TRUE(a_.seen.lost.empty());
  send(3, 3);
  turn(2);
  EXPECT_EQ(a_.seen.lost.size(), 1u);
  EXPECT_EQ(b_.seen.lost.size(), 1u);
  EXPECT_EQ(a_.seen.sent_failed(), 1u);
  meet(fabric_, a_, b_);
  send(4, 20);
  turn(2);
  EXPECT_EQ(a_.seen.lost.size(), 1u) << "it breaks once";
}

TEST_F(LoopbackFaults, AKilledNodeIsLostToOthersAndSilentItself) {
  Node c(fabric_.join("c"));
  ASSERT_TRUE(c.connect(2, b_).ok());
  send(1, 5);
  fabric_.kill("b");
  turn(2);
  c.turn();
  EXPECT_EQ(a_.seen.lost.size(), 1u);
  EXPECT_EQ(c.seen.lost.size(), 1u);
  EXPECT_EQ(a_.seen.sent_failed(), 5u);
  EXPECT_EQ(b_.seen.headers, 0u);
  EXPECT_TRUE(b_.seen.lost.empty()) << "the dead hear nothing";
  EXPECT_EQ(b_.turn(), 0);
  EXPECT_EQ(b_.transport->send(1, header_of(1), {}, 1).code(), Code::kUnavailable);
  // The name is free again, for the node's next life.
  Node again(fabric_.join("b"));
  ASSERT_TRUE(a_.connect(2, again).ok());
  send(6, 6);
  again.turn();
  EXPECT_EQ(again.seen.received, 1u);
}

TEST_F(LoopbackFaults, AStoppedNodeSwallowsEverythingAndNobodyIsTold) {
  fabric_.stop("b");
  send(1, 5);
  ASSERT_TRUE(b_.transport->send(1, header_of(1), {}, 1).ok());
  turn(50);
  EXPECT_EQ(b_.seen.headers + a_.seen.headers, 0u);
  EXPECT_TRUE(a_.seen.sent.empty());
  EXPECT_TRUE(a_.seen.lost.empty());
  EXPECT_TRUE(a_.transport->arm()) << "nothing to do but wait for a timer";
  a_.transport->disconnect(2);
  a_.turn();
  EXPECT_EQ(a_.seen.sent_failed(), 5u);
}

TEST_F(LoopbackFaults, ABlackHoleHasOneDirection) {
  fabric_.set_faults("a", "b", {.black_hole = true});
  send(1, 1);
  ASSERT_TRUE(b_.transport->send(1, header_of(9), {}, 0).ok());
  turn(5);
  EXPECT_EQ(b_.seen.headers, 0u);
  EXPECT_EQ(a_.seen.received, 1u);
}

TEST_F(LoopbackFaults, DelayedMessagesComeSoManyTurnsLaterAndInOrder) {
  fabric_.set_faults("a", "b", {.delay_turns = 5});
  send(1, 3);
  fabric_.set_faults("a", "b", {});
  send(4, 4);
  for (int i = 0; i < 5; ++i) b_.turn();
  EXPECT_EQ(b_.seen.headers, 0u);
  EXPECT_FALSE(b_.transport->arm()) << "turns are what it waits for";
  b_.turn();
  EXPECT_EQ(numbers(b_), (std::vector<uint64_t>{1, 2, 3, 4}));
}

TEST_F(LoopbackFaults, DuplicatesArriveTwiceAndAreSentOnce) {
  fabric_.set_faults("a", "b", {.duplicate = 1});
  send(1, 3);
  turn(3);
  EXPECT_EQ(numbers(b_), (std::vector<uint64_t>{1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(a_.seen.sent_ok(), 3u);
}

TEST_F(LoopbackFaults, ReorderedMessagesAreOvertakenAndNotLost) {
  fabric_.set_faults("a", "b", {.reorder = 0.3});
  send(1, 50);
  turn(10);
  std::vector<uint64_t> came = numbers(b_);
  EXPECT_FALSE(std::is_sorted(came.begin(), came.end()));
  std::sort(came.begin(), came.end());
  ASSERT_EQ(came.size(), 50u);
  for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ(came[i], i + 1);
}

TEST_F(LoopbackFaults, OneByteOfACorruptPayloadIsWrong) {
  fabric_.set_faults("a", "b", {.corrupt = 1});
  send(1, 1, 1000);
  turn(2);
  const auto good = pattern(1000, 1);
  int wrong = 0;
  for (size_t i = 0; i < good.size(); ++i) wrong += b_.seen.messages[0].payload[i] != good[i];
  EXPECT_EQ(wrong, 1);
}

TEST_F(LoopbackFaults, ASeedRepeatsARunAndAnotherDoesNot) {
  const auto run = [](uint64_t seed) {
    Fabric fabric(seed);
    Node a(fabric.join("a")), b(fabric.join("b"));
    meet(fabric, a, b);
    fabric.set_faults("a", "b", {.duplicate = 0.2, .reorder = 0.2});
    for (uint64_t i = 1; i <= 100; ++i) EXPECT_TRUE(a.transport->send(2, header_of(i), {}, i).ok());
    for (int i = 0; i < 10; ++i) b.turn();
    return numbers(b);
  };
  EXPECT_EQ(run(7), run(7));
  EXPECT_NE(run(7), run(8));
}

TEST_F(LoopbackFaults, ALossThatWasNotToldYetIsNotTheNewConnections) {
  fabric_.break_link("a", "b");
  a_.transport->disconnect(2);
  ASSERT_TRUE(a_.connect(2, b_).ok());
  turn(3);
  EXPECT_TRUE(a_.seen.lost.empty());
  send(1, 1);
  turn(2);
  EXPECT_EQ(b_.seen.received, 1u);
}

TEST_F(LoopbackFaults, TwoLivingMembersMayNotShareAName) {
  EXPECT_THROW(fabric_.join("a"), std::invalid_argument);
  Fabric other;
  EXPECT_EQ(a_.transport->connect(7, Node(other.join("a")).transport->address()).code(),
            Code::kInvalidArgument)
      << "an address of another fabric";
}

}  // namespace
}  // namespace gradring::transport::conformance
