// Small sums whose data goes with READY, through real memory and the reducer.

#include <gtest/gtest.h>

#include "tests/daemon/data_node.h"

namespace gradring::daemon {
namespace {

constexpr uint64_t kLimit = 1 << 20;

class DataDirectTest : public DataThreadTest {
 protected:
  std::unique_ptr<DataNode> node(const std::string& name, uint64_t limit = kLimit) {
    return std::make_unique<DataNode>(name, fabric_.join(name), false, limit, false, 2);
  }
  // Staging memory of a node; units come on top of what a job has from the start.
  static uint64_t staging_of(DataNode& node) {
    return node.next<Pulse>([](const Pulse& pulse) { return !pulse.jobs.empty(); })
        .staging_bytes_most;
  }
  // Ops of these many floats, one after the other; whether all are right.
  void run(DataNode& a, DataNode& b, const core::View& view, const std::vector<size_t>& counts) {
    uint64_t sequence = 0;
    for (const size_t count : counts) {
      SCOPED_TRACE(count);
      std::vector<std::vector<float>> data;
      for (int rank = 0; rank < 4; ++rank)
        data.push_back(numbers(count, static_cast<float>(1 << rank)));
      for (uint32_t rank = 0; rank < 4; ++rank) {
        (rank < 2 ? a : b).submit(view, rank, data[rank], sequence);
      }
      for (DataNode* one : {&a, &b}) {
        for (int i = 0; i < 2; ++i) {
          ASSERT_EQ(one->next<Completed>().outcome.verdict, Verdict::kOk);
        }
      }
      for (const auto& result : data) ASSERT_EQ(result, numbers(count, 15));
      ++sequence;
    }
  }
};

TEST_F(DataDirectTest, WholeAndInPartsAndAlongTheRing) {
  const auto a = node("a"), b = node("b");
  connect(*a, *b);
  const core::View view = view_of({{"a", 2}, {"b", 2}}, 1);
  a->install(view);
  b->install(view);
  const uint64_t before = staging_of(*a);
  run(*a, *b, view, {7, 1, 1000, 1024, 1025, 1500, 2048, 2049, 20000, 3, 1027});
  EXPECT_GT(staging_of(*a), before) << "nothing went directly";

  for (uint32_t rank = 0; rank < 4; ++rank)
    (rank < 2 ? *a : *b).post(LeaveRank{view.incarnation, rank, {}});
  EXPECT_EQ(a->next<EngineDrained>().job, view.incarnation);
  EXPECT_EQ(b->next<EngineDrained>().job, view.incarnation);
}

TEST_F(DataDirectTest, WhereThereIsNoRoomAllGoAlongTheRing) {
  const auto a = node("a", 128 << 10), b = node("b");
  connect(*a, *b);
  const core::View view = view_of({{"a", 2}, {"b", 2}}, 1);
  a->install(view);
  b->install(view);
  const uint64_t before = staging_of(*a);
  run(*a, *b, view, {7, 1, 1000, 1025, 1500});
  // b's data came, and was not used.
  EXPECT_GE(staging_of(*a), before);
}

// Sums of small whole numbers are exact in any order and format.
TEST_F(DataDirectTest, HalvesAreRoundedAsAlongTheRing) {
  const auto a = node("a"), b = node("b");
  connect(*a, *b);
  const core::View view = view_of({{"a", 1}, {"b", 1}}, 1);
  a->install(view);
  b->install(view);
  for (uint64_t sequence = 0; sequence < 4; ++sequence) {
    // 1.0 and 1.0 + 1/128 of bfloat16: their sum, 2 + 1/128, lies between two; the even one is 2.
    std::vector<uint16_t> x(sequence % 2 == 0 ? 100 : 3000, 0x3f80), y(x.size(), 0x3f81);
    uint32_t rank = 0;
    for (auto* data : {&x, &y}) {
      core::Submission submission;
      submission.rank = rank;
      submission.ticket = sequence + 1;
      submission.key = {0, sequence};
      submission.signature = {Collective::kAllreduce, Dtype::kBfloat16, ReduceOp::kSum, 0,
                              data->size()};
      auto* bytes = reinterpret_cast<std::byte*>(data->data());
      (rank == 0 ? *a : *b).post(Submit{rank + 1000, view.incarnation, submission, bytes, bytes});
      ++rank;
    }
    ASSERT_EQ(a->next<Completed>().outcome.verdict, Verdict::kOk);
    ASSERT_EQ(b->next<Completed>().outcome.verdict, Verdict::kOk);
    EXPECT_EQ(x, std::vector<uint16_t>(x.size(), 0x4000)) << sequence;
    EXPECT_EQ(y, x) << sequence;
  }
}

// 40,000 and 40,000 of float16 are infinite before the third comes to them, here as along the ring.
TEST_F(DataDirectTest, AnOverflowOfHalvesOnTheWayIsNamed) {
  constexpr uint32_t kNodes = 3;
  const core::View view = view_of({{"a", 1}, {"b", 1}, {"c", 1}}, 1);
  std::vector<std::unique_ptr<DataNode>> nodes;
  for (const core::Member& member : view.members) {
    nodes.push_back(std::make_unique<DataNode>(member.node, fabric_.join(member.node), false,
                                               4 * kLimit, false, kNodes));
  }
  const auto token = [](uint32_t from, uint32_t to) { return uint64_t{100} + from * kNodes + to; };
  for (uint32_t me = 0; me < kNodes; ++me) {
    for (uint32_t other = 0; other < kNodes; ++other) {
      if (other != me) nodes[me]->post(ExpectPeer{other, token(other, me)});
    }
  }
  for (uint32_t me = 0; me < kNodes; ++me) {
    for (uint32_t other = 0; other < kNodes; ++other) {
      if (other == me) continue;
      nodes[me]->post(
          ConnectPeer{other, 7, nodes[other]->name(), nodes[other]->addresses(), token(me, other)});
    }
    nodes[me]->install(view);
  }
  constexpr size_t kCount = 300, kAt = 123;
  constexpr uint16_t kOne = 0x3c00, k40000 = 0x78e2, kMinus40000 = 0xf8e2, kInfinity = 0x7c00;
  std::vector<std::vector<uint16_t>> data(kNodes, std::vector<uint16_t>(kCount, kOne));
  // Who has not heard of the others yet goes along the ring.
  for (uint64_t sequence = 0; sequence < 2; ++sequence) {
    if (sequence == 1) {
      data[0][kAt] = data[1][kAt] = k40000;
      data[2][kAt] = kMinus40000;
    }
    for (uint32_t rank = 0; rank < kNodes; ++rank) {
      core::Submission submission;
      submission.rank = rank;
      submission.ticket = sequence + 1;
      submission.key = {0, sequence};
      submission.signature = {Collective::kAllreduce, Dtype::kFloat16, ReduceOp::kSum, 0, kCount};
      auto* bytes = reinterpret_cast<std::byte*>(data[rank].data());
      nodes[rank]->post(Submit{rank + 1000, view.incarnation, submission, bytes, bytes});
    }
    if (sequence == 0) {
      for (auto& node : nodes) ASSERT_EQ(node->next<Completed>().outcome.verdict, Verdict::kOk);
    }
  }
  for (auto& node : nodes) {
    const NonfiniteOrigin origin = node->next<NonfiniteFound>().origin;
    EXPECT_EQ(origin.kind, NonfiniteOrigin::Kind::kOverflow);
    EXPECT_EQ(origin.key.sequence, 1u);
    EXPECT_EQ(origin.element, kAt);
    EXPECT_EQ(node->next<Completed>().outcome.verdict, Verdict::kOk);
  }
  EXPECT_EQ(data[2][kAt], kInfinity);
}

TEST_F(DataDirectTest, APeersDeathWithDataUnderWayEndsClean) {
  const auto a = node("a");
  const core::View view = view_of({{"a", 1}, {"b", 1}}, 1);
  std::vector<float> x = numbers(100, 1), y = x;
  {
    const auto b = node("b");
    connect(*a, *b);
    a->install(view);
    b->install(view);
    a->submit(view, 0, x);
    b->submit(view, 1, y);
    ASSERT_EQ(a->next<Completed>().outcome.verdict, Verdict::kOk);
    ASSERT_EQ(b->next<Completed>().outcome.verdict, Verdict::kOk);
    for (uint64_t sequence = 1; sequence <= 20; ++sequence) a->submit(view, 0, x, sequence);
    fabric_.kill("b");
    a->next<PeerDataLost>();
  }
  a->post(DisconnectPeer{0});
  a->post(FailJob{view.incarnation, {Cause::kPeerLost, {}}});
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(a->next<Completed>().outcome.verdict, Verdict::kFailed);
  }
  a->post(RemoveJob{view.incarnation});
  a->next<Pulse>(
      [](const Pulse& pulse) { return pulse.jobs.empty() && pulse.staging_bytes_most == 0; });
}

}  // namespace
}  // namespace gradring::daemon
