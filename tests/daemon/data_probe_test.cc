// Probes between data threads, on a network inside this process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/data/seal.h"
#include "tests/daemon/data_node.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;

class DataProbeTest : public DataThreadTest {
 protected:
  static StartProbe order(uint64_t query, const std::string& to) {
    StartProbe order;
    order.query = query;
    order.to = to;
    order.node = to == "a" ? "b" : "a";
    order.measure = 100 * core::kMillisecond;
    return order;
  }
  static ProbeEnded ask(DataNode& node, const StartProbe& order) {
    node.post(order);
    return node.next<ProbeEnded>(
        [&](const ProbeEnded& ended) { return ended.query == order.query; });
  }
};

TEST_F(DataProbeTest, MeasuresALaneAndLeavesNothing) {
  DataNode a(fabric_, "a"), b(fabric_, "b");
  connect(a, b, kBundleBytesMax);
  for (const uint32_t bytes : {0u, 1u, 100u, 4096u, 1u << 20}) {
    StartProbe one = order(1 + bytes, "b");
    one.bytes = bytes;
    const ProbeEnded ended = ask(a, one);
    ASSERT_TRUE(ended.status.ok()) << bytes << ": " << ended.status.message();
    EXPECT_EQ(ended.bytes, bytes == 0 ? kSliceBytes : bytes);
    EXPECT_GT(ended.figures.bytes, 10 * ended.bytes);
    EXPECT_EQ(ended.figures.bytes % ended.bytes, 0u);
    EXPECT_GT(ended.figures.time, 0);
    EXPECT_EQ(ended.figures.jobs_bytes, 0u);
  }
  const Pulse after = a.next<Pulse>();
  EXPECT_EQ(after.peers.at(0).sent_bytes(), 0u) << "these are gradients alone";
  EXPECT_EQ(after.frames_malformed + after.frames_stale + after.frames_forged, 0u);
}

TEST_F(DataProbeTest, MeasuresRoundTrips) {
  DataNode a(fabric_, "a"), b(fabric_, "b");
  connect(a, b);
  StartProbe one = order(1, "b");
  one.latency = true;
  const ProbeEnded ended = ask(a, one);
  ASSERT_TRUE(ended.status.ok()) << ended.status.message();
  EXPECT_EQ(ended.bytes, 0u);
  EXPECT_GT(ended.figures.round_trips, 10u);
  EXPECT_GT(ended.figures.min, 0);
  EXPECT_LE(ended.figures.min, ended.figures.median);
  EXPECT_LE(ended.figures.median, ended.figures.p99);
}

TEST_F(DataProbeTest, GoesBesideJobsOnlyByForce) {
  DataNode a(fabric_, "a"), b(fabric_, "b"), c(fabric_, "c");
  connect(a, b);
  const core::View view = view_of({{"b", 1}}, 1);
  b.install(view);
  b.next<Pulse>([](const Pulse& pulse) { return !pulse.jobs.empty(); });
  EXPECT_THAT(ask(a, order(1, "b")).status.message(), HasSubstr("jobs run on node b"));
  EXPECT_THAT(ask(b, order(1, "a")).status.message(), HasSubstr("jobs run on node b"));
  StartProbe forced = order(2, "b");
  forced.forced = true;
  EXPECT_TRUE(ask(a, forced).status.ok());
}

TEST_F(DataProbeTest, JobsGoOnBesideIt) {
  DataNode a(fabric_, "a"), b(fabric_, "b");
  connect(a, b);
  const core::View view = view_of({{"a", 1}, {"b", 1}}, 1);
  a.install(view);
  b.install(view);
  StartProbe forced = order(1, "b");
  forced.forced = true;
  a.post(forced);
  for (uint64_t sequence = 0; sequence < 20; ++sequence) {
    std::vector<float> x = numbers(30'000, 1), y = numbers(30'000, 2);
    a.submit(view, 0, x, sequence);
    b.submit(view, 1, y, sequence);
    for (DataNode* node : {&a, &b}) {
      EXPECT_EQ(node->next<Completed>().outcome.verdict, Verdict::kOk);
    }
    EXPECT_EQ(x, numbers(30'000, 3));
    EXPECT_EQ(y, x);
  }
}

TEST_F(DataProbeTest, WhoCannotIsToldWhy) {
  DataNode a(fabric_, "a"), b(fabric_, "b");
  connect(a, b, 0, false);
  EXPECT_THAT(ask(a, order(1, "b")).status.message(), HasSubstr("knows no probes"));
  EXPECT_THAT(ask(a, order(2, "c")).status.message(), HasSubstr("no data connection to a node c"));
}

TEST_F(DataProbeTest, WhoIsToStopTakesNone) {
  DataNode a(fabric_, "a"), b(fabric_, "b");
  connect(a, b);
  StartProbe other = order(3, "b");
  other.lane = 1;
  EXPECT_THAT(ask(a, other).status.message(), HasSubstr("no lane 1"));
  b.post(RefuseProbes{});
  EXPECT_THAT(ask(b, order(1, "a")).status.message(), HasSubstr("node b is draining"));
  EXPECT_THAT(ask(a, order(4, "b")).status.message(), HasSubstr("node b is draining"));
}

TEST_F(DataProbeTest, ThereIsOneAtATime) {
  DataNode a(fabric_, "a"), b(fabric_, "b");
  connect(a, b);
  StartProbe one = order(1, "b");
  one.measure = 500 * core::kMillisecond;
  a.post(one);
  const Status refused = ask(a, order(2, "b")).status;
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("node a takes part in another probe"));
  while (b.next<Pulse>().transport.payload_bytes_received == 0) {
  }  // until it takes part: two that ask each other at once would both be refused
  EXPECT_THAT(ask(b, order(1, "a")).status.message(), HasSubstr("probe"));
  EXPECT_TRUE(a.next<ProbeEnded>().status.ok());
  EXPECT_TRUE(ask(a, order(3, "b")).status.ok());
}

TEST_F(DataProbeTest, AConnectionThatEndsEndsIt) {
  DataNode a(fabric_, "a"), b(fabric_, "b");
  connect(a, b);
  StartProbe one = order(1, "b");
  one.measure = 60 * core::kSecond;
  a.post(one);
  a.next<Pulse>();
  a.post(DisconnectPeer{0});
  EXPECT_FALSE(a.next<ProbeEnded>().status.ok());
}

TEST_F(DataProbeTest, ANodeThatTakesPartInAnothersMayBeAskedAgain) {
  constexpr uint64_t kTokenForC = 33;
  DataNode a(fabric_, "a"), b(fabric_, "b"), c(fabric_, "c");
  connect(a, b);
  c.post(ExpectPeer{0, kTokenOfA});
  b.post(ExpectPeer{1, kTokenForC});
  c.post(ConnectPeer{0, 9, "b", b.addresses(), kTokenForC, 0, true});
  b.post(ConnectPeer{1, 10, "c", c.addresses(), kTokenOfA, 0, true});
  StartProbe one = order(1, "b");
  one.measure = 500 * core::kMillisecond;
  c.post(one);
  while (b.next<Pulse>().transport.payload_bytes_received == 0) {
  }
  const Status refused = ask(a, order(2, "b")).status;
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("node b takes part in another probe"));
  EXPECT_TRUE(c.next<ProbeEnded>().status.ok());
}

// Frames of a probe that nobody granted.
TEST_F(DataProbeTest, WhatNobodyAskedForIsDropped) {
  DataNode a(fabric_, "a");
  auto stranger = fabric_.join("x");
  a.post(ExpectPeer{0, kTokenOfA});
  a.post(ConnectPeer{0, 7, "x", {stranger->address()}, kTokenOfB, 0, true});
  ASSERT_TRUE(stranger->connect(0, a.addresses()[0]).ok());
  std::vector<std::byte> payload(64);
  Frame frame;
  frame.type = FrameType::kProbe;
  frame.token = kTokenOfA;
  const std::vector<std::pair<ProbeKind, uint32_t>> frames = {{ProbeKind::kData, 64},
                                                              {ProbeKind::kData, 0},
                                                              {ProbeKind::kEcho, 0},
                                                              {ProbeKind::kGranted, 0},
                                                              {ProbeKind::kEnd, 0}};
  for (const auto& [kind, length] : frames) {
    frame.probe.kind = kind;
    frame.probe.length = length;
    const auto lent = std::span(payload).first(length);
    ASSERT_TRUE(stranger->send(0, sealed(frame), lent, length == 0 ? 0 : 1).ok());
  }
  const Pulse pulse =
      a.next<Pulse>([](const Pulse& p) { return p.transport.messages_received > 3; });
  EXPECT_EQ(pulse.frames_malformed, 0u);
}

}  // namespace
}  // namespace gradring::daemon
