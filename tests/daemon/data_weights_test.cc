// What a job with a weight takes from the others of its node, and when.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <utility>

#include "daemon/data/seal.h"
#include "tests/daemon/data_node.h"

namespace gradring::daemon {
namespace {

// The other node of both jobs, which takes what comes and gives no slot back.
class Successor final : public transport::Events {
 public:
  explicit Successor(transport::Fabric& fabric) : transport_(fabric.join("b")) {}

  std::string address() const { return transport_->address(); }
  void connect(const DataNode& to) {
    ASSERT_TRUE(transport_->connect(0, to.addresses().front()).ok());
  }
  void say_ready(const core::View& view, uint64_t token, size_t count) {
    Frame frame;
    frame.token = token;
    frame.job = view.incarnation;
    frame.epoch = view.epoch;
    frame.type = FrameType::kReady;
    frame.ready.rank = 1;
    frame.ready.contributions = 1;
    frame.ready.signature = {Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, count};
    ASSERT_TRUE(transport_->send(0, sealed(frame), {}, 0).ok());
  }
  // Until as many frames of the kind have come of the job.
  void await(const core::View& view, FrameType type, size_t wanted) {
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (came(view, type) < wanted) {
      ASSERT_LT(std::chrono::steady_clock::now(), until) << came(view, type) << " came";
      if (transport_->progress(*this) == 0) std::this_thread::sleep_for(1ms);
    }
  }
  size_t came(const core::View& view, FrameType type) { return came_[{view.incarnation, type}]; }

 private:
  Landing on_header(std::span<const std::byte> /*header*/, size_t payload_bytes) override {
    return {landing_.data(), payload_bytes};
  }
  void on_message(std::span<const std::byte> header, uint64_t payload_bytes) override {
    const auto frame = decode(header, payload_bytes);
    if (frame) ++came_[{frame->job, frame->type}];
  }
  void on_aborted(uint64_t /*cookie*/) override {}
  void on_sent(transport::PeerId /*peer*/, uint64_t /*token*/, bool /*ok*/) override {}
  void on_lost(transport::PeerId /*peer*/, const std::string& /*why*/) override {}

  std::unique_ptr<transport::Transport> transport_;
  std::array<std::byte, kSliceBytes> landing_{};
  std::map<std::pair<JobId, FrameType>, size_t> came_;
};

class Weights : public DataThreadTest {
 protected:
  static constexpr size_t kCount = 32 * kSliceBytes / sizeof(float);
  static constexpr size_t kUntilNoSlots = 3;  // of 4, of which one stays free

  Weights() : successor_(fabric_) {
    Lanes lanes;
    lanes.push_back(fabric_.join("a"));
    // It looks when it begins, and not again.
    a_ = std::make_unique<DataNode>("a", std::move(lanes), false, 1 << 20, false, 0, NodeGpus{},
                                    core::kSecond * 3600);
    a_->next<Pulse>();
    successor_.connect(*a_);
    a_->post(ExpectPeer{0, kTokenOfA});
    a_->post(ConnectPeer{0, 7, "b", {successor_.address()}, kTokenOfB, 0, false});
    for (const core::View* view : {&light_, &heavy_}) a_->install(*view);
    a_->post(SetWeight{heavy_.incarnation, core::kWeightMost});
  }
  // Returns when its first slices have come.
  void begin(const core::View& view, std::vector<float>& data) {
    a_->submit(view, 0, data);
    successor_.say_ready(view, kTokenOfA, kCount);
    successor_.await(view, FrameType::kSlice, 1);
  }
  // Slices that went at once: what is submitted now is heard of after them.
  size_t sent_at_once(const core::View& view) {
    a_->submit(view, 0, next_, 1);
    successor_.await(view, FrameType::kReady, 2);
    return successor_.came(view, FrameType::kSlice);
  }

  const core::View light_ = view_of({{"a", 1}, {"b", 1}}, 1),
                   heavy_ = view_of({{"a", 1}, {"b", 1}}, 2);
  std::vector<float> of_light_ = numbers(kCount, 1), of_heavy_ = numbers(kCount, 1),
                     next_ = numbers(kCount, 1);
  Successor successor_;
  std::unique_ptr<DataNode> a_;
};

TEST_F(Weights, AJobThatSendsNothingHoldsNobodyBack) {
  begin(light_, of_light_);
  EXPECT_EQ(sent_at_once(light_), kUntilNoSlots);
}

TEST_F(Weights, ALighterJobHasLessUnderWayFromWhenAHeavierOneBegins) {
  begin(heavy_, of_heavy_);
  EXPECT_EQ(sent_at_once(heavy_), kUntilNoSlots);
  begin(light_, of_light_);
  EXPECT_EQ(sent_at_once(light_), 1u);
}

}  // namespace
}  // namespace gradring::daemon
