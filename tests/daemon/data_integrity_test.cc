// Bits that flip on the wire, below the data thread: over the loopback body and over UCX.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/data/seal.h"
#include "tests/daemon/data_node.h"
#include "tests/daemon/flipping_transport.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/ucx/ucx_transport.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;

enum class Body { kLoopback, kTcp, kUcx };

class Integrity : public DataThreadTest, public testing::WithParamInterface<Body> {
 protected:
  void SetUp() override {
    if (GetParam() == Body::kUcx && !transport::ucx_viability().works) {
      GTEST_SKIP() << transport::ucx_viability().why;
    }
    a_ = make("a", &flips_at_a_);
    b_ = make("b", &flips_at_b_);
    connect(*a_, *b_);
    a_->install(view_);
    b_->install(view_);
  }
  std::unique_ptr<DataNode> make(const std::string& name, Flips* flips) {
    std::unique_ptr<transport::Transport> body;
    if (GetParam() == Body::kLoopback) {
      body = fabric_.join(name);
    } else if (GetParam() == Body::kTcp) {
      auto made = transport::make_tcp_transport({{"lo"}, "for tests"});
      EXPECT_TRUE(made.has_value());
      body = std::move(*made);
    } else {
      transport::UcxOptions options;
      options.listen_address = "127.0.0.1";
      auto made = transport::make_ucx_transport(options);
      EXPECT_TRUE(made.has_value());
      body = std::move(*made);
    }
    return std::make_unique<DataNode>(
        name, std::make_unique<FlippingTransport>(std::move(body), flips), true);
  }
  // Both ranks submit; whether both ended well.
  bool sum_up(uint64_t sequence) {
    x_ = numbers(kCount, 1);
    y_ = numbers(kCount, 2);
    a_->submit(view_, 0, x_, sequence);
    b_->submit(view_, 1, y_, sequence);
    const Verdict at_a = a_->next<Completed>().outcome.verdict;
    const Verdict at_b = b_->next<Completed>().outcome.verdict;
    return at_a == Verdict::kOk && at_b == Verdict::kOk;
  }

  // As gradringctl peers would show it.
  void expect_damaged_at_b(uint64_t count) {
    b_->next<Pulse>([count](const Pulse& pulse) {
      return !pulse.peers.empty() && pulse.peers[0].damaged >= count;
    });
  }

  static constexpr size_t kCount = 100 * kSliceBytes / 4 + 5;
  const core::View view_ = view_of({{"a", 1}, {"b", 1}}, 1);
  Flips flips_at_a_, flips_at_b_;
  std::vector<float> x_, y_;
  std::unique_ptr<DataNode> a_, b_;
};

TEST_P(Integrity, DamagedSlicesAreSentAgainAndNobodyNotices) {
  flips_at_a_.payload_percent = 20;
  flips_at_b_.payload_percent = 20;
  uint64_t done = 0;
  for (uint64_t op = 0; op < 5; ++op) {
    ASSERT_TRUE(sum_up(op)) << op;
    ASSERT_EQ(x_, numbers(kCount, 3)) << op;
    ASSERT_EQ(y_, x_) << op;
    done = flips_at_b_.done;
  }
  EXPECT_GT(done, 0u);
  expect_damaged_at_b(done);
  a_->post(LeaveRank{view_.incarnation, 0, {}});
  b_->post(LeaveRank{view_.incarnation, 1, {}});
  a_->next<EngineDrained>();  // so all staging memory has come back
  b_->next<EngineDrained>();
}

TEST_P(Integrity, ALinkThatDamagesEverySliceCondemnsTheOpAndSaysWhichLink) {
  flips_at_b_.payload_percent = 100;
  flips_at_b_.every_attempt = true;
  x_ = numbers(kCount, 1);
  y_ = numbers(kCount, 2);
  a_->submit(view_, 0, x_);
  b_->submit(view_, 1, y_);
  const auto condemned = a_->next<EngineCondemned>();
  EXPECT_EQ(condemned.job, view_.incarnation);
  EXPECT_EQ(condemned.epoch, 1u);
  expect_damaged_at_b(core::kAttempts);
  for (DataNode* node : {a_.get(), b_.get()}) node->post(FreezeJob{view_.incarnation, 1});
  const auto frozen = a_->next<JobFrozen>();
  b_->next<JobFrozen>();
  ASSERT_EQ(frozen.report->condemned.size(), 1u);
  const core::Condemned& why = frozen.report->condemned.at({0, 0});
  EXPECT_EQ(why.receiver, "b");
  EXPECT_EQ(why.failure.cause, Cause::kCorrupted);
  EXPECT_THAT(describe(why.failure), HasSubstr("corrupted: node a: slice "));
  EXPECT_THAT(describe(why.failure),
              HasSubstr("came damaged 3 times on its way to node b, lane 0"));
  EXPECT_EQ(y_, numbers(kCount, 2)) << "a damaged value was written to a trainer's buffer";

  // A view of the same members ends the op for both, and the next op goes well.
  flips_at_b_.payload_percent = 0;
  core::Proposal proposal;
  proposal.view = view_;
  proposal.view.epoch = 2;
  core::OpFate fate;
  fate.kind = core::OpFate::Kind::kFail;
  fate.failure = why.failure;
  proposal.ops = std::vector{fate};
  const auto shared = std::make_shared<const core::Proposal>(proposal);
  for (DataNode* node : {a_.get(), b_.get()}) {
    node->post(AdoptView{view_.incarnation, shared});
    EXPECT_EQ(node->next<Completed>().outcome.failure, why.failure);
  }
  ASSERT_TRUE(sum_up(1));
  EXPECT_EQ(x_, numbers(kCount, 3));
  EXPECT_EQ(y_, x_);
}

// Whatever bit of a slice's header it is: nothing of it is believed, and its connection is given
// up. Where the token stands, nobody knows whose it is.
TEST_P(Integrity, ADamagedHeaderIsBelievedInNothing) {
  constexpr uint32_t kTokenFirst = 64, kTokenEnd = 128;
  for (const uint32_t bit : {0u, 40u, 60u, 140u, 300u, 460u, 470u, 500u, 700u, 900u, 1023u}) {
    ASSERT_TRUE(bit < kTokenFirst || bit >= kTokenEnd);
    flips_at_b_.header_bit = bit;
    flips_at_b_.headers = 1;
    x_ = numbers(kCount, 1);
    y_ = numbers(kCount, 2);
    a_->submit(view_, 0, x_);
    b_->submit(view_, 1, y_);
    EXPECT_THAT(b_->next<PeerDataLost>().why, HasSubstr("header")) << bit;
    for (DataNode* node : {a_.get(), b_.get()}) {
      node->post(FailJob{view_.incarnation, {Cause::kPeerLost, {}}});
      EXPECT_EQ(node->next<Completed>().outcome.verdict, Verdict::kFailed) << bit;
    }
    EXPECT_EQ(flips_at_b_.done, 1u);
    b_->next<Pulse>([](const Pulse& pulse) { return pulse.frames_damaged == 1; });
    flips_at_b_.done = 0;
    a_.reset();
    b_.reset();
    SetUp();
  }
}

INSTANTIATE_TEST_SUITE_P(Bodies, Integrity,
                         testing::Values(Body::kLoopback, Body::kTcp, Body::kUcx),
                         [](const auto& body) {
                           return body.param == Body::kUcx   ? "Ucx"
                                  : body.param == Body::kTcp ? "Tcp"
                                                             : "Loopback";
                         });

// Each node decides for what it sends.
TEST_F(DataThreadTest, ARingInWhichOneNodeMakesNoChecksums) {
  for (const bool at_a : {true, false}) {
    transport::Fabric fabric;
    DataNode a("a", fabric.join("a"), at_a), b("b", fabric.join("b"), !at_a);
    connect(a, b);
    const core::View view = view_of({{"a", 1}, {"b", 1}}, 1);
    transport::LinkFaults faults;
    faults.corrupt = 0.02;
    fabric.set_faults(at_a ? "a" : "b", at_a ? "b" : "a", faults);
    for (DataNode* node : {&a, &b}) node->install(view);
    std::vector<float> x = numbers(100 * kSliceBytes / 4, 1), y = numbers(x.size(), 2);
    a.submit(view, 0, x);
    b.submit(view, 1, y);
    for (DataNode* node : {&a, &b})
      EXPECT_EQ(node->next<Completed>().outcome.verdict, Verdict::kOk);
    EXPECT_EQ(x, numbers(x.size(), 3));
    EXPECT_EQ(y, x);
  }
}

TEST(Seal, CoversEveryBitOfAHeader) {
  Frame frame;
  frame.type = FrameType::kCredit;
  frame.token = 0x1234567;
  frame.credit = {0, 5, 6};
  const FrameBytes good = sealed(frame);
  EXPECT_TRUE(is_sound(good));
  EXPECT_EQ(token_in(good), frame.token);
  for (size_t bit = 0; bit < kFrameBytes * 8; ++bit) {
    FrameBytes bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(is_sound(bad)) << bit;
  }
  EXPECT_FALSE(is_sound(std::span(good).first(kFrameBytes - 1)));
}

// Without checksums damaged values are summed in; then the results tell.
TEST_F(DataThreadTest, ResultsThatDifferAreNoticedWhereThatIsAskedFor) {
  Flips at_a, at_b;
  const auto make = [this](const std::string& name, Flips* flips) {
    return std::make_unique<DataNode>(
        name, std::make_unique<FlippingTransport>(fabric_.join(name), flips), false, 1 << 20, true);
  };
  const auto a = make("a", &at_a);
  const auto b = make("b", &at_b);
  connect(*a, *b);
  const core::View view = view_of({{"a", 2}, {"b", 1}}, 1);
  for (DataNode* node : {a.get(), b.get()}) node->install(view);
  std::vector<std::vector<float>> data;
  for (const float factor : {1.f, 2.f, 3.f}) data.push_back(numbers(20'000, factor));
  const auto submit = [&](uint64_t sequence) {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      (rank < 2 ? a : b)->submit(view, rank, data[rank], sequence);
    }
  };
  submit(0);
  for (DataNode* node : {a.get(), a.get(), b.get()}) {
    EXPECT_EQ(node->next<Completed>().outcome.verdict, Verdict::kOk);
  }
  EXPECT_EQ(data[2], numbers(20'000, 6));

  at_b.payload_percent = 100;
  at_b.every_attempt = true;  // one without a checksum is no first attempt
  submit(1);
  const Failure failure = a->next<EngineFailed>().failure;
  EXPECT_EQ(failure.cause, Cause::kCorrupted);
  EXPECT_THAT(describe(failure), HasSubstr("nodes b and a hold different results of op 1"));
}

}  // namespace
}  // namespace gradring::daemon
