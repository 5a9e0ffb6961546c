// Memory that a device has to know: told when a job begins, and let go of when it is over.
#include <gmock/gmock.h>

#include <atomic>
#include <utility>

#include "tests/daemon/data_node.h"
#include "tests/daemon/flipping_transport.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;

struct Device {
  std::atomic<uint64_t> told = 0;
  std::atomic<uint64_t> bytes = 0;  // that it knows now
  std::atomic<bool> full = false;
};

class Known final : public transport::Registration {
 public:
  Known(Device* device, uint64_t bytes) : device_(device), bytes_(bytes) {
    ++device_->told;
    device_->bytes += bytes_;
  }
  ~Known() override { device_->bytes -= bytes_; }

 private:
  Device* const device_;
  const uint64_t bytes_;
};

class TellingTransport final : public FlippingTransport {
 public:
  TellingTransport(std::unique_ptr<transport::Transport> under, Flips* none, Device* device)
      : FlippingTransport(std::move(under), none), device_(device) {}
  tl::expected<std::unique_ptr<transport::Registration>, Status> make_ready(
      std::span<std::byte> memory) override {
    if (device_->full) return tl::unexpected(Status(Code::kResourceExhausted, "it knows enough"));
    std::fill(memory.begin(), memory.end(), std::byte{1});  // all of it is there
    return std::make_unique<Known>(device_, memory.size());
  }

 private:
  Device* const device_;
};

class Ready : public DataThreadTest {
 protected:
  Ready() {
    for (int lane = 0; lane < 2; ++lane) {
      lanes_.push_back(std::make_unique<TellingTransport>(fabric_.join("a" + std::to_string(lane)),
                                                          &none_, &device_));
    }
  }
  void wait_known(const std::function<bool(uint64_t)>& wanted) {
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (!wanted(device_.bytes) && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_TRUE(wanted(device_.bytes)) << device_.bytes;
  }

  const core::View view_ = view_of({{"a", 1}}, 1);
  Flips none_;
  Device device_;
  Lanes lanes_;
};

TEST_F(Ready, AJobsMemoryIsToldOnceALaneHoweverManyOpsThereAre) {
  DataNode a("a", std::move(lanes_));
  a.install(view_);
  std::vector<float> x = numbers(5000, 1);
  for (uint64_t op = 0; op < 50; ++op) {
    a.submit(view_, 0, x, op);
    EXPECT_EQ(a.next<Completed>().outcome.verdict, Verdict::kOk);
  }
  EXPECT_EQ(device_.told, 2u);
  EXPECT_GE(device_.bytes, 2 * StagingMemory::bytes_for(4, 0, kSliceBytes));
  a.post(RemoveJob{view_.incarnation});
  wait_known([](uint64_t bytes) { return bytes == 0; });
}

TEST_F(Ready, WhatTheDeviceCannotKnowIsRefusedInItsWords) {
  device_.full = true;
  DataNode a("a", std::move(lanes_));
  a.install(view_);
  const Failure failure = a.next<EngineFailed>().failure;
  EXPECT_EQ(failure.cause, Cause::kRefused);
  EXPECT_THAT(failure.blame.evidence, HasSubstr("it knows enough"));
  device_.full = false;
  core::View other = view_of({{"a", 1}}, 2);
  a.install(other);
  wait_known([](uint64_t bytes) { return bytes > 0; });
}

TEST_F(Ready, WhatIsKnownIsLetGoOfWithTheDaemon) {
  {
    DataNode a("a", std::move(lanes_));
    a.install(view_);
    wait_known([](uint64_t bytes) { return bytes > 0; });
  }
  EXPECT_EQ(device_.bytes, 0u);
}

}  // namespace
}  // namespace gradring::daemon
