// Small frames that share messages, from data thread to data thread, and whatever else looks so.

#include <gtest/gtest.h>

#include "daemon/data/seal.h"
#include "proto/bundle.h"
#include "tests/daemon/data_node.h"
#include "transport/tcp/tcp_transport.h"

namespace gradring::daemon {
namespace {

class DataBundleTest : public DataThreadTest {
 protected:
  static constexpr uint64_t kOps = 400;

  std::unique_ptr<DataNode> node(const std::string& name) {
    return std::make_unique<DataNode>(name, fabric_.join(name), false, uint64_t{1} << 20, false, 2);
  }
  void submit_many(uint64_t ops = kOps) {
    for (uint64_t i = 0; i < ops; ++i) {
      x_.push_back(numbers(16 + i % 200, 1));
      y_.push_back(numbers(16 + i % 200, 2));
    }
    for (uint64_t i = 0; i < ops; ++i) a_->submit(view_, 0, x_[i], i);
    for (uint64_t i = 0; i < ops; ++i) b_->submit(view_, 1, y_[i], i);
  }
  // What node a has counted when all that it was given has ended well.
  Pulse run_many() {
    submit_many();
    for (uint64_t i = 0; i < kOps; ++i) {
      EXPECT_EQ(a_->next<Completed>().outcome.verdict, Verdict::kOk);
      EXPECT_EQ(b_->next<Completed>().outcome.verdict, Verdict::kOk);
    }
    for (uint64_t i = 0; i < kOps; ++i) {
      EXPECT_EQ(x_[i], numbers(16 + i % 200, 3)) << i;
      EXPECT_EQ(y_[i], x_[i]) << i;
    }
    return a_->next<Pulse>(
        [](const Pulse& p) { return !p.jobs.empty() && p.jobs[0].ops_completed == kOps; });
  }

  const core::View view_ = view_of({{"a", 1}, {"b", 1}}, 1);
  std::vector<std::vector<float>> x_, y_;
  std::unique_ptr<DataNode> a_ = node("a"), b_ = node("b");
};

TEST_F(DataBundleTest, ManySmallOpsTakeFewMessages) {
  connect(*a_, *b_, kBundleBytesMax);
  a_->install(view_);
  b_->install(view_);
  const Pulse pulse = run_many();
  EXPECT_GT(pulse.bundles_sent, 0u);
  EXPECT_GE(pulse.frames_bundled, 2 * pulse.bundles_sent);
  const uint64_t frames = pulse.transport.messages_sent - pulse.bundles_sent + pulse.frames_bundled;
  EXPECT_LT(pulse.transport.messages_sent, frames);
  EXPECT_GE(frames, kOps) << "a READY for each op";
}

TEST_F(DataBundleTest, APeerThatDoesNotTakeThemGetsFrameByFrame) {
  connect(*a_, *b_);
  a_->install(view_);
  b_->install(view_);
  const Pulse pulse = run_many();
  EXPECT_EQ(pulse.bundles_sent, 0u);
  EXPECT_GE(pulse.transport.messages_sent, kOps);
}

TEST_F(DataBundleTest, APeersDeathWithBundlesUnderWayEndsClean) {
  connect(*a_, *b_, kBundleBytesMax);
  a_->install(view_);
  b_->install(view_);
  submit_many(50);
  b_->next<Completed>();
  for (uint64_t i = 50; i < 100; ++i) a_->submit(view_, 0, x_[0], i);
  fabric_.kill("b");
  a_->next<PeerDataLost>();
  for (uint64_t i = 100; i < 150; ++i) a_->submit(view_, 0, x_[0], i);
  a_->post(DisconnectPeer{0});
  a_->post(FailJob{view_.incarnation, {Cause::kPeerLost, {}}});
  a_->next<Completed>([](const Completed& c) { return c.ticket == 150; });
  a_->post(RemoveJob{view_.incarnation});
  a_->next<Pulse>([](const Pulse& pulse) { return pulse.staging_bytes_most == 0; });
}

// Over TCP nobody wakes a node that has sent.
std::unique_ptr<transport::Transport> on_loopback() {
  auto made = transport::make_tcp_transport({{"lo"}, "for tests"});
  if (!made) throw std::runtime_error(made.error().message());
  return std::move(*made);
}

// When WANTED came.
class WantedEar final : public transport::Events {
 public:
  Landing on_header(std::span<const std::byte>, size_t) override { return {}; }
  void on_message(std::span<const std::byte> header, uint64_t) override {
    const auto frame = decode(header, 0);
    const bool wanted = frame && frame->type == FrameType::kWanted;
    if (wanted) came.push_back(std::chrono::steady_clock::now());
  }
  void on_aborted(uint64_t) override {}
  void on_sent(transport::PeerId, uint64_t, bool) override {}
  void on_lost(transport::PeerId, const std::string&) override {}

  std::vector<std::chrono::steady_clock::time_point> came;
};

TEST_F(DataThreadTest, WhatAPulseHasToSayDoesNotWaitForTheNextOne) {
  constexpr core::Time kPulse = 1500 * core::kMillisecond;  // both ops wait for long at the second
  Lanes lanes;
  lanes.push_back(on_loopback());
  NodeGpus tree;
  tree.tree_max = 1024;
  DataNode a("a", std::move(lanes), false, 4 << 20, false, 0, tree, kPulse);
  const std::unique_ptr<transport::Transport> b = on_loopback();
  a.post(ExpectPeer{0, kTokenOfA});
  a.post(ConnectPeer{0, 7, "b", {b->address()}, kTokenOfB, kBundleBytesMax});
  const core::View view = view_of({{"a", 1}, {"b", 1}}, 1);
  a.install(view);
  std::vector<float> x = numbers(16, 1), y = x;
  a.submit(view, 0, x, 0);
  a.submit(view, 0, y, 1);
  WantedEar ear;
  const auto until = std::chrono::steady_clock::now() + 10s;
  while (ear.came.size() < 2 && std::chrono::steady_clock::now() < until) {
    if (b->progress(ear) > 0 || !b->arm()) continue;
    pollfd p{b->event_fd(), POLLIN, 0};
    poll(&p, 1, 100);
  }
  ASSERT_EQ(ear.came.size(), 2u);
  EXPECT_LT(ear.came[1] - ear.came[0], std::chrono::nanoseconds(kPulse / 2));
}

// A peer on whose behalf a test speaks to node a.
class HostileBundleTest : public DataBundleTest {
 protected:
  HostileBundleTest() {
    connect(*a_, *b_);
    a_->install(view_);
    // Whose token it is must be known before something damaged comes with it.
    a_->next<Pulse>([](const Pulse& p) { return p.jobs.size() == 1; });
    EXPECT_TRUE(stranger_->connect(0, a_->addresses().front()).ok());
  }
  // Of a job that is not there.
  static FrameBytes frame(uint64_t token = kTokenOfA) {
    Frame frame;
    frame.token = token;
    frame.type = FrameType::kReady;
    frame.ready.contributions = 1;
    frame.ready.signature = {Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, 64};
    return sealed(frame);
  }
  void send(const FrameBytes& header, std::vector<std::byte> payload) {
    payloads_.push_back(std::move(payload));
    ASSERT_TRUE(stranger_->send(0, header, payloads_.back(), payloads_.size()).ok());
  }
  // These headers, without payloads, whatever they are.
  void send_bundle(const std::vector<FrameBytes>& frames, uint64_t token = kTokenOfA) {
    Bundle bundle;
    bundle.token = token;
    std::vector<std::byte> payload;
    for (const FrameBytes& frame : frames) {
      bundle.add(0);
      payload.insert(payload.end(), frame.begin(), frame.end());
    }
    send(sealed(encode(bundle)), std::move(payload));
  }

  const std::unique_ptr<transport::Transport> stranger_ = fabric_.join("stranger");
  std::vector<std::vector<std::byte>> payloads_;
};

TEST_F(HostileBundleTest, EachFrameIsHeardAsIfItHadComeAlone) {
  send_bundle({frame(), frame(1), frame(), frame(kTokenOfB)});
  const Pulse pulse =
      a_->next<Pulse>([](const Pulse& p) { return p.frames_stale >= 2 && p.frames_forged >= 2; });
  EXPECT_EQ(pulse.frames_stale, 2u);
  EXPECT_EQ(pulse.frames_forged, 2u);
  EXPECT_EQ(pulse.frames_malformed, 0u);
}

// Its ExpectPeer may still be in the mailbox.
TEST_F(HostileBundleTest, ABundlesOwnTokenGivesNoRights) {
  send_bundle({frame(), frame(1)}, 4711);
  const Pulse pulse =
      a_->next<Pulse>([](const Pulse& p) { return p.frames_stale >= 1 && p.frames_forged >= 1; });
  EXPECT_EQ(pulse.frames_stale, 1u);
}

TEST_F(HostileBundleTest, WhatMakesNoSenseIsCountedAndChangesNothing) {
  Bundle two;
  two.add(0);
  two.add(0);
  send(sealed(encode(two)), std::vector<std::byte>(two.bytes + 1));
  send(sealed(encode(two)), std::vector<std::byte>(1));
  FrameBytes one = encode(two);
  one[5] = std::byte{1};
  send(sealed(one), std::vector<std::byte>(kFrameBytes));
  ASSERT_TRUE(stranger_->send(0, sealed(encode(two)), {}, 0).ok());  // without its payload
  send_bundle({frame(), sealed(encode(two)), frame()});              // one within another
  Frame sliced;
  sliced.token = kTokenOfA;
  sliced.type = FrameType::kSlice;
  sliced.slice.length = 64;
  send_bundle({sealed(sliced), frame()});  // whose payload is missing
  const Pulse pulse = a_->next<Pulse>(
      [](const Pulse& p) { return p.frames_malformed >= 6 && p.frames_stale >= 3; });
  EXPECT_EQ(pulse.frames_malformed, 6u);
  EXPECT_EQ(pulse.frames_stale, 3u);
}

TEST_F(HostileBundleTest, ADamagedFrameInItEndsTheConnectionAsAloneItWould) {
  FrameBytes damaged = frame();
  damaged[40] ^= std::byte{4};
  send_bundle({frame(), damaged});
  EXPECT_NE(a_->next<PeerDataLost>().why.find("damaged"), std::string::npos);
  a_->next<Pulse>([](const Pulse& p) { return p.frames_damaged == 1 && p.frames_stale == 1; });
}

TEST_F(HostileBundleTest, ADamagedHeaderOfABundleToo) {
  Bundle bundle;
  bundle.token = kTokenOfA;
  bundle.add(0);
  bundle.add(8);
  FrameBytes header = sealed(encode(bundle));
  header[18] ^= std::byte{1};
  send(header, std::vector<std::byte>(bundle.bytes));
  EXPECT_NE(a_->next<PeerDataLost>().why.find("damaged"), std::string::npos);
}

}  // namespace
}  // namespace gradring::daemon
