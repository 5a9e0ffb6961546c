// The data thread between its two mailboxes, on a network inside this process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "daemon/data/seal.h"
#include "proto/bundle.h"
#include "tests/daemon/data_node.h"
#include "transport/loopback/fabric.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;

TEST_F(DataThreadTest, FourRanksOnTwoNodesAddAndLeave) {
  DataNode a(fabric_, "a"), b(fabric_, "b");
  connect(a, b);
  const core::View view = view_of({{"a", 2}, {"b", 2}}, 1);
  a.install(view);
  b.install(view);
  constexpr size_t kCount = 10 * kSliceBytes / 4 + 3;
  std::vector<std::vector<float>> data;
  for (int rank = 0; rank < 4; ++rank)
    data.push_back(numbers(kCount, static_cast<float>(1 << rank)));
  for (uint32_t rank = 0; rank < 4; ++rank) (rank < 2 ? a : b).submit(view, rank, data[rank]);
  for (DataNode* node : {&a, &b}) {
    for (int i = 0; i < 2; ++i) {
      const auto completed = node->next<Completed>();
      EXPECT_EQ(completed.outcome.verdict, Verdict::kOk);
      EXPECT_EQ(completed.outcome.ranks_min, 4u);
      EXPECT_EQ(completed.ticket, 1u);
    }
  }
  for (const auto& result : data) EXPECT_EQ(result, numbers(kCount, 15));

  for (uint32_t rank = 0; rank < 4; ++rank)
    (rank < 2 ? a : b).post(LeaveRank{view.incarnation, rank, {}});
  EXPECT_EQ(a.next<EngineDrained>().job, view.incarnation);
  EXPECT_EQ(b.next<EngineDrained>().job, view.incarnation);
  const Pulse busy = a.next<Pulse>([](const Pulse& pulse) { return !pulse.jobs.empty(); });
  EXPECT_GT(busy.staging_bytes_most, 0u);
  EXPECT_GT(busy.peers.at(0).sent_bytes(), 0u);
  a.post(RemoveJob{view.incarnation});
  a.next<Pulse>(
      [](const Pulse& pulse) { return pulse.jobs.empty() && pulse.staging_bytes_most == 0; });
}

TEST_F(DataThreadTest, AFastPeersFirstFrameMayOvertakeTheInstallation) {
  DataNode a(fabric_, "a"), b(fabric_, "b");
  connect(a, b);
  constexpr int kJobs = 200;
  for (int i = 0; i < kJobs; ++i) {
    const core::View view = view_of({{"a", 1}, {"b", 1}}, static_cast<uint8_t>(i));
    std::vector<float> x = numbers(8, 1), y = numbers(8, 2);
    // As in life: b has the command before a can send, and is busy with something else.
    b.install(view);
    a.install(view);
    a.submit(view, 0, x);
    b.submit(view, 1, y);
    ASSERT_EQ(a.next<Completed>().outcome.verdict, Verdict::kOk) << i;
    ASSERT_EQ(b.next<Completed>().outcome.verdict, Verdict::kOk) << i;
    a.post(RemoveJob{view.incarnation});
    b.post(RemoveJob{view.incarnation});
  }
}

TEST_F(DataThreadTest, AFastPeersFirstFrameMayOvertakeItsIntroduction) {
  const core::View view = view_of({{"a", 1}, {"b", 1}}, 1);
  for (int round = 0; round < 30; ++round) {
    DataNode a(fabric_, "a"), b(fabric_, "b");
    std::vector<float> x = numbers(8, 1), y = numbers(8, 2);
    connect(a, b);
    for (DataNode* node : {&b, &a}) node->install(view);
    a.submit(view, 0, x);
    b.submit(view, 1, y);
    ASSERT_EQ(a.next<Completed>().ticket, 1u) << round;
    ASSERT_EQ(b.next<Completed>().ticket, 1u) << round;
  }
}

TEST_F(DataThreadTest, WhatComesLateOfAConnectionThatWasIsNotForged) {
  DataNode a(fabric_, "a"), b(fabric_, "b");
  connect(a, b);
  a.post(ExpectPeer{0, kTokenOfA + 1000});  // it has connected anew
  const auto late = fabric_.join("late");
  ASSERT_TRUE(late->connect(0, a.addresses().front()).ok());
  Frame frame;
  frame.epoch = 1;
  frame.type = FrameType::kReady;
  frame.ready.contributions = 1;
  frame.ready.signature = {Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, 64};
  for (const uint64_t token : {kTokenOfA, kTokenOfA + 1}) {
    frame.token = token;
    ASSERT_TRUE(late->send(0, sealed(frame), {}, 0).ok());
  }
  // Those that b goes on to send are late, too.
  const Pulse pulse =
      a.next<Pulse>([](const Pulse& p) { return p.frames_stale >= 1 && p.frames_forged >= 1; });
  EXPECT_EQ(pulse.frames_forged, 1u);
}

// What is of a later epoch is kept until this node has entered that. An op whose READY had no room
// would wait for its deadline, and blame whoever said it.
TEST_F(DataThreadTest, APeerThatIsTooFarAheadEndsTheJobInWords) {
  DataNode a(fabric_, "a"), b(fabric_, "b");
  connect(a, b);
  const core::View view = view_of({{"a", 1}, {"b", 1}}, 1);
  a.install(view);
  Frame frame;  // of b's
  frame.token = kTokenOfA;
  frame.job = view.incarnation;
  frame.epoch = 2;
  frame.type = FrameType::kReady;
  frame.ready.rank = 1;
  frame.ready.contributions = 1;
  frame.ready.signature = {Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, 64};
  const FrameBytes header = sealed(frame);
  Bundle bundle;
  bundle.token = kTokenOfA;
  std::vector<std::byte> payload;
  for (size_t i = 0; i < kBundleFramesMax; ++i) {
    bundle.add(0);
    payload.insert(payload.end(), header.begin(), header.end());
  }
  const FrameBytes bundled = sealed(encode(bundle));
  const std::unique_ptr<transport::Transport> ahead = fabric_.join("ahead");
  ASSERT_TRUE(ahead->connect(0, a.addresses().front()).ok());
  for (size_t i = 0; i <= core::EpochGate<PeerId>::kMost / kBundleFramesMax; ++i) {
    ASSERT_TRUE(ahead->send(0, bundled, payload, i + 1).ok());
  }
  const Failure failure = a.next<EngineFailed>().failure;
  EXPECT_EQ(failure.cause, Cause::kProtocol);
  EXPECT_EQ(failure.blame.node, "b");
  EXPECT_THAT(failure.blame.evidence, HasSubstr("of view 2 before this node had left view 1"));
}

TEST_F(DataThreadTest, StrangersAndNonsenseAreCountedAndChangeNothing) {
  DataNode a(fabric_, "a"), b(fabric_, "b");
  connect(a, b);
  const core::View view = view_of({{"a", 1}, {"b", 1}}, 1);
  a.install(view);
  b.install(view);
  std::vector<float> x = numbers(64, 1), y = numbers(64, 2);
  a.submit(view, 0, x);

  const auto stranger = fabric_.join("stranger");
  ASSERT_TRUE(stranger->connect(0, a.addresses().front()).ok());
  Frame forged;
  forged.job = view.incarnation;
  forged.epoch = 1;
  forged.type = FrameType::kReady;
  forged.ready.rank = 1;
  forged.ready.contributions = 1;
  forged.ready.signature = {Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, 64};
  for (const uint64_t token : {uint64_t{0}, uint64_t{1}, kTokenOfB}) {
    forged.token = token;
    ASSERT_TRUE(stranger->send(0, sealed(forged), {}, 0).ok());
  }
  // With the right token, for want of a better thief: of no job, and of no sense.
  Frame lost = forged;
  lost.token = kTokenOfA;
  lost.job[3] = 99;
  ASSERT_TRUE(stranger->send(0, sealed(lost), {}, 0).ok());
  FrameBytes nonsense = sealed(lost);
  nonsense[5] = std::byte{200};
  nonsense = sealed(nonsense);
  ASSERT_TRUE(stranger->send(0, nonsense, {}, 0).ok());
  const std::vector<std::byte> payload(100);
  ASSERT_TRUE(stranger->send(0, nonsense, payload, 5).ok());
  ASSERT_TRUE(stranger->send(0, sealed(lost), payload, 6).ok());  // a READY with a payload

  const Pulse pulse =
      a.next<Pulse>([](const Pulse& p) { return p.frames_malformed >= 3 && p.frames_forged >= 3; });
  EXPECT_EQ(pulse.frames_malformed, 3u);
  EXPECT_EQ(pulse.frames_forged, 3u);
  a.next<Pulse>(
      [](const Pulse& p) { return p.frames_stale == 1 && p.peers.at(0).dropped_frames == 1; });

  b.submit(view, 1, y);
  EXPECT_EQ(a.next<Completed>().outcome.verdict, Verdict::kOk);
  EXPECT_EQ(x, numbers(64, 3));
}

TEST_F(DataThreadTest, APeersDeathIsToldAndItsJobEndsClean) {
  DataNode a(fabric_, "a");
  const core::View view = view_of({{"a", 1}, {"b", 1}}, 1);
  std::vector<float> x = numbers(100 * kSliceBytes / 4, 1), y = x;
  {
    DataNode b(fabric_, "b");
    connect(a, b);
    a.install(view);
    b.install(view);
    a.submit(view, 0, x);
    fabric_.kill("b");
    const auto lost = a.next<PeerDataLost>();
    EXPECT_EQ(lost.peer, 0u);
    EXPECT_EQ(lost.link, 7u);
    EXPECT_FALSE(lost.why.empty());
  }
  a.post(DisconnectPeer{0});
  a.post(FailJob{view.incarnation, {Cause::kPeerLost, {}}});
  const auto completed = a.next<Completed>();
  EXPECT_EQ(completed.outcome.verdict, Verdict::kFailed);
  EXPECT_EQ(completed.outcome.failure.cause, Cause::kPeerLost);
  // Later ones end the same way at once.
  a.submit(view, 0, x, 1);
  EXPECT_EQ(a.next<Completed>().outcome.failure.cause, Cause::kPeerLost);
  a.post(RemoveJob{view.incarnation});
  a.next<Pulse>([](const Pulse& pulse) { return pulse.staging_bytes_most == 0; });
  EXPECT_EQ(x, y) << "an input was overwritten by something that is not final";
}

TEST_F(DataThreadTest, ABrokenLinkInTheMiddleOfSlicesLeavesNothingLent) {
  for (int round = 0; round < 20; ++round) {
    transport::Fabric fabric(static_cast<uint64_t>(round));
    DataNode a(fabric, "a"), b(fabric, "b");
    connect(a, b);
    const core::View view = view_of({{"a", 1}, {"b", 1}}, 1);
    a.install(view);
    b.install(view);
    std::vector<float> x = numbers(500 * kSliceBytes / 4, 1), y = x;
    transport::LinkFaults faults;
    faults.break_after = 10 + static_cast<uint64_t>(round) * 7;
    fabric.set_faults("a", "b", faults);
    a.submit(view, 0, x);
    b.submit(view, 1, y);
    a.next<PeerDataLost>();
    for (DataNode* node : {&a, &b}) {
      node->post(DisconnectPeer{0});
      node->post(FailJob{view.incarnation, {Cause::kPeerLost, {}}});
      EXPECT_EQ(node->next<Completed>().outcome.verdict, Verdict::kFailed);
      node->post(RemoveJob{view.incarnation});
      node->next<Pulse>([](const Pulse& pulse) { return pulse.staging_bytes_most == 0; });
    }
  }
}

TEST_F(DataThreadTest, EverySubmissionCompletesEvenWithoutItsJob) {
  DataNode a(fabric_, "a");
  const core::View view = view_of({{"a", 2}}, 1);
  std::vector<float> x = numbers(8, 1);
  a.submit(view, 0, x);  // never installed
  EXPECT_EQ(a.next<Completed>().outcome.verdict, Verdict::kFailed);
  a.install(view);
  a.submit(view, 0, x);
  a.post(RemoveJob{view.incarnation});  // with the op still open
  const auto completed = a.next<Completed>();
  EXPECT_EQ(completed.session, 1000u);
  EXPECT_EQ(completed.outcome.verdict, Verdict::kFailed);
}

TEST_F(DataThreadTest, StagingAboveTheLimitFailsTheJobInWords) {
  DataNode a("a", fabric_.join("a"), false, kSliceBytes);
  const core::View view = view_of({{"a", 1}}, 1);
  a.install(view);
  const auto failed = a.next<EngineFailed>();
  EXPECT_EQ(failed.failure.cause, Cause::kRefused);
  EXPECT_THAT(failed.failure.blame.evidence, HasSubstr("staging-limit"));
}

// Of ops that not all of their ranks have submitted: that is what nobody else ends.
TEST_F(DataThreadTest, JobsOfOneUserHaveNoMoreOpsOpenThanANodeCanSpare) {
  DataNode a(fabric_, "a");
  std::vector<core::View> views;
  for (const uint32_t uid : {7, 7, 8}) {
    views.push_back(view_of({{"a", 2}}, static_cast<uint8_t>(views.size() + 1)));
    views.back().uid = uid;
    a.install(views.back());
  }
  std::vector<float> x = numbers(1, 1);
  constexpr uint64_t kPlaces = 4 + 2, kMost = (kPlacesPerUser + kPlaces - 1) / kPlaces;
  for (uint64_t op = 0; op <= kMost; ++op) a.submit(views[0], 0, x, op);
  auto end = a.next<Completed>();
  EXPECT_EQ(end.ticket, kMost + 1);
  EXPECT_EQ(end.outcome.failure.cause, Cause::kRefused);
  EXPECT_THAT(end.outcome.failure.blame.evidence, HasSubstr("the jobs of uid 7 have too many ops"));
  // Another job of theirs has a few all the same, and another user's as many as it likes.
  for (uint64_t op = 0; op < 3; ++op) a.submit(views[1], 0, x, op);
  end = a.next<Completed>();
  EXPECT_EQ(end.ticket, 3u);
  EXPECT_EQ(end.outcome.failure.cause, Cause::kRefused);
  for (uint64_t op = 0; op < 20; ++op) a.submit(views[2], 0, x, op);
  // What is open already goes on, and makes room.
  for (uint64_t op = 0; op < 10; ++op) a.submit(views[0], 1, x, op);
  for (uint64_t op = 0; op < 20; ++op) {
    EXPECT_EQ(a.next<Completed>().outcome.verdict, Verdict::kOk) << op;
  }
  a.submit(views[1], 0, x, 3);
  a.submit(views[1], 1, x, 3);
  EXPECT_EQ(a.next<Completed>().outcome.verdict, Verdict::kOk);
}

TEST_F(DataThreadTest, ANanIsToldByTheNodeOfItsRank) {
  DataNode a(fabric_, "a"), b(fabric_, "b");
  connect(a, b);
  const core::View view = view_of({{"a", 2}, {"b", 2}}, 1);
  a.install(view);
  b.install(view);
  constexpr size_t kCount = 3 * kSliceBytes / 4, kBad = kSliceBytes / 4 + 77;
  std::vector<std::vector<float>> data(4, numbers(kCount, 1));
  data[3][kBad] = std::numeric_limits<float>::quiet_NaN();
  for (uint32_t rank = 0; rank < 4; ++rank) (rank < 2 ? a : b).submit(view, rank, data[rank], 5);
  const auto found = b.next<NonfiniteFound>();
  EXPECT_EQ(found.job, view.incarnation);
  EXPECT_EQ(found.origin.kind, NonfiniteOrigin::Kind::kNan);
  EXPECT_EQ(found.origin.rank, 3u);
  EXPECT_EQ(found.origin.key, (OpKey{0, 5}));
  EXPECT_EQ(found.origin.element, kBad);
  for (DataNode* node : {&a, &b}) {
    for (int i = 0; i < 2; ++i) EXPECT_EQ(node->next<Completed>().outcome.verdict, Verdict::kOk);
    node->post(DescribeJob{1, view.incarnation});
    const auto ranks = node->next<JobDescription>().ranks;
    ASSERT_EQ(ranks.size(), 2u);
    EXPECT_EQ(ranks[0].nonfinite, 0u);
    EXPECT_EQ(ranks[1].nonfinite, node == &b ? 1u : 0u);
  }
  for (const auto& result : data) EXPECT_TRUE(std::isnan(result[kBad]));
}

TEST_F(DataThreadTest, AJobIsDescribed) {
  DataNode a(fabric_, "a");
  const core::View view = view_of({{"a", 2}}, 1);
  a.install(view);
  std::vector<float> x = numbers(8, 1);
  a.submit(view, 0, x);
  a.post(DescribeJob{5, view.incarnation});
  const auto description = a.next<JobDescription>();
  EXPECT_EQ(description.query, 5u);
  ASSERT_TRUE(description.found);
  ASSERT_EQ(description.ops.size(), 1u);
  EXPECT_EQ(description.ops[0].missing_ranks, std::vector<uint32_t>{1});
  ASSERT_EQ(description.ranks.size(), 2u);
  EXPECT_EQ(description.ranks[0].submitted, 1u);
  EXPECT_GT(description.ranks[0].last_submission, 0);
  EXPECT_EQ(description.ranks[1].submitted, 0u);
  a.post(DescribeJob{6, JobId{9}});
  EXPECT_FALSE(a.next<JobDescription>().found);
}

}  // namespace
}  // namespace gradring::daemon
