// Memory of the host that a transport with CUDA pins as well.
#include <atomic>

#include "tests/daemon/data_node.h"
#include "tests/daemon/flipping_transport.h"
#include "tests/daemon/slow_gpus.h"

namespace gradring::daemon {
namespace {

struct Seen {
  std::atomic<int> registrations = 0, pinned_by_lane = 0, ended_outside = 0;
};

// As UCX with CUDA: what nobody has pinned it pins itself, and to let go of it takes a context.
class PinningLane final : public FlippingTransport {
 public:
  PinningLane(std::unique_ptr<transport::Transport> under, const SlowGpus* gpus, Seen* seen)
      : FlippingTransport(std::move(under), &none_), gpus_(gpus), seen_(seen) {}
  bool reaches_gpus() const override { return true; }
  Status can_reach_gpus(bool /*dmabufs*/) const override { return {}; }
  tl::expected<std::unique_ptr<transport::Registration>, Status> make_ready(
      std::span<std::byte> memory) override {
    if (!gpus_->has_pinned(memory.data())) ++seen_->pinned_by_lane;
    return std::make_unique<Ready>(seen_);
  }
  tl::expected<std::unique_ptr<transport::Registration>, Status> make_ready_on_gpu(
      std::span<std::byte> /*memory*/) override {
    return std::make_unique<Ready>(seen_);
  }

 private:
  class Ready final : public transport::Registration {
   public:
    explicit Ready(Seen* seen) : seen_(seen) { ++seen_->registrations; }
    ~Ready() override {
      if (SlowGpus::entered == 0) ++seen_->ended_outside;
      --seen_->registrations;
    }
    Ready(const Ready&) = delete;
    Ready& operator=(const Ready&) = delete;

   private:
    Seen* const seen_;
  };

  Flips none_;
  const SlowGpus* const gpus_;
  Seen* const seen_;
};

class DataGpuPinned : public DataThreadTest {
 protected:
  DataGpuPinned() {
    Lanes lanes;
    lanes.push_back(std::make_unique<PinningLane>(fabric_.join("a"), gpus_.get(), &seen_));
    node_ = std::make_unique<DataNode>("a", std::move(lanes), false, 1 << 20, false, 0,
                                       NodeGpus{gpus_, kSliceBytes, true});
    node_->install(view_);
    constexpr int kOfOneJob = 3;  // on the host, and for slices from the GPU there and here
    while (seen_.registrations < kOfOneJob) std::this_thread::sleep_for(1ms);
  }

  Seen seen_;
  core::View view_ = view_of({{"a", 2}}, 1);
  std::shared_ptr<SlowGpus> gpus_ = std::make_shared<SlowGpus>();
  std::unique_ptr<DataNode> node_;
};

TEST_F(DataGpuPinned, IsPinnedByTheGpusBeforeATransportIsTold) {
  EXPECT_GT(seen_.registrations, 0);
  EXPECT_EQ(seen_.pinned_by_lane, 0);
}

TEST_F(DataGpuPinned, IsLetGoOfByTheThreadThatIsInAContext) {
  node_.reset();  // with the job
  EXPECT_EQ(seen_.registrations, 0);
  EXPECT_EQ(seen_.ended_outside, 0);
}

// What lies in the host's memory is summed there.
TEST_F(DataGpuPinned, ThatNoGpuPinsIsNoReasonToHaveNoJob) {
  gpus_->pin_no_more();
  const core::View view = view_of({{"a", 2}}, 2);
  node_->install(view);
  std::vector<float> x = numbers(1000, 1), y = numbers(1000, 2);
  node_->submit(view, 0, x);
  node_->submit(view, 1, y);
  EXPECT_EQ(node_->next<Completed>().outcome.verdict, Verdict::kOk);
  EXPECT_EQ(node_->next<Completed>().outcome.verdict, Verdict::kOk);
  EXPECT_EQ(x, numbers(1000, 3));
}

}  // namespace
}  // namespace gradring::daemon
