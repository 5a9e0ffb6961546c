#include "daemon/data/outbox.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

namespace gradring::daemon {
namespace {

// Takes as many sends as it has room for.
class NarrowTransport final : public transport::Transport {
 public:
  std::string name() const override { return "narrow"; }
  std::string devices() const override { return ""; }
  std::string devices_reason() const override { return ""; }
  std::string address() const override { return ""; }
  Status connect(transport::PeerId, const std::string&) override { return {}; }
  void disconnect(transport::PeerId) override {}
  Status send(transport::PeerId, const FrameBytes& header, std::span<const std::byte>,
              uint64_t) override {
    if (lost) return {Code::kUnavailable, "lost"};
    if (room == 0) return {Code::kResourceExhausted, "full"};
    --room;
    sent.push_back(static_cast<int>(header[0]));
    return {};
  }
  int progress(transport::Events&) override { return 0; }
  int event_fd() const override { return -1; }
  bool arm() override { return true; }
  transport::Counters counters() const override { return {}; }
  size_t preferred_payload_bytes() const override { return 4096; }

  int room = 0;
  bool lost = false;
  std::vector<int> sent;
};

FrameBytes frame(int number) {
  FrameBytes bytes{};
  bytes[0] = static_cast<std::byte>(number);
  return bytes;
}

// Two lanes without room, until they get some.
class OutboxTest : public testing::Test {
 protected:
  OutboxTest() {
    for (NarrowTransport*& narrow : narrow_) {
      auto made = std::make_unique<NarrowTransport>();
      narrow = made.get();
      lanes_.push_back(std::move(made));
    }
    outbox_.emplace(&lanes_);
  }

  Lanes lanes_;
  std::array<NarrowTransport*, 2> narrow_{};
  std::optional<Outbox> outbox_;
};

TEST_F(OutboxTest, KeepsTheOrderWhenTheTransportHasNoRoom) {
  std::vector<uint64_t> returned;
  narrow_[0]->room = 1;
  for (int i = 1; i <= 4; ++i) EXPECT_TRUE(outbox_->send(0, 0, frame(i), {}, 0));
  EXPECT_EQ(narrow_[0]->sent, (std::vector<int>{1}));
  EXPECT_EQ(outbox_->retry(&returned), 0);
  narrow_[0]->room = 2;
  EXPECT_EQ(outbox_->retry(&returned), 2);
  narrow_[0]->room = 5;
  EXPECT_TRUE(outbox_->send(0, 0, frame(5), {}, 0)) << "room again, but the fourth is older";
  EXPECT_EQ(outbox_->retry(&returned), 2);
  EXPECT_EQ(narrow_[0]->sent, (std::vector<int>{1, 2, 3, 4, 5}));
  EXPECT_TRUE(outbox_->empty());
  EXPECT_TRUE(returned.empty());
}

TEST_F(OutboxTest, OnePeerWithoutRoomDoesNotHoldUpAnother) {
  EXPECT_TRUE(outbox_->send(0, 0, frame(1), {}, 0));
  narrow_[0]->room = 1;
  EXPECT_TRUE(outbox_->send(0, 1, frame(2), {}, 0));
  EXPECT_EQ(narrow_[0]->sent, (std::vector<int>{2}));
}

TEST_F(OutboxTest, OneLaneWithoutRoomDoesNotHoldUpAnother) {
  EXPECT_TRUE(outbox_->send(0, 0, frame(1), {}, 0));
  narrow_[1]->room = 1;
  EXPECT_TRUE(outbox_->send(1, 0, frame(2), {}, 0));
  EXPECT_EQ(narrow_[1]->sent, (std::vector<int>{2}));
}

TEST_F(OutboxTest, GivesLoansBackWhenTheConnectionIsLost) {
  std::vector<uint64_t> returned;
  EXPECT_TRUE(outbox_->send(0, 0, frame(1), {}, 11));
  EXPECT_TRUE(outbox_->send(0, 0, frame(2), {}, 0));
  EXPECT_TRUE(outbox_->send(0, 0, frame(3), {}, 13));
  narrow_[0]->lost = true;
  EXPECT_EQ(outbox_->retry(&returned), 0);
  EXPECT_EQ(returned, (std::vector<uint64_t>{11, 13}));
  EXPECT_TRUE(outbox_->empty());
  EXPECT_FALSE(outbox_->send(0, 0, frame(4), {}, 14)) << "nothing is kept for a lost peer";
}

}  // namespace
}  // namespace gradring::daemon
